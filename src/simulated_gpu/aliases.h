// Device tensors as CPU kernels see them, and the memory that kernels on streams' threads allocate.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <vector>

#include "simulated_gpu/streams.h"

namespace vedette::simulated {

bool on_device(const at::Tensor& tensor);  // false for one that is undefined
Stream& current_stream();                  // libtorch's, of the calling thread
constexpr const char* waits_at_first =
    "waits on the simulated GPU, where each operator has to run once with such operands before it is captured";
// The host is about to wait for that stream: while it is captured this is refused, as on a GPU, and spoils the capture.
void refuse_where_captured(const char* what, const char* why = waits_at_first);
c10::Storage device_storage(std::size_t bytes);  // from CUDA's caching allocator, on that stream

// A tensor of `like`'s shape and type over a storage, with the keys of the storage's device.
at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey backend, const at::Tensor& like);

// The same bytes as a CPU tensor, where streams' threads reach them. Owns nothing, as a kernel's pointer argument owns
// nothing: a block that is freed too early is a real fault here.
at::Tensor as_cpu(const at::Tensor& tensor);

// A host tensor's bytes as another one's, which keeps nothing alive.
at::Tensor alias_on_host(const at::Tensor& tensor);

// The bytes from the tensor's first to its last element; pinned memory of the host counts, too.
std::vector<Access> accesses_of(const at::Tensor& tensor, bool write);

// A buffer that was set aside for a result of a queued kernel.
struct Buffer {
  void* at = nullptr;
  std::size_t bytes = 0;
  bool taken = false;
};

bool in_device_memory(const void* at);  // of what a stream's thread reaches

// While it lives, allocations of this thread are served from the buffers of equal size.
class ServedFrom {
 public:
  explicit ServedFrom(std::vector<Buffer>& buffers) noexcept;
  ~ServedFrom();
  ServedFrom(const ServedFrom&) = delete;
  ServedFrom& operator=(const ServedFrom&) = delete;
};

}  // namespace vedette::simulated
