#include "engine/books.h"

#include <algorithm>

namespace vedette {

using enum ChunkState;

Books::Books(std::uint32_t chunks, std::uint32_t frames) : count_(chunks), frames_(frames), pool_(frames) {
  chunks_.reserve(chunks);  // of addresses: memory follows the chunks that are used
  uses_.reserve(chunks);
  idle_list_.idle.prev = idle_list_.idle.next = idle_head();
}

Books::Chunk& Books::at(ChunkIndex c) {
  VEDETTE_ASSERT(c < idle_head());
  if (c.value >= chunks_.size()) chunks_.resize(std::min(count_, c.value + 256));
  return chunks_[c];
}

void Books::become(ChunkIndex c, ChunkState next) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(may_become(chunk.state, next));
  if (chunk.state == ChunkState::evicting) --evicting_;
  if (next == ChunkState::evicting) ++evicting_;
  here_ += (here(next) ? 1u : 0u) - (here(chunk.state) ? 1u : 0u);
  if (next == resident && chunk.state != idle) chunk.arrival = ++arrivals_;
  chunk.state = next;
  if (next == resident && !chunk.unchanged && !chunk.slot_busy) give_slot_back(chunk);  // it will be written anyway
}

void Books::may_change(ChunkIndex c) {
  Chunk& chunk = at(c);
  chunk.unchanged = false;
  if (chunk.state == resident && !chunk.slot_busy) give_slot_back(chunk);
}

std::optional<ChunkIndex> Books::owner(FrameIndex frame) const noexcept {
  return frames_[frame].owned ? std::optional(frames_[frame].chunk) : std::nullopt;
}

void Books::want_frames(std::uint32_t frames) {
  pool_.want(frames);
  if (frames_.size() < pool_.ever()) frames_.resize(pool_.ever());
}

// --- tensors ---------------------------------------------------------------------------------------------------------

void Books::birth(ChunkIndex c) {
  if (high_ <= c) high_ = {c.value + 1};
  Chunk& chunk = at(c);
  uses_.born(c);
  if (++chunk.live == 1) {
    ++live_;
    uses_.tell(c, never);
    chunk.strays = 0;
  }
  may_change(c);
  if (chunk.state == idle) {
    if (!chunk.busy) idle_remove(c);
    become(c, resident);
  } else if (chunk.state == empty) {
    become(c, unbacked);
  }
}

bool Books::death(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(chunk.live > 0);
  if (--chunk.live > 0) return false;
  --live_;
  if (operand(chunk) && chunk.holds == 0) --op_pinned_;
  chunk.op_serial = 0;
  chunk.failed_reads = 0;
  chunk.wanted = chunk.leaving = chunk.write_failed = chunk.unchanged = false;
  switch (chunk.state) {
    case resident:
      become(c, idle);
      if (!chunk.busy) idle_push(c);
      break;
    case ChunkState::evicting:
    case fetching:
      frames_[chunk.frame].owned = false;  // the end of the I/O frees it
      become(c, empty);
      break;
    case ChunkState::covered:
    case ChunkState::hidden:
    case arrived:
      give_free(chunk.frame);
      become(c, empty);
      break;
    case away:
    case unbacked:
    case dropped:
      become(c, empty);
      break;
    case in_place:  // the engine takes it back first
    case empty:
    case idle:
      VEDETTE_ASSERT(chunk.live > 0);  // no tensor lived here
  }
  if (!chunk.slot_busy) give_slot_back(chunk);
  return true;
}

void Books::give_slot_back(Chunk& chunk) {
  if (!chunk.slot) return;
  slots_.give_back(*chunk.slot);
  chunk.slot.reset();
}

void Books::hold(ChunkIndex c) {
  Chunk& chunk = at(c);
  if (chunk.holds++ > 0) return;
  ++held_;
  if (operand(chunk)) --op_pinned_;
}

bool Books::release(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(chunk.holds > 0);
  if (--chunk.holds > 0) return false;
  --held_;
  if (operand(chunk) && chunk.live > 0) op_largest_ = std::max(op_largest_, ++op_pinned_);
  return true;
}

// --- the running op --------------------------------------------------------------------------------------------------

void Books::begin_op(Ticks tick) {
  VEDETTE_ASSERT(!in_op_);
  in_op_ = true;
  ++op_serial_;
  uses_.begin_op(tick);
}

void Books::end_op() {
  largest_op_ = std::max(largest_op_, op_largest_ + held_);
  op_pinned_ = op_largest_ = 0;
  in_op_ = paged_ = false;
  ++op_serial_;
}

void Books::pin(ChunkIndex c) {
  Chunk& chunk = at(c);
  uses_.used(c);
  chunk.leaving = false;
  if (chunk.op_serial == op_serial_) return;
  chunk.op_serial = op_serial_;
  if (chunk.holds > 0) return;  // counted in held_
  op_largest_ = std::max(op_largest_, ++op_pinned_);
}

void Books::go_paged() { paged_ = true; }

// --- frames ----------------------------------------------------------------------------------------------------------

void Books::give_free(FrameIndex frame) {
  frames_[frame].owned = false;
  pool_.give(frame);
}

std::optional<ChunkIndex> Books::longest_idle() const noexcept {
  return idle_ > 0 ? std::optional(idle_list_.idle.next) : std::nullopt;
}

std::optional<ChunkIndex> Books::idle_for_a_window() const noexcept {
  const auto c = longest_idle();
  return c && (*this)[*c].idle.since + 1 < window_ ? c : std::nullopt;
}

FrameIndex Books::take_from_idle(ChunkIndex c) {
  idle_remove(c);
  become(c, empty);
  frames_[chunks_[c].frame].owned = false;
  return chunks_[c].frame;
}

void Books::back(ChunkIndex c, FrameIndex frame) {
  VEDETTE_ASSERT(chunks_[c].state == unbacked);
  chunks_[c].frame = frame;
  frames_[frame].owned = true;
  frames_[frame].chunk = c;
  become(c, resident);
}

void Books::set_busy(ChunkIndex c) {
  if (chunks_[c].state == idle && !chunks_[c].busy) idle_remove(c);
  chunks_[c].busy = true;
}

void Books::clear_busy(ChunkIndex c) {
  VEDETTE_ASSERT(chunks_[c].busy);
  chunks_[c].busy = false;
  if (chunks_[c].state == idle) idle_push(c);
}

void Books::idle_push(ChunkIndex c) {
  const ChunkIndex head = idle_head();
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(chunk.state == idle && chunk.live == 0 && !chunk.busy);
  chunk.idle.prev = idle_list_.idle.prev;
  chunk.idle.next = head;
  link(chunk.idle.prev).idle.next = c;
  idle_list_.idle.prev = c;
  chunk.idle.since = window_;
  ++idle_;
}

void Books::idle_remove(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(chunk.state == idle && !chunk.busy);
  link(chunk.idle.prev).idle.next = chunk.idle.next;
  link(chunk.idle.next).idle.prev = chunk.idle.prev;
  --idle_;
}

// --- moves -----------------------------------------------------------------------------------------------------------

void Books::hidden(ChunkIndex c) { become(c, ChunkState::hidden); }

void Books::covered(ChunkIndex c) { become(c, ChunkState::covered); }

void Books::shown(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(parked(chunk.state));
  chunk.wanted = chunk.leaving = false;
  if (chunk.state == ChunkState::covered) chunk.touched = true;
  become(c, resident);
}

void Books::start_fetch(ChunkIndex c, FrameIndex f) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(!chunk.slot_busy && frames_[f].io == Frame::Io::none);
  become(c, fetching);
  chunk.frame = f;
  chunk.slot_busy = true;
  frames_[f] = {.io = Frame::Io::read, .owned = true, .chunk = c};
  ++reads_in_flight_;
}

void Books::start_eviction(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(may_leave(chunk) && frames_[chunk.frame].io == Frame::Io::none);
  if (chunk.state == ChunkState::covered) chunk.touched = true;  // a later touch cannot be seen
  become(c, ChunkState::evicting);
  if (slots_.sparse() && !chunk.unchanged) give_slot_back(chunk);  // a lower one, that the store can shrink
  if (!chunk.slot) chunk.slot = slots_.take();
  chunk.wanted = false;
  chunk.slot_busy = true;
  frames_[chunk.frame].io = Frame::Io::write;
  ++writes_in_flight_;
}

Books::Ended Books::end_io(FrameIndex f) {
  Frame& frame = frames_[f];
  VEDETTE_ASSERT(frame.io != Frame::Io::none);
  const Ended ended{.read = frame.io == Frame::Io::read, .chunk = frame.chunk, .orphan = !frame.owned};
  frame.io = Frame::Io::none;
  --(ended.read ? reads_in_flight_ : writes_in_flight_);
  Chunk& chunk = chunks_[ended.chunk];
  chunk.slot_busy = false;
  if (chunk.live == 0) give_slot_back(chunk);
  if (ended.orphan) pool_.give(f);
  return ended;
}

void Books::fetched(ChunkIndex c) {
  chunks_[c].failed_reads = 0;
  become(c, arrived);
}

std::uint8_t Books::fetch_failed(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  become(c, away);
  give_free(chunk.frame);
  chunk.wanted = false;
  return ++chunk.failed_reads;
}

void Books::evicted(ChunkIndex c) {
  become(c, away);
  give_free(chunks_[c].frame);
}

void Books::stays(ChunkIndex c, bool write_failed) {
  Chunk& chunk = chunks_[c];
  chunk.write_failed = write_failed;
  become(c, resident);
  chunk.wanted = chunk.leaving = false;
}

void Books::forgive_writes() {
  for (const ChunkIndex c : used()) chunks_[c].write_failed = false;
}

void Books::lent(ChunkIndex c) {
  VEDETTE_ASSERT(!chunks_[c].slot_busy);
  chunks_[c].wanted = false;
  become(c, in_place);
}

void Books::taken_back(ChunkIndex c) {
  chunks_[c].lent_to = 0;
  become(c, away);
}

void Books::use_in_place(ChunkIndex c) {
  uses_.used(c);
  chunks_[c].lent_to = op_serial_;
}

void Books::drop(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(may_leave(chunk));
  chunk.wanted = chunk.leaving = chunk.unchanged = false;
  become(c, dropped);
  give_free(chunk.frame);
}

void Books::adopt(ChunkIndex from, ChunkIndex to) {
  VEDETTE_ASSERT(chunks_[from].state == resident && chunks_[to].state == dropped);
  const FrameIndex frame = chunks_[from].frame;
  become(from, dropped);
  frames_[frame].chunk = to;
  chunks_[to].frame = frame;
  chunks_[to].wanted = false;
  become(to, resident);
}

// --- victims ---------------------------------------------------------------------------------------------------------

bool Books::may_leave(const Chunk& chunk) const noexcept {
  const bool here = chunk.state == resident || parked(chunk.state);
  const bool used = chunk.busy || chunk.slot_busy || chunk.births_wait > 0;
  return here && !used && chunk.live > 0 && !pinned(chunk) && !chunk.write_failed;
}

bool Books::has_victim() const noexcept {
  return std::any_of(chunks_.begin(), chunks_.begin() + high_.value,
                     [&](const Chunk& chunk) { return may_leave(chunk); });
}

bool Books::birth_goes_on() const noexcept {
  return std::any_of(chunks_.begin(), chunks_.begin() + high_.value,
                     [](const Chunk& chunk) { return chunk.births_wait > 0 && chunk.state == resident; });
}

bool Books::among_last_faults(const Chunk& chunk, std::uint64_t count) const noexcept {
  return chunk.fault > 0 && chunk.fault + count > faults_;
}

// One instruction may need two operands at once, each over a chunk's edge. It would never end if one of the four left
// for another, whatever the plan needs next.
bool Books::needed_now(const Chunk& chunk) const noexcept { return among_last_faults(chunk, 4); }

// A program that runs on faults cycles through chunks: first in, first out, or the one just fetched would leave again.
bool Books::cycles(const Chunk& chunk) const noexcept {
  const std::uint64_t recent = std::max(frames() / 4, 4u);
  return (paged_ && chunk.op_serial == op_serial_) || among_last_faults(chunk, recent);
}

bool Books::leaves_before(ChunkIndex first, ChunkIndex second) const noexcept {
  const Chunk &a = chunks_[first], &b = chunks_[second];
  const bool a_now = needed_now(a), b_now = needed_now(b);
  if (a_now != b_now) return b_now;
  // A chunk that has arrived and was not used yet is the one that the plan needs next.
  const bool a_arrived = a.state == arrived, b_arrived = b.state == arrived;
  if (a_arrived != b_arrived) return b_arrived;
  const bool a_cycles = cycles(a), b_cycles = cycles(b);
  if (a_cycles != b_cycles) return b_cycles;
  if (a_cycles) return a.arrival < b.arrival;
  if (const Ticks first_use = uses_.known_use(first), second_use = uses_.known_use(second); first_use != second_use)
    return first_use > second_use;
  if (const Ticks a_used = uses_.last_use(first), b_used = uses_.last_use(second); a_used != b_used)
    return a_used < b_used;
  return a.arrival != b.arrival ? a.arrival < b.arrival : first < second;
}

namespace {

template <class Before>
std::vector<ChunkIndex> first_of(std::vector<ChunkIndex> found, std::size_t most, Before before) {
  const std::size_t count = std::min(most, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(), before);
  found.resize(count);
  return found;
}

}  // namespace

std::vector<ChunkIndex> Books::victims(std::size_t most) const {
  return first_of(that_may_leave(), most,
                  [&](ChunkIndex first, ChunkIndex second) { return leaves_before(first, second); });
}

std::vector<ChunkIndex> Books::victims(std::size_t most, const Calendar& step) const {
  return first_of(that_may_leave(), most,
                  [&](ChunkIndex first, ChunkIndex second) { return leaves_before(first, second, step); });
}

std::vector<ChunkIndex> Books::victims_unused_until(Ticks until, const Calendar& step, std::size_t most) const {
  std::vector<ChunkIndex> found = that_may_leave();
  std::erase_if(found,
                [&](ChunkIndex c) { return uses_.is_newborn(c) || chunks_[c].leaving || uses_.until(c) < until; });
  return first_of(std::move(found), most,
                  [&](ChunkIndex first, ChunkIndex second) { return leaves_before(first, second, step); });
}

std::vector<Ticks> Books::uses_to_come() const {
  std::vector<Ticks> uses;
  for (const ChunkIndex c : used()) {
    const Ticks use = uses_.told(c);
    if (chunks_[c].state == ChunkState::away && use >= tick() && use != never) uses.push_back(use);
  }
  return uses;
}

std::vector<ChunkIndex> Books::that_may_leave() const {
  std::vector<ChunkIndex> found;
  for (const ChunkIndex c : used())
    if (may_leave(chunks_[c])) found.push_back(c);
  return found;
}

bool Books::leaves_before(ChunkIndex first, ChunkIndex second, const Calendar& step) const {
  const Chunk &a = chunks_[first], &b = chunks_[second];
  const bool a_cycles = cycles(a), b_cycles = cycles(b);
  if (a_cycles != b_cycles) return b_cycles;
  if (a_cycles) return leaves_before(first, second);
  const auto room = [&](ChunkIndex c) { return uses_.room(c, chunks_[c].unchanged && chunks_[c].slot, step); };
  const Ticks of_first = room(first), of_second = room(second);
  return of_first != of_second ? of_first > of_second : leaves_before(first, second);
}

// --- marks -----------------------------------------------------------------------------------------------------------

void Books::expect_use(ChunkIndex c, Ticks tick, Ticks dead_at) {
  uses_.expect_beside_others({.index = c, .tick = tick, .dead_at = dead_at}, at(c).live == 1);
}

void Books::fault(ChunkIndex c) {
  uses_.used(c);
  at(c).fault = ++faults_;  // else it would be the next to leave, before the thread that waits for it has run
}

}  // namespace vedette
