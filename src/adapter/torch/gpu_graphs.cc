// Tensors that CUDA graphs use: see gpu_graphs.h.
#include "adapter/torch/gpu_graphs.h"

#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <string>
#include <utility>

#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/operators.h"
#include "adapter/torch/storages.h"
#include "base/assert.h"
#include "base/readable.h"

namespace vedette::adapter {
namespace {

constexpr std::uint64_t shares = 2;  // of the budget, one of which graphs may take: ops need the rest

}  // namespace

bool keep_if_captured(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments) {
  const auto pool = gpu.captured_here();
  if (!pool || gpu.session() == nullptr || gpu.session()->in_child()) return false;
  for (const c10::IValue& value : arguments)
    each_storage(value, c10::kCUDA,
                 [&](c10::StorageImpl& storage) { GpuGraphs::instance().keep(gpu, storage, *pool); });
  return true;
}

void keep_for_graph(c10::StorageImpl& storage, c10::MempoolId_t pool) {
  GpuStorages* const gpu = GpuStorages::opened();
  if (gpu == nullptr || gpu->session() == nullptr || gpu->session()->in_child()) return;
  GpuGraphs::instance().keep(*gpu, storage, pool);
}

GpuGraphs& GpuGraphs::instance() {
  static auto* const immortal = new GpuGraphs;  // graphs outlive static objects
  return *immortal;
}

void GpuGraphs::keep(GpuStorages& gpu, c10::StorageImpl& storage, Pool pool) {
  Session* const session = gpu.session();
  const void* const at = storage.data_ptr().get_context();
  const bool has_place = uses(storage);  // another pool's graphs have it, in place
  {
    const std::lock_guard lock(mutex_);
    any_.store(true, std::memory_order_relaxed);
    if (!pools_[pool].known.insert(at != nullptr ? at : storage.data_ptr().get()).second) return;
  }
  if (auto table = GpuStorages::shared_table_of(storage)) {
    const std::lock_guard lock(mutex_);
    pools_[pool].tables.push_back(std::move(table));
    return;
  }
  if (session == nullptr || !gpu.is_of_this_session(storage)) return;
  const std::uint64_t bytes = storage.nbytes();
  std::uint64_t all = bytes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, uses] : pools_) all += uses.bytes;
  }
  const bool fits = has_place || all <= session->budget().value / shares || is_exported(storage);
  if (fits && gpu.keep_for_graph(storage)) {
    const std::lock_guard lock(mutex_);
    pools_[pool].names.push_back(GpuStorages::name_of(storage));
    pools_[pool].bytes += bytes;
    return;
  }
  try {
    const at::DisableRecordFunctionGuard unheard;
    gpu.run_beside_captures([&] { move_home(*session, storage, gpu.piece_beside(bytes, false)); });
  } catch (const c10::Error&) {
    die("an operator in a CUDA graph needs a tensor for which neither the budget nor the GPU has room; give a larger "
        "budget, or capture a smaller part of the model");
  }
  const std::lock_guard lock(mutex_);
  pools_[pool].beside += bytes;
  pools_[pool].known.insert(storage.data_ptr().get_context());
}

bool GpuGraphs::uses(const c10::StorageImpl& storage) const {
  const std::lock_guard lock(mutex_);
  const auto has = [&](const auto& each) { return each.second.known.contains(storage.data_ptr().get_context()); };
  return std::any_of(pools_.begin(), pools_.end(), has);
}

void GpuGraphs::forget(const void* context) noexcept {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  for (auto& [pool, uses] : pools_) uses.known.erase(context);
}

std::string GpuGraphs::ended(Pool pool, std::uint64_t bytes_of_pool, Bytes budget) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(pool);
  if (found == pools_.end() || found->second.bytes + found->second.beside == 0 || std::exchange(told_, true)) return {};
  const Uses& uses = found->second;
  return "a CUDA graph was captured: as long as it lives, " + readable(Bytes{uses.bytes}) +
         " of tensors that it uses " + "stay in place in the budget of " + readable(budget) +
         (uses.beside > 0 ? ", and " + readable(Bytes{uses.beside}) + " more are libtorch's own memory now" : "") +
         (bytes_of_pool > 0
              ? "; its own memory, " + readable(Bytes{bytes_of_pool}) + ", is libtorch's, beside the budget"
              : "");
}

void GpuGraphs::tell_again() {
  const std::lock_guard lock(mutex_);
  told_ = false;
}

std::vector<const void*> GpuGraphs::died(Pool pool) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return {};
  std::vector<const void*> names = std::move(found->second.names);
  pools_.erase(found);
  any_.store(!pools_.empty(), std::memory_order_relaxed);
  return names;
}

// --- GpuStorages -----------------------------------------------------------------------------------------------------

std::optional<c10::MempoolId_t> GpuStorages::captured_here() const noexcept { return cuda_->capture_here(); }

void* GpuStorages::beside_captures() const noexcept {
  const c10::DeviceGuard on_device(device());
  return cuda_->beside_captures();
}

void GpuStorages::run_beside_captures(const std::function<void()>& work) const {
  const c10::DeviceGuard on_device(device());
  cuda_->run_beside_captures(work);
}

bool GpuStorages::keep_for_graph(c10::StorageImpl& storage) {
  Session* const session = session_.load();
  const void* const name = name_of(storage);
  {
    const ResidentScope comes = session->resident(name);
    settle();
    if (storage.data_ptr().get() == nullptr) return false;
    const std::lock_guard lock(mutex_);
    ++handles_.at(name)->pools;
  }
  session->gpu()->forbid_moves(name);
  settle();
  return true;
}

void GpuStorages::see_earlier_graphs() {
  const c10::DeviceGuard on_device(device());
  GpuGraphs::instance().tell_again();
  adopts_ = !cuda_->has_graphs();
  if (!adopts_ && say_)
    say_(
        "a CUDA graph was captured before the guard, and nothing tells which tensors it uses: those from before stay "
        "libtorch's own memory, beside the budget; make the guard before the graph");
}

void GpuStorages::pool_begins() {
  Session* const session = session_.load();
  if (session == nullptr) return;
  hear_operators_of_gpu(*session);
  session->gpu()->will_be_captured();
}

// No stream of the capture's is captured any more: what it replays has come by then.
void GpuStorages::pool_ends(c10::MempoolId_t pool) {
  Session* const session = session_.load();
  if (session == nullptr) return pool_died({});
  const c10::DeviceGuard on_device(device());
  cuda_->wait_beside_captures();
  const std::string sentence = GpuGraphs::instance().ended(pool, cuda_->bytes_of_pool(pool), session->budget());
  if (!sentence.empty() && say_) say_(sentence);
  pool_died({});
}

// Its replays may still run, on any stream; and while another capture runs the host may not wait for them.
void GpuStorages::pool_died(c10::MempoolId_t pool) {
  std::vector<c10::MempoolId_t> died;
  {
    const std::lock_guard lock(mutex_);
    if (pool != c10::MempoolId_t{}) died_.push_back(pool);
    if (died_.empty()) return;
  }
  const c10::DeviceGuard on_device(device());
  if (!cuda_->wait_for_device()) return;
  {
    const std::lock_guard lock(mutex_);
    died.swap(died_);
  }
  for (const c10::MempoolId_t& each : died)
    for (const void* const name : GpuGraphs::instance().died(each)) let_go_of_graph(name);
}

void GpuStorages::let_go_of_graph(const void* name) {
  Handle* outlived = nullptr;  // nothing else frees it; any other may be freed once the lock is gone
  decltype(Handle::memory) memory{};
  {
    const std::lock_guard lock(mutex_);
    Handle* const handle = handles_.at(name);
    if (--handle->pools > 0) return;
    if (handle->outlived) {
      outlived = handle;
    } else if (!handle->kept) {
      memory = handle->memory;
    }
  }
  if (outlived != nullptr) return free(outlived);
  if (memory != nullptr) memory->allow_moves(name);
}

}  // namespace vedette::adapter
