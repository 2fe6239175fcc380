// The questions: see behaviour_gpu.h.
#include "adapter/torch/behaviour_gpu.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "adapter/torch/cuda_facade.h"
#include "adapter/torch/gpu_storages.h"

namespace vedette::adapter {
namespace {

constexpr std::int64_t bytes_of_all = 4096;

thread_local GpuStorages* asking_here = nullptr;

// The context is libtorch's own DataPtr.
void give_back(void* memory) { delete static_cast<c10::DataPtr*>(memory); }

class Asking {
 public:
  explicit Asking(GpuStorages& gpu) { asking_here = &gpu; }
  ~Asking() { asking_here = nullptr; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
};

bool is_all(const at::Tensor& host, unsigned char value) {
  const auto* const bytes = static_cast<const unsigned char*>(host.const_data_ptr());
  return host.nbytes() == static_cast<std::size_t>(bytes_of_all) &&
         std::all_of(bytes, bytes + bytes_of_all, [&](unsigned char each) { return each == value; });
}

// The work that libtorch's stream has to wait for.
class LateFill {
 public:
  LateFill(const CudaPart& cuda, void* memory, void* stream, std::chrono::microseconds lead)
      : cuda_(cuda), work_(cuda.begin_late_fill(memory, bytes_of_all, stream, lead)) {}
  ~LateFill() { end(); }
  LateFill(const LateFill&) = delete;
  LateFill& operator=(const LateFill&) = delete;
  bool has_begun() const noexcept { return work_ != nullptr; }
  void end() noexcept {
    if (void* const work = std::exchange(work_, nullptr)) cuda_.end_late_fill(work);
  }

 private:
  const CudaPart& cuda_;
  void* work_;
};

std::optional<std::string> differs(GpuStorages& gpu, const LibtorchOfGpu& libtorch) {
  const c10::DeviceGuard on_device(GpuStorages::device());
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);  // which the program may have
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::DisableRecordFunctionGuard unheard;
  const CudaPart& cuda = gpu.cuda();
  if (cuda.pool_here()) return std::nullopt;
  at::Tensor tensor;
  {
    const Asking asking(gpu);
    tensor = libtorch.make(bytes_of_all, GpuStorages::device());
  }
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (storage.data_ptr().get_deleter() != &give_back || storage.device() != GpuStorages::device())
    return "an allocation of GPU memory does not come to vedette";
  c10::DataPtr other = gpu.native(bytes_of_all);
  void* const address = other.get();
  libtorch.exchange(storage, std::move(other));
  if (storage.data() != address || tensor.const_data_ptr() != address)
    return "the storage of a tensor in GPU memory does not follow its new pointer";
  LateFill fill(cuda, address, libtorch.stream(gpu), libtorch.lead);
  if (!fill.has_begun()) return std::nullopt;
  if (is_all(libtorch.copy_to_host(tensor), cuda.late_byte)) return std::nullopt;
  fill.end();
  if (is_all(libtorch.copy_to_host(tensor), cuda.late_byte))
    return "a copy on libtorch's current stream of a GPU does not wait for an event";
  return "a copy from GPU memory does not read where its operand's storage points";
}

}  // namespace

LibtorchOfGpu libtorch_of_gpu_as_it_is() {
  return {.make = [](std::int64_t bytes,
                     c10::Device device) { return at::empty({bytes}, at::TensorOptions(at::kByte).device(device)); },
          .exchange = [](c10::StorageImpl& storage,
                         c10::DataPtr memory) { static_cast<void>(storage.set_data_ptr(std::move(memory))); },
          .copy_to_host =
              [](const at::Tensor& tensor) {
                at::Tensor host(at::detail::empty_cpu(tensor.sizes(), at::TensorOptions(at::kByte)));
                return host.copy_(tensor);
              },
          .stream = [](GpuStorages& gpu) { return gpu.current_stream(); }};
}

std::optional<std::string> what_differs_on(GpuStorages& gpu, const LibtorchOfGpu& libtorch) {
  try {
    return differs(gpu, libtorch);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

c10::DataPtr answer_of_gpu(std::size_t bytes) {
  if (asking_here == nullptr) return {};
  auto memory = std::make_unique<c10::DataPtr>(asking_here->native(bytes));
  void* const address = memory->get();
  return {address, memory.release(), &give_back, GpuStorages::device()};
}

}  // namespace vedette::adapter
