// Aliases over device memory, and the allocator in front of the CPU's: see aliases.h.
#include "simulated_gpu/aliases.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "simulated_gpu/memory.h"
#include "simulated_gpu/operators.h"

namespace vedette::simulated {
namespace {

thread_local std::vector<Buffer>* buffers_here = nullptr;

// libtorch's own, whose place is taken. Asked for then: initialisers of other files may be first.
c10::Allocator* plain_allocator = nullptr;

class ServingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (buffers_here == nullptr) return plain_allocator->allocate(bytes);
    for (Buffer& buffer : *buffers_here) {
      if (buffer.taken || buffer.bytes != bytes) continue;
      buffer.taken = true;
      return {buffer.at, buffer.at, &release, c10::Device(c10::kCPU)};
    }
    return plain_allocator->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* at) {
    if (!in_device_memory(at)) plain_allocator->raw_deleter()(at);
  }
};

}  // namespace

void take_cpu_allocator_place() {
  static auto* const serving = new ServingAllocator;  // memory outlives main()
  if (plain_allocator == nullptr) plain_allocator = c10::GetCPUAllocator();
  c10::SetCPUAllocator(serving, 1);
}

ServedFrom::ServedFrom(std::vector<Buffer>& buffers) noexcept { buffers_here = &buffers; }
ServedFrom::~ServedFrom() { buffers_here = nullptr; }

bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_cuda(); }

Stream& current_stream() {
  return *stream_of(reinterpret_cast<cuda::StreamHandle>(c10::cuda::getCurrentCUDAStream().stream()));
}

void refuse_where_captured(const char* what, const char* why) {
  TORCH_CHECK(current_stream().refuses_waits() == 0,
              "CUDA error: operation not permitted when stream is capturing: ", what, " ", why);
}

c10::Storage device_storage(std::size_t bytes) {
  return {c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(bytes), c10::cuda::CUDACachingAllocator::get(),
          true};
}

bool in_device_memory(const void* at) {
  // The shadow is as far from the range for every address.
  const auto shift = reinterpret_cast<std::intptr_t>(memory().reach(memory().first())) -
                     reinterpret_cast<std::intptr_t>(memory().first());
  return memory().holds(static_cast<const std::byte*>(at) - shift);
}

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey backend, const at::Tensor& like) {
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(backend), like.dtype());
  c10::TensorImpl* const made = tensor.unsafeGetTensorImpl();
  made->set_storage_offset(like.storage_offset());
  made->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) made->set_wrapped_number(true);
  return tensor;
}

at::Tensor alias_on_host(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return tensor;
  c10::DataPtr bytes(const_cast<void*>(tensor.storage().data()), c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(bytes),
                       c10::GetCPUAllocator(), true);
  at::Tensor alias = tensor_over(std::move(storage), c10::DispatchKey::CPU, tensor);
  if (tensor.is_conj()) alias._set_conj(true);
  if (tensor.is_neg()) alias._set_neg(true);
  return alias;
}

at::Tensor as_cpu(const at::Tensor& tensor) {
  const void* const base = tensor.storage().data();
  void* const at = base == nullptr ? nullptr : memory().reach(base);
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       c10::DataPtr(at, c10::Device(c10::kCPU)), c10::GetCPUAllocator(), true);
  return tensor_over(std::move(storage), c10::DispatchKey::CPU, tensor);
}

std::vector<Access> accesses_of(const at::Tensor& tensor, bool write) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  // As libtorch's kernels ask, so that a storage hears that it is about to be written.
  const Access access{.at = write ? tensor.mutable_data_ptr() : tensor.const_data_ptr(),
                      .bytes = static_cast<std::size_t>(last + 1) * tensor.element_size(),
                      .write = write};
  if (!on_device(tensor) && !memory().pinned(access.at, access.bytes)) return {};
  return {access};
}

}  // namespace vedette::simulated
