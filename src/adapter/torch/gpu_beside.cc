// Operands that exceed a budget, and memory beside it: see gpu_beside.h.
#include "adapter/torch/gpu_beside.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/storages.h"

namespace vedette::adapter {
namespace {
thread_local int beside_here = 0;  // BesideTheBudget that lives
}

BesideTheBudget::BesideTheBudget() noexcept { ++beside_here; }
BesideTheBudget::~BesideTheBudget() { --beside_here; }
bool BesideTheBudget::here() noexcept { return beside_here > 0; }

void let_operands_fit(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments, std::uint64_t parts) {
  Session& session = *gpu.session();
  const std::uint64_t budget = session.budget().value / parts;
  const auto each_operand = [&](const auto& each) {
    for (const c10::IValue& argument : arguments)
      each_storage(argument, c10::kCUDA, [&](c10::StorageImpl& storage) {
        if (gpu.is_of_this_session(storage)) each(storage);
      });
  };
  std::uint64_t bytes = 0;
  each_operand([&](const c10::StorageImpl& storage) { bytes += storage.nbytes(); });
  if (bytes <= budget) return;

  std::vector<c10::StorageImpl*> operands;  // each once, the largest last
  each_operand([&](c10::StorageImpl& storage) { operands.push_back(&storage); });
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  std::sort(operands.begin(), operands.end(), [](auto* a, auto* b) { return a->nbytes() < b->nbytes(); });
  bytes = 0;
  for (const c10::StorageImpl* operand : operands) bytes += operand->nbytes();
  const c10::DeviceGuard on_device(GpuStorages::device());
  for (; bytes > budget && !operands.empty(); operands.pop_back()) {
    c10::StorageImpl& largest = *operands.back();
    if (is_exported(largest) || GpuGraphs::instance().uses(largest)) continue;
    const std::size_t size = largest.nbytes();
    try {
      move_home(session, largest, gpu.native(size));
    } catch (const c10::Error&) {  // the device has no room: the session says what is wanted
      return;
    }
    gpu.tell_beside(size);
    bytes -= size;
  }
}

}  // namespace vedette::adapter
