// Works of NCCL's: see stream_works.h.
#include "adapter/torch/stream_works.h"

#include <ATen/core/class_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "adapter/torch/gpu_addresses.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/storages.h"
#include "base/assert.h"

namespace vedette::adapter {
namespace {

struct Exchange {
  Exchange(std::vector<c10::intrusive_ptr<c10::StorageImpl>> used, std::span<c10::StorageImpl* const> wanted)
      : operands(std::move(used)), held(wanted) {}
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> operands;
  HeldStorages held;
  std::thread::id thread = std::this_thread::get_id();
};
struct Exchanges {
  std::mutex mutex;  // no call of the session is made under it
  std::list<Exchange> of_groups;
};
Exchanges& exchanges() {
  static auto* const immortal = new Exchanges;  // storages outlive static objects
  return *immortal;
}

c10::intrusive_ptr<c10d::Work> work_in(c10::ArrayRef<c10::IValue> results) {
  static const auto type = c10::getCustomClassType<c10::intrusive_ptr<c10d::Work>>();
  for (const c10::IValue& result : results)
    if (result.isObject() && *result.toObject()->type() == *type) return result.toCustomClass<c10d::Work>();
  return nullptr;
}

enum class Kind : std::uint8_t { collective, exchange };

// Stands for NCCL's own streams, which c10d keeps to itself. All collectives of the process are behind each other
// there, as they are on a communicator's stream. An exchange may end long after collectives that were called later.
c10::Stream behind_works(Kind kind) {
  static std::mutex mutex;
  static auto* const streams = new std::map<std::pair<c10::DeviceIndex, Kind>, c10::Stream>;
  const c10::Device device = GpuStorages::device();
  const std::pair key(device.index(), kind);
  const std::lock_guard lock(mutex);
  if (const auto known = streams->find(key); known != streams->end()) return known->second;
  return streams->emplace(key, c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(device)).first->second;
}

// A call in a group has none: its work is queued as the group ends.
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work) {
  try {
    return work.getFuture();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

// A work lets go of its operands when a stream waits for it; with libtorch 2.15 when its future is asked for. So
// libtorch's own memory among them is recorded, too.
// False: there is nothing yet to wait for.
bool order_behind(c10d::Work& work, const std::vector<c10::intrusive_ptr<c10::StorageImpl>>& operands,
                  const char* function, Kind kind) {
  const c10::Stream behind = behind_works(kind);
  {
    const c10::StreamGuard on(behind);  // the current stream goes on
    const auto future = future_of(work);
    if (future == nullptr) return false;
    if (!future->completed())
      die((std::string(function) +
           " communicates a tensor of a guard of GPU memory by a backend whose work no stream orders; use nccl")
              .c_str());
    future->wait();  // the stream does, not the host
  }
  const c10::impl::VirtualGuardImpl device(c10::kCUDA);
  for (const auto& operand : operands) device.recordDataPtrOnStream(operand->data_ptr(), behind);
  return true;
}

bool is_an_exchange(std::string_view function) {
  return function.starts_with("c10d::send") || function.starts_with("c10d::recv");
}

}  // namespace

bool is_of_c10d(std::string_view function) noexcept { return function.starts_with("c10d::"); }

StreamWork::StreamWork(const char* function, c10::ArrayRef<const c10::IValue> arguments) : function_(function) {
  bool any = false;
  for (const c10::IValue& argument : arguments)
    each_storage(argument, c10::kCUDA, [&](c10::StorageImpl& storage) {
      any = any || GpuStorages::opened()->is_of_this_session(storage);
      operands_.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
    });
  if (!any) operands_.clear();
}

void StreamWork::queued(c10::ArrayRef<c10::IValue> results) {
  if (operands_.empty()) return;
  const auto work = work_in(results);
  const Kind kind = is_an_exchange(function_) ? Kind::exchange : Kind::collective;
  const bool ordered = work != nullptr && order_behind(*work, operands_, function_, kind);
  if (kind == Kind::exchange && !ordered) {
    std::vector<c10::StorageImpl*> wanted;
    for (const auto& operand : operands_) wanted.push_back(operand.get());
    std::list<Exchange> held;
    held.emplace_back(operands_, wanted);
    const std::lock_guard lock(exchanges().mutex);
    exchanges().of_groups.splice(exchanges().of_groups.end(), held);
  }
}

void let_exchanges_go() noexcept {
  std::list<Exchange> ended;
  const std::lock_guard lock(exchanges().mutex);
  ended.swap(exchanges().of_groups);
  // They end after the lock: `ended` was made before it.
}

void a_group_of_works_ended(c10d::Work& work) {
  std::list<Exchange> ended;
  {
    const std::lock_guard lock(exchanges().mutex);
    std::list<Exchange>& all = exchanges().of_groups;
    for (auto each = all.begin(); each != all.end();) {
      const auto here = each++;
      if (here->thread == std::this_thread::get_id()) ended.splice(ended.end(), all, here);
    }
  }
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> operands;
  for (const Exchange& each : ended) operands.insert(operands.end(), each.operands.begin(), each.operands.end());
  if (operands.empty() || order_behind(work, operands, "a group of c10d's calls", Kind::exchange)) return;
  const std::lock_guard lock(exchanges().mutex);
  exchanges().of_groups.splice(exchanges().of_groups.end(), ended);
}

}  // namespace vedette::adapter
