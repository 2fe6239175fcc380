// Works of NCCL's: see stream_works.h.
#include "adapter/torch/stream_works.h"

#include <ATen/core/class_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "adapter/torch/gpu_addresses.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/storages.h"
#include "base/assert.h"

namespace vedette::adapter {
namespace {

struct Exchanges {
  std::mutex mutex;  // no call of the session is made under it
  std::list<HeldStorages> held;
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

// Stands for NCCL's own streams, which c10d keeps to itself. All works of the process are behind each other there, as
// they are on a communicator's stream.
c10::Stream behind_works() {
  static std::mutex mutex;
  static auto* const streams =
      new std::map<c10::Device, c10::Stream,
                   decltype([](c10::Device a, c10::Device b) { return a.index() < b.index(); })>;
  const c10::Device device = GpuStorages::device();
  const std::lock_guard lock(mutex);
  if (const auto known = streams->find(device); known != streams->end()) return known->second;
  return streams->emplace(device, c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(device))
      .first->second;
}

// A work lets go of its operands when a stream waits for it; with libtorch 2.15 when its future is asked for. So
// libtorch's own memory among them is recorded, too.
void order_behind(c10d::Work& work, const std::vector<c10::intrusive_ptr<c10::StorageImpl>>& operands,
                  const char* function) {
  const c10::Stream behind = behind_works();
  {
    const c10::StreamGuard on(behind);  // the current stream goes on
    const auto future = work.getFuture();
    if (!future->completed())
      die((std::string(function) +
           " communicates a tensor of a guard of GPU memory by a backend whose work no stream orders; use nccl")
              .c_str());
    future->wait();  // the stream does, not the host
  }
  const c10::impl::VirtualGuardImpl device(c10::kCUDA);
  for (const auto& operand : operands) device.recordDataPtrOnStream(operand->data_ptr(), behind);
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
  if (is_an_exchange(function_)) {
    std::vector<c10::StorageImpl*> wanted;
    for (const auto& operand : operands_) wanted.push_back(operand.get());
    std::list<HeldStorages> held;
    held.emplace_back(wanted);
    const std::lock_guard lock(exchanges().mutex);
    exchanges().held.splice(exchanges().held.end(), held);
  } else if (work != nullptr) {  // else it ran on the current stream
    order_behind(*work, operands_, function_);
  }
}

void let_exchanges_go() noexcept {
  std::list<HeldStorages> ended;
  const std::lock_guard lock(exchanges().mutex);
  ended.swap(exchanges().held);
  // They end after the lock: `ended` was made before it.
}

}  // namespace vedette::adapter
