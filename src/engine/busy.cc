// Chunks that cannot leave for now: a system call of the program has pinned their pages.
#include <algorithm>

#include "base/assert.h"
#include "engine/engine.h"

namespace vedette {

bool Engine::hide(ChunkIndex c, FrameIndex frame) {
  if (watch_ != nullptr) watch_->hiding(c);
  if (memory_->hide(c, frame)) return true;
  if (watch_ != nullptr) watch_->shown(c, chunks_[c].holds > 0);
  set_busy(c);
  return false;
}

void Engine::set_busy(ChunkIndex c) {
  if (chunks_[c].busy) return;
  chunks_[c].busy = true;
  if (busy_.empty()) retry_at_ = program_.now() + busy_pause_;
  busy_.push_back(c);
}

// A chunk whose pages a transfer of the program has pinned is passed over, for a pause that grows. The transfer may
// itself wait for a chunk that finds no room: pread(2) into several chunks pins those it has reached.
void Engine::retry_busy() {
  if (busy_.empty()) {
    busy_pause_ = first_busy_pause;
    return;
  }
  if (program_.now() < retry_at_) return;
  std::vector<ChunkIndex> again;
  again.swap(busy_);
  for (const ChunkIndex c : again) {
    Chunk& chunk = chunks_[c];
    chunk.busy = false;
    if (chunk.state == ChunkState::idle) idle_push(c);
  }
  arrived_.notify_all();  // a dead one is room
  busy_pause_ = std::min(Nanoseconds{busy_pause_.value * 2}, longest_busy_pause);
}

bool Engine::waits_for_busy() {
  constexpr Nanoseconds for_good{60'000'000'000};  // no single transfer of a chunk takes a minute
  constexpr Nanoseconds until_paged{1'000'000'000};
  if (busy_.empty()) return false;
  const Nanoseconds now = program_.now();
  if (!busy_since_) busy_since_ = now;
  if (in_op_ && !op_paged_ && now - *busy_since_ > until_paged) return false;  // operands may leave, too
  if (now - *busy_since_ > for_good)
    die("no chunk can make room since the pages of all stay pinned (by a system call that needs more of them at once "
        "than the budget, or registered for I/O or for a device); use a larger budget or keep such memory resident");
  return true;
}

}  // namespace vedette
