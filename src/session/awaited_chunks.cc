// The thread behind dropped chunks: see awaited_chunks.h.
#include "session/awaited_chunks.h"

#include <system_error>

#include "base/quiet_thread.h"

namespace vedette::detail {

bool AwaitedChunks::start() {
  try {
    if (!thread_.joinable()) thread_ = start_quiet_thread([this]() noexcept { serve(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void AwaitedChunks::note(ChunkIndex wanted) noexcept {
  const std::lock_guard lock(mutex_);
  wanted_.push_back(wanted);
  noted_.notify_one();
}

void AwaitedChunks::serve() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    noted_.wait(lock, [&] { return stops_ || !wanted_.empty(); });
    if (wanted_.empty()) return;
    const ChunkIndex wanted = wanted_.front();
    wanted_.pop_front();
    lock.unlock();
    make_(wanted);
    lock.lock();
  }
}

void AwaitedChunks::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    noted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace vedette::detail
