// Chunks and memory: a chunk is shown or hidden, and gets a frame or gives it back.
#include "base/assert.h"
#include "engine/engine.h"

namespace vedette {

void Engine::pin(ChunkIndex c) {
  make_resident(c);
  books_.pin(c);
}

void Engine::show(FrameIndex frame, ChunkIndex c) {
  memory_->show(frame, c);
  if (watch_ != nullptr) watch_->shown(c, books_[c].holds > 0);
}

bool Engine::hide(ChunkIndex c, FrameIndex frame) {
  VEDETTE_ASSERT(!quick_.calm() || books_[c].live == 0);  // disturb() came before
  if (watch_ != nullptr) watch_->hiding(c);
  if (memory_->hide(c, frame)) return true;
  if (watch_ != nullptr) watch_->shown(c, books_[c].holds > 0);
  set_busy(c);
  return false;
}

void Engine::set_busy(ChunkIndex c) {
  if (books_[c].busy) return;
  books_.set_busy(c);
  busy_.add(c, program_.now());
}

// A chunk whose pages a transfer of the program has pinned is passed over. The transfer may itself wait for a chunk
// that finds no room: pread(2) into several chunks pins those it has reached.
void Engine::retry_busy() {
  const std::vector<ChunkIndex> again = busy_.due(busy_.empty() ? Nanoseconds{} : program_.now());
  if (again.empty()) return;
  for (const ChunkIndex c : again) books_.clear_busy(c);
  give_frames_back();
  arrived_.notify_all();  // a dead one is room
}

bool Engine::waits_for_busy() {
  constexpr Nanoseconds for_good{60'000'000'000};  // no single transfer of a chunk takes a minute
  constexpr Nanoseconds until_paged{1'000'000'000};
  if (busy_.empty()) return false;
  const Nanoseconds waited = busy_.room_awaited(program_.now());
  if (books_.in_op() && !books_.paged() && waited > until_paged) return false;  // operands may leave, too
  if (waited > for_good)
    die("no chunk can make room since the pages of all stay pinned (by a system call that needs more of them at once "
        "than the budget, or registered for I/O or for a device); use a larger budget or keep such memory resident");
  return true;
}

void Engine::hide_ahead(ChunkIndex c) {
  if (books_[c].state != ChunkState::resident || !books_.may_leave(c) || watch_ != nullptr) return;
  if (hide(c, books_[c].frame)) books_.hidden(c);
}

void Engine::make_resident(ChunkIndex c) {
  if (!parked(books_[c].state)) return;
  show(books_[c].frame, c);
  books_.shown(c);
}

void Engine::make_resident_all() {
  for (const ChunkIndex c : books_.used()) make_resident(c);
}

std::optional<FrameIndex> Engine::take_free() {
  const auto frame = books_.take_free();
  const FramePool& pool = books_.pool();
  if (pool.unmade() > 0 && pool.ready() < ready_wanted()) maker_.wanted.notify_one();
  return frame;
}

std::optional<FrameIndex> Engine::take_parked() {
  const auto frame = take_free();
  return frame ? frame : take_idle();
}

std::optional<FrameIndex> Engine::take_idle() {
  // dead for the longest time: the least likely to be born again soon
  while (const auto c = books_.longest_idle()) {
    if (hide(*c, books_[*c].frame)) return books_.take_from_idle(*c);
  }
  return std::nullopt;
}

bool Engine::back(ChunkIndex c) {
  if (const auto frame = take_free()) {
    show(*frame, c);
    books_.back(c, *frame);
    return true;
  }
  while (const auto from = books_.longest_idle()) {
    if (watch_ != nullptr) watch_->hiding(*from);
    if (!memory_->shift(*from, c, books_[*from].frame)) {
      if (watch_ != nullptr) watch_->shown(*from, books_[*from].holds > 0);
      set_busy(*from);
      continue;
    }
    if (watch_ != nullptr) watch_->shown(c, books_[c].holds > 0);
    books_.back(c, books_.take_from_idle(*from));
    return true;
  }
  return false;
}

}  // namespace vedette
