// Operands that exceed a budget, and memory beside it: see gpu_beside.h.
#include "adapter/torch/gpu_beside.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/storages.h"
#include "base/readable.h"

namespace vedette::adapter {
namespace {
thread_local int beside_here = 0;  // BesideTheBudget that lives
thread_local std::exception_ptr refused_here;
}  // namespace

BesideTheBudget::BesideTheBudget() noexcept { ++beside_here; }
BesideTheBudget::~BesideTheBudget() { --beside_here; }
bool BesideTheBudget::here() noexcept { return beside_here > 0; }

Refused::Refused(std::exception_ptr error) noexcept : outer_(std::exchange(refused_here, std::move(error))) {}
Refused::~Refused() { refused_here = outer_; }
void Refused::throw_here() {
  if (refused_here != nullptr) std::rethrow_exception(refused_here);
}

std::exception_ptr let_operands_fit(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments, std::uint64_t parts) {
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
  if (bytes <= budget) return nullptr;

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
      move_home(session, largest, gpu.piece_beside(size));
    } catch (const c10::Error&) {
      return std::current_exception();
    }
    bytes -= size;
  }
  return nullptr;
}

// --- GpuStorages -----------------------------------------------------------------------------------------------------

c10::DataPtr GpuStorages::piece_beside(std::size_t bytes, bool is_told) {
  auto piece = std::make_unique<PieceBeside>(PieceBeside{.memory = native(bytes), .bytes = bytes});
  large_.fetch_add(bytes, std::memory_order_relaxed);
  static_cast<void>(beside());  // for its most
  if (is_told) tell_beside(bytes);
  void* const at = piece->memory.get();
  const c10::Device on = piece->memory.device();
  return {at, piece.release(), &free_beside, on};
}

void GpuStorages::free_beside(void* context) {
  const std::unique_ptr<PieceBeside> piece(static_cast<PieceBeside*>(context));
  instance()->large_.fetch_sub(piece->bytes, std::memory_order_relaxed);
}

const c10::DataPtr& GpuStorages::libtorchs(const c10::DataPtr& memory) const noexcept {
  return memory.get_deleter() == &free_beside ? static_cast<const PieceBeside*>(memory.get_context())->memory : memory;
}

GpuProgram::Beside GpuStorages::beside() noexcept {
  const CudaPart::Reserved reserved = cuda_->reserved(device().index());
  std::uint64_t most = most_reserved_.load(std::memory_order_relaxed);
  while (most < reserved.all && !most_reserved_.compare_exchange_weak(most, reserved.all, std::memory_order_relaxed)) {
  }
  return {.reserved = reserved.all,
          .most_reserved = std::max(most, reserved.all),
          .large = large_.load(std::memory_order_relaxed),
          .pools = reserved.pools,
          .workspaces = reserved.workspaces};
}

void GpuStorages::tell_beside(std::size_t bytes) {
  if (beside_.fetch_add(1) > 0 || !say_) return;
  say_("an operator needs " + readable(Bytes{bytes}) + " of GPU memory, for which a budget of " +
       readable(session_.load()->budget()) +
       " has no room beside what else it uses: they are libtorch's own memory, beside the budget, and so are others "
       "after them; a larger budget keeps them in it");
}

}  // namespace vedette::adapter
