// The migrator: one thread that starts and completes every move between fast memory and the store. What is wanted now
// goes first, then what the plan evicts, then room for who waits, then what the plan fetches.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/room_for_reads.h"
#include "engine/engine.h"

namespace vedette {
namespace {

// How planned moves of one direction start: up to `group` in one submission, when at most `refill_at` are in flight,
// never more than `most`. What is submitted together ends together, each request more holds a frame that nobody can use
// and delays who waits, and each group wakes the migrator.
struct Pace {
  std::uint32_t most, refill_at, group;
};
// Reads, where two keep the disk as busy as many do (2 MiB each here: 1, 2, 3, 4, 6 in flight
// read 2.59, 2.57, 2.44, 2.33, 2.28 GB/s and take 0.8, 1.6, 3.4, 3.6, 7.3 ms; fio, medians): an op waits for the one
// chunk it lacks and for no others.
constexpr Pace one_by_one{.most = 2, .refill_at = 1, .group = 1};
// Else, and writes, beside a computation: one request of 2 MiB alone takes some 90 us of the machine's two cores
// (submission, interrupt, waking the migrator), one of four that go together 25 us.
constexpr Pace unhurried{.most = 6, .refill_at = 3, .group = 6};
// The same while the program waits for the disk, which idles between groups that end together: two in turns keep it
// busy.
constexpr Pace awaited{.most = 4, .refill_at = 2, .group = 2};

}  // namespace

void Engine::run() noexcept {
  std::unique_lock lock(mutex_);
  register_frames();
  speed_ = measure();
  arrived_.notify_all();
  while (!stop_) turn(lock);
}

void Engine::run_once() noexcept {
  VEDETTE_ASSERT(by_hand_);
  std::unique_lock lock(mutex_);
  turn(lock);
}

void Engine::turn(std::unique_lock<std::mutex>& lock) noexcept {
  retry_busy();
  pump();
  if (!requests_.empty()) {  // the next group is another submission
    batch_.swap(requests_);
    requests_.clear();
    lock.unlock();
    store_->submit(batch_);
    lock.lock();
    return;
  }
  std::array<StoreCompletion, 64> done;
  sleeping_ = true;
  const Nanoseconds timeout = busy_.empty() ? Nanoseconds{1'000'000'000} : busy_pause_;
  lock.unlock();
  const std::size_t count = store_->wait(done, timeout);
  lock.lock();
  sleeping_ = false;
  for (std::size_t i = 0; i < count; ++i) complete(done[i]);
  if (count > 0) arrived_.notify_all();
}

// Where frames keep their pages pinned across moves, the kernel need not look them up for every transfer.
void Engine::register_frames() {
  if (!register_frames_ || !memory_->reach().keeps_buffers || frame_count_ == 0) return;
  std::byte* const first = memory_->parked({0});
  for (FrameIndex f{1}; f.value < frame_count_; ++f.value)
    if (memory_->parked(f) != first + f.value * chunk_bytes_.value)
      return;  // not one range: transfers go on unregistered
  store_->register_memory(first, {frame_count_ * chunk_bytes_.value});
  registered_ = true;
}

// Writes, reads and alternates both over slots nobody uses yet, each slot six times: what a plan may count on. Then
// reads two at a time: what the pace of reads rests on. Some 0.25 s on a disk of 3 GB/s.
LinkSpeed Engine::measure() noexcept {
  const std::uint32_t width = std::min({store_->depth(), frame_count_, 16u});
  LinkSpeed speed;
  std::array<StoreCompletion, 64> done;
  if (!store_->reserve(width)) return speed;  // disk full: the first allocation will say so
  const auto pass = [&](std::uint32_t requests, std::uint32_t at_once, auto direction_of) {
    const Nanoseconds began = program_.now();
    std::uint32_t submitted = 0, completed = 0;
    std::vector<std::uint32_t> ready;
    for (std::uint32_t f = 0; f < at_once; ++f) ready.push_back(f);
    while (completed < requests) {
      std::vector<StoreRequest> batch;
      while (!ready.empty() && submitted < requests) {
        const std::uint32_t f = ready.back();
        ready.pop_back();
        batch.push_back(
            {.direction = direction_of(submitted++), .slot = {f}, .memory = memory_->parked({f}), .token = f});
      }
      store_->submit(batch);
      const std::size_t count = store_->wait(done, {1'000'000'000});
      for (std::size_t i = 0; i < count; ++i) ready.push_back(static_cast<std::uint32_t>(done[i].token));
      completed += static_cast<std::uint32_t>(count);
    }
    const double seconds = static_cast<double>((program_.now() - began).value) * 1e-9;
    return static_cast<std::uint64_t>(static_cast<double>(requests * chunk_bytes_.value) / seconds);
  };
  using enum StoreRequest::Direction;
  const auto at_full_width = [&](auto direction_of) { return pass(6 * width, width, direction_of); };
  // the first write of a slot is slower: the file system fills its map
  at_full_width([](std::uint32_t) { return write; });
  speed.write = at_full_width([](std::uint32_t) { return write; });
  speed.read = at_full_width([](std::uint32_t) { return read; });
  speed.mixed = at_full_width([](std::uint32_t i) { return i % 2 == 0 ? read : write; });
  const std::uint64_t two_at_a_time =
      pass(2 * width, std::min(width, one_by_one.most), [](std::uint32_t) { return read; });
  if (!reads_one_by_one_) reads_one_by_one_ = two_at_a_time > speed.read / 10 * 9;
  return speed;
}

void Engine::kick() {
  if (!sleeping_) return;
  sleeping_ = false;
  store_->wake();
}

void Engine::pump() {
  start_urgent();
  start_planned_evictions();
  make_room();
  start_planned_fetches();
  counters_.resident_max_bytes =
      std::max(counters_.resident_max_bytes, std::uint64_t{frame_count_ - available()} * chunk_bytes_.value);
}

std::size_t Engine::waiting_need() const noexcept { return waiting_frames_ + urgent_.size(); }

std::uint32_t Engine::promised() const noexcept {
  if (!in_op_ || op_paged_ || op_events_ >= op_needs_.size()) return 0;
  return op_needs_[op_events_];
}

bool Engine::room_impossible() const noexcept {
  return available() == 0 && busy_.empty() && evicting_ == 0 && in_flight_ == 0 && !has_victim();
}

bool Engine::may_be_unbacked() const noexcept { return op_paged_ && !write_error_ && !room_impossible(); }

// Waking the migrator interrupts a thread that computes, so nobody does it for what it will see by itself: it comes
// back with the next completion, and then starts all that has gathered in one system call.
bool Engine::can_start() const noexcept {
  if (waiting_need() > 0) return true;
  return (!evictions_.empty() && writes_in_flight_ == 0 && !writes_wait()) ||
         (!fetches_.empty() && in_flight_ == writes_in_flight_ && available() > promised());
}

void Engine::start_urgent() {
  bool came = false;
  while (!urgent_.empty() && in_flight_ < store_->depth()) {
    const ChunkIndex c = urgent_.front();
    Chunk& chunk = chunks_[c];
    const bool unbacked = chunk.state == ChunkState::unbacked;
    if (!unbacked && (chunk.state != ChunkState::away || chunk.live == 0)) {
      urgent_.pop_front();  // it came, died, or will be shown when its write ends
      continue;
    }
    if (unbacked) {
      if (!back(c)) break;
      chunk.wanted = false;
      came = true;
    } else {
      const auto frame = take_parked();
      if (!frame) break;
      start_fetch(c, *frame, MoveCause::urgent);
    }
    urgent_.pop_front();
  }
  if (came) arrived_.notify_all();
}

std::uint32_t Engine::planned_start(StoreRequest::Direction direction) const noexcept {
  const bool read = direction == StoreRequest::Direction::read;
  const std::uint32_t in_flight = read ? in_flight_ - writes_in_flight_ : writes_in_flight_;
  const Pace pace = read && reads_one_by_one_.value_or(false) ? one_by_one
                    : op_waits_ || waiting_frames_ > 0        ? awaited
                                                              : unhurried;
  return in_flight > pace.refill_at ? 0 : std::min(pace.group, pace.most - in_flight);
}

// One disk serves both directions, so a write that nobody needs yet slows down reads that somebody will.
bool Engine::writes_wait() const noexcept {
  return (!fetches_.empty() || in_flight_ > writes_in_flight_) && waiting_need() == 0 &&
         available() > promised() + room_for_reads;
}

// Goes once through the whole queue: what has to wait keeps its place in it.
void Engine::start_planned_evictions() {
  std::uint32_t most = planned_start(StoreRequest::Direction::write);
  if (most == 0) return;
  const bool wait = writes_wait();
  for (std::size_t looked_at = evictions_.size(); looked_at > 0; --looked_at) {
    const ChunkIndex c = evictions_.front();
    evictions_.pop_front();
    Chunk& chunk = chunks_[c];
    if (!chunk.leaving) continue;  // needed again meanwhile
    const bool will_be_written = !chunk.unchanged;
    const bool slot_in_use = chunk.slot_busy && chunk.state == ChunkState::resident && chunk.live > 0;
    if (most == 0 || in_flight_ >= store_->depth() || (wait && will_be_written) || slot_in_use) {
      evictions_.push_back(c);
      continue;
    }
    chunk.leaving = false;
    if (start_eviction(c, MoveCause::planned)) --most;
  }
}

void Engine::start_planned_fetches() {
  std::uint32_t most = planned_start(StoreRequest::Direction::read);
  while (!fetches_.empty() && most > 0 && in_flight_ < store_->depth() && waiting_need() == 0 &&
         available() > promised()) {
    const ChunkIndex c = fetches_.front();
    fetches_.pop_front();
    Chunk& chunk = chunks_[c];
    if (chunk.live == 0) continue;
    chunk.leaving = false;
    if (chunk.state == ChunkState::hidden || chunk.state == ChunkState::covered) bring_forth(c);
    if (chunk.state == ChunkState::evicting) chunk.wanted = true;  // needed again before its write ended: it stays
    if (chunk.state != ChunkState::away) continue;
    const auto frame = take_parked();
    if (!frame) {
      fetches_.push_front(c);
      break;
    }
    start_fetch(c, *frame, MoveCause::planned);
    --most;
  }
}

void Engine::make_room() {
  while (waiting_need() > available() + evicting_ && in_flight_ < store_->depth()) {
    const std::vector<ChunkIndex> leaving =
        victims(std::min<std::size_t>(waiting_need() - available() - evicting_, store_->depth() - in_flight_));
    for (const ChunkIndex c : leaving) start_eviction(c, MoveCause::room);
    if (!leaving.empty()) continue;
    if (evicting_ != 0 || in_flight_ != 0 || available() != 0) break;
    if (waits_for_busy()) return;
    if (in_op_ && !op_paged_) go_paged();
    arrived_.notify_all();
    const bool once_more = (op_paged_ && has_victim()) || (!urgent_.empty() && try_writes_again());
    if (!once_more) return;
  }
  busy_since_.reset();
}

// Somebody waits for bytes and no chunk that could make room can be written. A passing error goes away; else the wait
// would never end.
bool Engine::try_writes_again() {
  if (!write_error_) return false;
  constexpr std::uint32_t most_rounds = 3;
  if (++rounds_of_writes_ > most_rounds)
    die((write_error_->message + "; bytes that are needed now find no room, so the program ends here").c_str());
  forgive_writes();
  return has_victim();
}

void Engine::forgive_writes() {
  if (!std::exchange(writes_failed_, false)) return;
  for (const ChunkIndex c : used()) chunks_[c].write_failed = false;
}

bool Engine::has_victim() const {
  return std::any_of(chunks_.begin(), chunks_.begin() + high_.value,
                     [&](const Chunk& chunk) { return may_leave(chunk); });
}

std::vector<ChunkIndex> Engine::victims(std::size_t most) const {
  const std::uint64_t recent = std::max(frame_count_ / 4, 4u);
  const auto cycles = [&](const Chunk& c) {
    return (op_paged_ && c.op_serial == op_serial_) || (c.fault > 0 && c.fault + recent > faults_);
  };
  const auto before = [&](ChunkIndex first, ChunkIndex second) {
    const Chunk &a = chunks_[first], &b = chunks_[second];
    // What has arrived and was not used yet is what the plan needs next.
    const bool a_arrived = a.state == ChunkState::arrived, b_arrived = b.state == ChunkState::arrived;
    if (a_arrived != b_arrived) return b_arrived;
    // Who runs on faults cycles through chunks: first in, first out, or the one just fetched would leave again. One
    // instruction may need two of them at once, and its own plan may say that nobody needs them for long.
    const bool a_cycles = cycles(a), b_cycles = cycles(b);
    if (a_cycles != b_cycles) return b_cycles;
    if (a_cycles) return a.arrival < b.arrival;
    if (a.next_use != b.next_use) return a.next_use > b.next_use;
    if (a.last_use != b.last_use) return a.last_use < b.last_use;
    return a.arrival != b.arrival ? a.arrival < b.arrival : first < second;
  };
  std::vector<ChunkIndex> found;
  for (const ChunkIndex c : used()) {
    if (may_leave(chunks_[c])) found.push_back(c);
  }
  const std::size_t count = std::min(most, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(), before);
  found.resize(count);
  return found;
}

bool Engine::start_eviction(ChunkIndex c, MoveCause cause) {
  Chunk& chunk = chunks_[c];
  if (!may_leave(chunk)) return false;
  const FrameIndex f = chunk.frame;
  const Nanoseconds now = program_.now();
  if (chunk.state == ChunkState::arrived) {  // nobody could write there: its slot has it
    become(c, ChunkState::away);
    free_frame(f);
    counters_.bytes_dropped += chunk_bytes_.value;
    if (observer_ != nullptr)
      observer_->moved({.verb = Verb::drop,
                        .cause = cause,
                        .chunk = c.value,
                        .bytes = chunk_bytes_,
                        .issued = now,
                        .started = now,
                        .ended = now});
    arrived_.notify_all();
    return true;
  }
  if (chunk.state == ChunkState::resident && !hide(c, f)) return false;
  if (chunk.state == ChunkState::covered) chunk.touched = true;  // a later touch cannot be seen
  become(c, ChunkState::evicting);
  chunk.wanted = false;
  chunk.slot_busy = true;
  Frame& frame = frames_[f];
  frame.io = Frame::Io::write;
  frame.chunk = c;
  frame.cause = cause;
  frame.issued = frame.started = now;
  requests_.push_back(
      {.direction = StoreRequest::Direction::write, .slot = {c.value}, .memory = memory_->parked(f), .token = f.value});
  ++in_flight_;
  ++writes_in_flight_;
  return true;
}

void Engine::start_fetch(ChunkIndex c, FrameIndex f, MoveCause cause) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(!chunk.slot_busy);
  become(c, ChunkState::fetching);
  chunk.frame = f;
  chunk.slot_busy = true;
  Frame& frame = frames_[f];
  frame.owned = true;
  frame.chunk = c;
  frame.io = Frame::Io::read;
  frame.cause = cause;
  frame.issued = frame.started = program_.now();
  requests_.push_back({.direction = StoreRequest::Direction::read,
                       .slot = {c.value},
                       .memory = memory_->parked(f),
                       .token = f.value,
                       .remember = chunk.unchanged});
  ++in_flight_;
}

void Engine::complete(const StoreCompletion& completion) {
  const FrameIndex f{static_cast<std::uint32_t>(completion.token)};
  Frame& frame = frames_[f];
  VEDETTE_ASSERT(frame.io != Frame::Io::none);
  const bool read = frame.io == Frame::Io::read;
  frame.io = Frame::Io::none;
  --in_flight_;
  writes_in_flight_ -= read ? 0 : 1;
  chunks_[frame.chunk].slot_busy = false;
  if (completion.error == 0) {
    const Verb verb = read ? Verb::fetch : completion.spared ? Verb::drop : Verb::evict;
    (read                ? counters_.bytes_in
     : completion.spared ? counters_.bytes_dropped
                         : counters_.bytes_out) += chunk_bytes_.value;
    if (observer_ != nullptr)
      observer_->moved({.verb = verb,
                        .cause = frame.cause,
                        .chunk = frame.chunk.value,
                        .bytes = chunk_bytes_,
                        .issued = frame.issued,
                        .started = frame.started,
                        .ended = program_.now()});
  }
  if (!frame.owned) {  // its chunk died meanwhile
    free_.push_back(f);
    return;
  }
  if (read) {
    complete_read(f, completion.error);
  } else {
    complete_write(f, completion.error);
  }
}

void Engine::complete_read(FrameIndex f, int error) {
  Frame& frame = frames_[f];
  const ChunkIndex c = frame.chunk;
  Chunk& chunk = chunks_[c];
  if (error != 0) {
    constexpr std::uint8_t most_attempts = 3;  // a passing error (EAGAIN, EINTR) goes away; a third one will not
    if (++chunk.failed_reads >= most_attempts) {
      const std::string what = describe_ ? describe_(c) : "chunk " + std::to_string(c.value);
      const std::string cause =
          error == EBADMSG ? "they are not the bytes that were written there (checksum)" : std::strerror(error);
      const std::string sentence = "reading " + what + " back from the slow tier: " + cause +
                                   "; its bytes are lost and somebody needs them, so the program ends here";
      die(sentence.c_str());
    }
    become(c, ChunkState::away);
    free_frame(f);
    chunk.wanted = false;
    request(c);
    return;
  }
  chunk.failed_reads = 0;
  become(c, ChunkState::arrived);
  if (chunk.wanted || watch_ != nullptr) bring_forth(c);
}

void Engine::complete_write(FrameIndex f, int error) {
  const ChunkIndex c = frames_[f].chunk;
  Chunk& chunk = chunks_[c];
  if (error != 0) {
    write_error_ = Error{.cause = Cause::system,
                         .message = "writing to the slow tier: " + std::string(std::strerror(error)) +
                                    "; free space or choose another directory",
                         .errno_value = error};
    if (!error_) error_ = write_error_;
  } else {
    write_error_.reset();
    rounds_of_writes_ = 0;
  }
  if (error != 0 || chunk.wanted) {  // it stays: nothing was lost
    chunk.write_failed = error != 0;
    writes_failed_ = writes_failed_ || chunk.write_failed;
    show(f, c);
    become(c, ChunkState::resident);
    chunk.wanted = false;
    return;
  }
  become(c, ChunkState::away);
  free_frame(f);
}

}  // namespace vedette
