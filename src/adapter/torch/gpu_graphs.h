// CUDA graphs under a guard of GPU memory. Graphs have addresses, and their replays are announced to no session. So the
// tensors that a capture uses stay in place until the last graph of its pool is gone, and the device idle. Allocations
// of a capture are libtorch's own memory, as without a guard.
//
// Operators of a capture are no ops of the session, which hears of another stream as the current one meanwhile: no
// event of ours is in a graph. The host waits for what had to be fetched when the capture has ended.
//
// A pool is the name that libtorch's allocator has for the memory of one graph, or of several that share it. Thread
// rule: any thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "vedette/units.h"

namespace vedette::adapter {

class GpuStorages;

// Where this thread's current stream is captured: the tensors are kept for the graph. False: it is not.
bool keep_if_captured(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments);
// For a graph of this pool that is captured later, whose program notes the storage's address now. Nothing, where no
// guard of GPU memory lives. Thread rule: a thread that runs no operator.
void keep_for_graph(c10::StorageImpl& storage, c10::MempoolId_t pool);

class GpuGraphs {
 public:
  using Pool = c10::MempoolId_t;
  static GpuGraphs& instance();

  // An operator that this thread captures uses the storage. Beyond half of the budget it becomes libtorch's own memory,
  // for good. Ends the process with a sentence where there is no room either.
  void keep(GpuStorages& gpu, c10::StorageImpl& storage, Pool pool);
  // The storage's memory, which may be libtorch's own, is in a living graph: it may not be exchanged.
  bool uses(const c10::StorageImpl& storage) const;
  // Memory with this context has been freed, or has another one. Any thread.
  void forget(const void* context) noexcept;
  // The sentence for the first capture that has ended since tell_again(); empty: none.
  std::string ended(Pool pool, std::uint64_t bytes_of_pool, Bytes budget);
  void tell_again();  // a guard opens
  // No graph of the pool lives any more, and the device has done its replays. The session's names of what was kept.
  std::vector<const void*> died(Pool pool);

 private:
  struct Uses {
    std::unordered_set<const void*> known;  // contexts of memory that was seen
    std::vector<const void*> names;
    std::vector<std::shared_ptr<void>> tables;
    std::uint64_t bytes = 0, beside = 0;
  };
  std::atomic<bool> any_ = false;  // a pool; relaxed: a context is known, and forgotten, in one order by its storage
  mutable std::mutex mutex_;       // no call of the session is made under it
  std::map<Pool, Uses> pools_;
  bool told_ = false;
};

}  // namespace vedette::adapter
