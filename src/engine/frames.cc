#include "engine/frames.h"

#include <algorithm>

#include "base/assert.h"

namespace vedette::engine {
namespace {

constexpr Bytes least_ready = 8_MiB;   // ahead of need
constexpr Bytes most_ready = 128_MiB;  // residency follows use

}  // namespace

void Frames::pin(ChunkIndex c) {
  make_resident(c);
  books_.pin(c);
}

void Frames::show(FrameIndex frame, ChunkIndex c) {
  memory_->show(frame, c);
  if (watch_ != nullptr) watch_->shown(c, books_[c].holds > 0);
}

bool Frames::hide(ChunkIndex c, FrameIndex frame) {
  VEDETTE_ASSERT(!quick_.calm() || books_[c].live == 0);  // disturb() came before
  if (watch_ != nullptr) watch_->hiding(c);
  if (memory_->hide(c, frame)) return true;
  if (watch_ != nullptr) watch_->shown(c, books_[c].holds > 0);
  set_busy(c);
  return false;
}

void Frames::set_busy(ChunkIndex c) {
  if (books_[c].busy) return;
  books_.set_busy(c);
  busy_.add(c, program_.now());
}

bool Frames::retry_busy() {
  const std::vector<ChunkIndex> again = busy_.due(busy_.empty() ? Nanoseconds{} : program_.now());
  for (const ChunkIndex c : again) books_.clear_busy(c);
  return !again.empty();
}

bool Frames::waits_for_busy() {
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

void Frames::hide_ahead(ChunkIndex c) {
  if (books_[c].state != ChunkState::resident || !books_.may_leave(c) || watch_ != nullptr) return;
  if (hide(c, books_[c].frame)) books_.hidden(c);
}

void Frames::make_resident(ChunkIndex c) {
  if (!parked(books_[c].state)) return;
  show(books_[c].frame, c);
  books_.shown(c);
}

void Frames::make_resident_all() {
  for (const ChunkIndex c : books_.used()) make_resident(c);
}

void Frames::wake(ChunkIndex c) {
  if (Faults* const faults = memory_->faults(); faults != nullptr) faults->wake(c);
}

void Frames::restore(const Fault& fault) {
  Faults* const faults = memory_->faults();
  if (faults == nullptr) return;
  const Books::Chunk& chunk = books_[fault.chunk];
  faults->restore(fault, shown(chunk.state) ? std::optional(chunk.frame) : std::nullopt);
}

// --- frames ----------------------------------------------------------------------------------------------------------

// The most that a program may take before the maker has run: an eighth of all it has taken, so that a large one finds
// enough.
std::uint32_t Frames::ready_wanted() const noexcept {
  if (by_hand_) return 0;  // no thread makes any
  const auto in_chunks = [&](Bytes bytes) { return std::max<std::uint64_t>(bytes.value / chunk_bytes_.value, 1); };
  const std::uint64_t used = books_.frames() - std::min(books_.frames(), books_.available());
  return static_cast<std::uint32_t>(std::clamp(used / 8, in_chunks(least_ready), in_chunks(most_ready)));
}

std::uint32_t Frames::spare() const noexcept {
  const std::uint32_t ready = books_.pool().ready();
  return ready - std::min(ready, ready_wanted());
}

std::optional<FrameIndex> Frames::take_free() {
  const auto frame = books_.take_free();
  const FramePool& pool = books_.pool();
  if (pool.unmade() > 0 && pool.ready() < ready_wanted()) wanted_.notify_one();
  return frame;
}

std::optional<FrameIndex> Frames::take_parked() {
  const auto frame = take_free();
  return frame ? frame : take_idle();
}

std::optional<FrameIndex> Frames::take_idle() {
  // dead for the longest time: the least likely to be born again soon
  while (const auto c = books_.longest_idle()) {
    if (hide(*c, books_[*c].frame)) return books_.take_from_idle(*c);
  }
  return std::nullopt;
}

bool Frames::shift(ChunkIndex from, ChunkIndex to) {
  if (watch_ != nullptr) watch_->hiding(from);
  const bool shifted = memory_->shift(from, to, books_[from].frame);
  const ChunkIndex shown_at = shifted ? to : from;
  if (watch_ != nullptr) watch_->shown(shown_at, books_[shown_at].holds > 0);
  return shifted;
}

// A frame that goes from a dead chunk straight to another one may be taken back half way, when a page is busy: with
// what a thread has written into the first pages. So one comes by way of parking where threads may write.
bool Frames::back(ChunkIndex c, bool in_use) {
  if (const auto frame = in_use ? take_parked() : take_free()) {
    show(*frame, c);
    books_.back(c, *frame);
    return true;
  }
  if (in_use) return false;
  while (const auto from = books_.longest_idle()) {
    if (!shift(*from, c)) {
      set_busy(*from);
      continue;
    }
    books_.back(c, books_.take_from_idle(*from));
    return true;
  }
  return false;
}

// --- the watch -------------------------------------------------------------------------------------------------------

void Frames::set_watch(FrameWatch* watch) noexcept {
  FrameWatch* const told = watch != nullptr ? watch : watch_;
  for (const ChunkIndex c : told != nullptr ? books_.used() : ChunkRange()) {
    if (!shown(books_[c].state)) continue;
    watch != nullptr ? told->shown(c, books_[c].holds > 0) : told->hiding(c);
  }
  watch_ = watch;
}

void Frames::tell_hold(ChunkIndex c) {
  if (watch_ == nullptr || !shown(books_[c].state)) return;
  watch_->hiding(c);
  watch_->shown(c, books_[c].holds > 0);
}

void Frames::tell(const Fault& fault) {
  if (watch_ != nullptr) watch_->faulted(fault.chunk, fault.page, fault.write);
}

}  // namespace vedette::engine
