// Host tensors that queued work reads or writes. A reference to one may need Python's lock (GIL), also where it is not
// the last, and a thread that has the lock may wait for the stream. So the work has aliases that own nothing, and a
// thread of the program lets go of the tensors, with the next operator.
//
// Thread rule: any thread of the program.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace vedette::simulated {

class HostTensors {
 public:
  using Done = std::shared_ptr<std::atomic<bool>>;
  void keep(std::vector<at::Tensor> tensors, const Done& done);  // until it is done
  void let_go();                                                 // of those whose work is done

 private:
  struct Kept {
    Done done;
    std::vector<at::Tensor> tensors;
  };
  std::mutex guard_;
  std::vector<Kept> kept_;
};

inline void HostTensors::keep(std::vector<at::Tensor> tensors, const Done& done) {
  if (tensors.empty()) return;
  const std::lock_guard lock(guard_);
  kept_.push_back({done, std::move(tensors)});
}

inline void HostTensors::let_go() {
  std::vector<Kept> over;  // they go without the lock
  const std::lock_guard lock(guard_);
  const auto done = std::stable_partition(kept_.begin(), kept_.end(), [](const Kept& each) { return !*each.done; });
  std::move(done, kept_.end(), std::back_inserter(over));
  kept_.erase(done, kept_.end());
}

inline HostTensors& host_tensors() {
  static auto* const all = new HostTensors;  // for ever: Python may be gone before
  return *all;
}

}  // namespace vedette::simulated
