// Operands that exceed a budget, and memory beside it: see gpu_beside.h.
#include "adapter/torch/gpu_beside.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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
#include "adapter/torch/versions.h"
#include "base/readable.h"

namespace vedette::adapter {
namespace {
thread_local int beside_here = 0;  // BesideTheBudget that lives
thread_local std::exception_ptr refused_here;
thread_local std::exception_ptr refusal_here;  // of the op that begins

void throw_at_write(c10::StorageImpl*) { Refused::throw_here(); }

}  // namespace

BesideTheBudget::BesideTheBudget() noexcept { ++beside_here; }
BesideTheBudget::~BesideTheBudget() { --beside_here; }
bool BesideTheBudget::here() noexcept { return beside_here > 0; }

Refused::Refused(std::exception_ptr error, c10::ArrayRef<const c10::IValue> arguments)
    : outer_(std::exchange(refused_here, std::move(error))) {
  for (const c10::IValue& argument : arguments)
    for (const c10::DeviceType device : {c10::kCUDA, c10::kCPU})
      each_storage(argument, device, [&](c10::StorageImpl& storage) {
        if (hear_of_writes(storage, &throw_at_write))
          arguments_.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
      });
}
Refused::~Refused() {
  refused_here = outer_;
  for (const auto& storage : arguments_) hear_of_no_writes(*storage);
}
bool Refused::writes_too() noexcept { return hears_of_writes<c10::StorageImpl>; }
void Refused::throw_here() {
  if (refused_here != nullptr) std::rethrow_exception(refused_here);
}

std::exception_ptr take_refusal() noexcept { return std::exchange(refusal_here, nullptr); }

std::exception_ptr let_operands_fit(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments, std::uint64_t parts,
                                    int but_for) {
  Session& session = *gpu.session();
  const std::uint64_t budget = session.budget().value / parts;
  const auto each_operand = [&](const auto& each) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (static_cast<int>(i) == but_for) continue;
      each_storage(arguments[i], c10::kCUDA, [&](c10::StorageImpl& storage) {
        if (gpu.is_of_this_session(storage)) each(storage);
      });
    }
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
      move_home(session, largest, gpu.piece_beside(size, true, &largest));
    } catch (const c10::Error&) {
      return std::current_exception();
    }
    bytes -= size;
  }
  return nullptr;
}

// --- GpuStorages -----------------------------------------------------------------------------------------------------

c10::DataPtr GpuStorages::native(std::size_t bytes, const c10::StorageImpl* in_place_of) {
  const c10::Stream here = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device());
  c10::Stream born_on = here;
  if (in_place_of != nullptr) {
    const std::lock_guard lock(mutex_);
    const c10::DataPtr& old = in_place_of->data_ptr();
    if (old.get_deleter() == &free) born_on = static_cast<const Handle*>(old.get_context())->born_on;
  }
  if (born_on == here) return native_->allocate(bytes);
  c10::DataPtr memory;
  {
    const c10::StreamGuard on(born_on);
    memory = native_->allocate(bytes);
  }
  cuda_->wait_for_device();  // that stream may still use it, and may be one that the program has destroyed
  return memory;
}

void GpuStorages::move_beside(c10::StorageImpl& storage) {
  c10::DataPtr home = piece_beside(storage.nbytes(), true, &storage);
  copy_home(*session_.load()->gpu(), storage, home);
  storage.set_data_ptr_noswap(std::move(home));
}

// Those that are in place stay there: the others become libtorch's own memory, the largest first, until what is left
// has room.
GpuProgram::NoRoom GpuStorages::no_room(std::span<const void* const> operands, const Error& error) noexcept {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> away;
  {
    const std::lock_guard lock(mutex_);
    for (const void* const name : operands) {
      const auto found = handles_.find(name);
      if (found == handles_.end() || !found->second->storage) continue;
      auto storage = found->second->storage->lock();
      if (storage && storage->data_ptr().get_context() == found->second && storage->data_ptr().get() == nullptr)
        away.push_back(storage);
      if (storage) kept_.push_back(std::move(storage));  // its last reference may be this one
    }
  }
  std::sort(away.begin(), away.end(), [](const auto& a, const auto& b) { return a->nbytes() > b->nbytes(); });
  refusal_here = std::make_exception_ptr(
      c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory: " + error.message));
  for (const auto& storage : away) {
    try {
      const c10::DeviceGuard on_device(device());
      move_beside(*storage);
      refusal_here = nullptr;
      return NoRoom::begin_again;
    } catch (const c10::Error&) {
      refusal_here = std::current_exception();
    }
  }
  return NoRoom::run_without;
}

c10::DataPtr GpuStorages::piece_beside(std::size_t bytes, bool is_told, const c10::StorageImpl* in_place_of) {
  auto piece = std::make_unique<PieceBeside>(PieceBeside{.memory = native(bytes, in_place_of), .bytes = bytes});
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
  GpuGraphs::instance().forget(context);
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
