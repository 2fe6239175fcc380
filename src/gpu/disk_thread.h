// A thread that moves pieces of pinned memory to and from a store, in the order of begin(). A job is a run of pieces:
// memory that lies together, slots that need not.
//
// What always holds: the store's requests come from the thread alone. A job ends once, with 0 or the first errno of its
// pieces. Its memory stays where it is until then.
//
// Thread rule: begin(), ended() and wait() from one thread at a time.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tier/store.h"

namespace vedette {

class DiskThread {
 public:
  using JobNumber = std::uint64_t;
  struct Job {
    StoreRequest::Direction direction = StoreRequest::Direction::read;
    std::byte* memory = nullptr;  // of as many whole slots as there are pieces
    std::vector<SlotIndex> pieces;
  };

  explicit DiskThread(std::unique_ptr<Store> store);
  ~DiskThread();  // ends begun jobs
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  Bytes piece() const noexcept { return piece_; }
  Result<void> reserve(std::uint32_t slots) { return store_->reserve(slots); }
  JobNumber begin(Job job);
  std::optional<int> ended(JobNumber job);  // once: its error; nullopt: it runs
  int wait(JobNumber job);

 private:
  struct Running {
    Job job;
    std::size_t submitted = 0, completed = 0;
    int error = 0;
  };
  void serve() noexcept;
  void submit_some_unlocking(std::unique_lock<std::mutex>& lock);
  void take_completions() noexcept;

  const std::unique_ptr<Store> store_;
  const Bytes piece_;
  std::mutex mutex_;  // over all that follows
  std::condition_variable changed_;
  std::unordered_map<JobNumber, Running> running_;
  std::unordered_map<JobNumber, int> ended_;
  std::deque<JobNumber> waiting_;  // jobs with pieces that are not submitted
  JobNumber next_ = 1;
  std::uint32_t in_flight_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace vedette
