// What queued work has of the host: see host_tensors.h.
#include "simulated_gpu/host_tensors.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "simulated_gpu/aliases.h"

namespace vedette::simulated {

void HostTensors::keep(std::vector<at::Tensor> tensors, const Done& done) {
  if (tensors.empty()) return;
  const std::lock_guard lock(guard_);
  kept_.push_back({done, std::move(tensors)});
}

void HostTensors::let_go() {
  std::vector<Kept> over;  // they go without the lock
  const std::lock_guard lock(guard_);
  const auto done = std::stable_partition(kept_.begin(), kept_.end(), [](const Kept& each) { return !*each.done; });
  std::move(done, kept_.end(), std::back_inserter(over));
  kept_.erase(done, kept_.end());
}

HostTensors& host_tensors() {
  static auto* const all = new HostTensors;  // for ever: Python may be gone before
  return *all;
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

}  // namespace vedette::simulated
