// Dropped chunks that threads wait for: a thread of the session makes them, one after the other.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "os/chunk_index.h"

namespace vedette::detail {

class AwaitedChunks {
 public:
  using Make = std::function<void(ChunkIndex)>;  // called by the thread, without a lock
  explicit AwaitedChunks(Make make) : make_(std::move(make)) {}
  ~AwaitedChunks() { stop(); }

  bool start();                           // false: there is no thread
  void note(ChunkIndex wanted) noexcept;  // with any lock held
  void stop() noexcept;                   // when nothing is dropped any more

 private:
  void serve() noexcept;

  const Make make_;
  std::mutex mutex_;  // over all that follows but the thread
  std::condition_variable noted_;
  std::deque<ChunkIndex> wanted_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace vedette::detail
