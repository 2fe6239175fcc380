// Addresses that leave libtorch: see gpu_addresses.h.
#include "adapter/torch/gpu_addresses.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/operators.h"
#include "adapter/torch/stream_works.h"
#include "base/readable.h"
#include "vedette/result.h"

namespace vedette::adapter {
namespace {

constexpr std::uint64_t shares = 4;  // of the budget, one of which storages that were asked for may take

struct Asked {
  std::mutex mutex;  // no call of the session is made under it
  std::list<std::pair<const void*, HeldStorages>> held;
  std::uint64_t bytes = 0;
  bool a_step_runs = false;
  std::unordered_map<std::uint64_t, const void*> given;  // between steps: the name of the storage that lay there
};

std::atomic<bool> any_asked{false};  // since the last op

Asked& asked() {
  static auto* const instance = new Asked;  // storages outlive static objects
  return *instance;
}

std::uint64_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// A living guard's memory; nullptr: none.
const void* name_under_guard(const c10::StorageImpl& storage) {
  GpuStorages* const gpu = GpuStorages::opened();
  return gpu == nullptr || !gpu->is_of_this_session(storage) ? nullptr : GpuStorages::name_of(storage);
}

// Where the share is used up, the storage stays as it is.
void hold_until_next_op(c10::StorageImpl& storage, const void* name) {
  Asked& all = asked();
  {
    const std::lock_guard lock(all.mutex);
    const auto is_it = [name](const auto& one) { return one.first == name; };
    if (std::any_of(all.held.begin(), all.held.end(), is_it)) return;
    const std::uint64_t share = GpuStorages::opened()->session()->budget().value / shares;
    if (all.bytes + storage.nbytes() > share) {
      all.bytes = share;  // nothing else comes until the next op: what is in place stays there
      any_asked.store(true, std::memory_order_release);
      return;
    }
    all.bytes += storage.nbytes();
  }
  std::list<std::pair<const void*, HeldStorages>> one;
  std::array<c10::StorageImpl*, 1> wanted{&storage};
  one.emplace_back(std::piecewise_construct, std::forward_as_tuple(name), std::forward_as_tuple(wanted));
  const std::lock_guard lock(all.mutex);
  all.held.splice(all.held.end(), one);
  any_asked.store(true, std::memory_order_release);  // pairs with let_asked_storages_go()
}

// Another storage lay there when it was asked for, and lives.
bool is_anothers(std::uint64_t address, const void* name) {
  Asked& all = asked();
  const std::lock_guard lock(all.mutex);
  if (all.a_step_runs) return false;
  const auto [given, is_new] = all.given.try_emplace(address, name);
  if (is_new || given->second == name) return false;
  if (GpuStorages::opened()->lives(given->second)) return true;
  given->second = name;
  return false;
}

}  // namespace

HeldStorages::HeldStorages(std::span<c10::StorageImpl* const> storages) {
  GpuStorages* const gpu = GpuStorages::opened();
  for (c10::StorageImpl* const storage : storages) {
    const void* const name = name_under_guard(*storage);
    if (name == nullptr) continue;
    held_.emplace_back(*gpu->session(), name);
    gpu->settle();
    if (storage->data_ptr().get() != nullptr) continue;
    held_.clear();
    throw Failure({Cause::out_of_memory,
                   "A tensor of " + readable(Bytes{storage->nbytes()}) +
                       " is asked for outside of an operator, and the budget has no room for it beside what is held; "
                       "end guard.resident() scopes, or give a larger budget.",
                   0});
  }
}

HeldStorages::~HeldStorages() {
  if (held_.empty()) return;
  held_.clear();
  GpuStorages::opened()->settle();
}

std::uint64_t address_for_program(c10::StorageImpl& storage) {
  const void* const name = name_under_guard(storage);
  if (name == nullptr) return number_of(storage.data_ptr().get());
  if (const auto pool = GpuStorages::opened()->captured_here()) {
    GpuGraphs::instance().keep(*GpuStorages::opened(), storage, *pool);
  } else if (!in_op_of_this_thread()) {
    try {
      hold_until_next_op(storage, name);
    } catch (const Failure&) {  // it has its name
    }
  }
  const std::uint64_t address = number_of(storage.data_ptr().get());
  if (address == 0) return number_of(name);
  return !in_op_of_this_thread() && is_anothers(address, name) ? number_of(name) : address;
}

void keep_in_place(c10::StorageImpl& storage) {
  std::array<c10::StorageImpl*, 1> wanted{&storage};
  const HeldStorages held(wanted);
  if (name_under_guard(storage) != nullptr) GpuStorages::opened()->keep_in_place(storage);
}

void let_asked_storages_go() noexcept {
  if (!any_asked.load(std::memory_order_acquire)) return;  // pairs with hold_until_next_op()
  Asked& all = asked();
  decltype(all.held) ended;
  const std::lock_guard lock(all.mutex);
  any_asked.store(false, std::memory_order_relaxed);
  all.bytes = 0;
  ended.swap(all.held);
  // They end after the lock: `ended` was made before it.
}

void forget_asked_addresses(bool a_step_runs) noexcept {
  let_asked_storages_go();
  let_exchanges_go();
  Asked& all = asked();
  const std::lock_guard lock(all.mutex);
  all.bytes = 0;
  all.a_step_runs = a_step_runs;
  all.given.clear();
}

}  // namespace vedette::adapter
