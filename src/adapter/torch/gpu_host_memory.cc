// Tensors in pinned memory, tried: see gpu_host_memory.h.
#include "adapter/torch/gpu_host_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <optional>

#include "adapter/torch/gpu_beside.h"
#include "adapter/torch/gpu_storages.h"

namespace vedette::adapter {
namespace {

bool tried(const c10::Device& device) {
  constexpr std::int64_t rows = 8, width = 16;
  const at::Tensor host = at::arange(rows * width, at::kFloat).view({rows, width});
  const at::Tensor pinned = host.pin_memory();
  const at::Tensor there =
      at::from_blob(pinned.data_ptr(), {rows, width}, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor numbers = at::arange(1, 4).to(device), row = host.to(device)[5];
  at::Tensor expected = host.clone();
  bool equal = at::equal(there.index_select(0, numbers).cpu(), host.slice(0, 1, 4));
  there.index_add_(0, numbers, there.index_select(0, numbers));
  there[6].copy_(row);
  expected.slice(0, 1, 4).mul_(2);
  expected[6].copy_(host[5]);
  equal = at::equal(there.cpu(), expected) && equal;
  return equal && at::equal(pinned, expected);
}

}  // namespace

bool uses_host_memory(const GpuStorages& gpu) {
  static std::optional<bool> answer;
  if (answer) return *answer;
  if (gpu.captured_here()) return false;
  try {
    const BesideTheBudget native;
    const at::DisableRecordFunctionGuard unheard;
    const at::NoGradGuard no_gradients;
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
    const c10::DeviceGuard on_device(GpuStorages::device());
    answer = tried(GpuStorages::device());
  } catch (const std::exception&) {  // not here, or not now: tensors move whole
    answer = false;
  }
  return *answer;
}

}  // namespace vedette::adapter
