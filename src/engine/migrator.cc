#include "engine/migrator.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/quiet_thread.h"

namespace vedette::engine {

void Migrator::start(bool register_frames) {
  thread_ = start_quiet_thread([this, register_frames]() noexcept { run(register_frames); });
}

void Migrator::join() {
  if (!thread_.joinable()) return;
  slow_.wake();
  thread_.join();
}

void Migrator::run(bool register_all) noexcept {
  if (register_all) register_frames();
  std::unique_lock lock(mutex_);
  slow_.measure();
  arrived_.notify_all();
  while (!ends_) turn_unlocking(lock);
  slow_.finish();
}

// Where frames keep their pages pinned across moves, the kernel need not look them up for every transfer. It looks them
// up now, so all frames are made first: only where it will take them.
void Migrator::register_frames() {
  std::unique_lock lock(mutex_);
  std::byte* const first = slow_.range_to_register();
  if (first == nullptr) return;
  const Bytes all = {books_.frames() * chunk_bytes_.value};
  lock.unlock();
  while (maker_.make()) {
  }
  lock.lock();
  if (books_.frames() * chunk_bytes_.value == all.value) slow_.register_memory(first, all);
}

void Migrator::run_once() noexcept {
  VEDETTE_ASSERT(by_hand_);
  std::unique_lock lock(mutex_);
  turn_unlocking(lock);
}

void Migrator::await_all_moves(std::unique_lock<std::mutex>& lock) {
  queues_.forget_plan();
  slow_.kick();
  await(lock, [&] { return books_.in_flight() == 0 && queues_.urgent() == 0; });
}

void Migrator::turn_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  if (!start_moves_unlocking(lock)) take_completed_unlocking(lock);
}

bool Migrator::start_moves_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  if (slow_.unregisters()) return slow_.unregister_unlocking(lock);
  if (frames_.retry_busy()) {
    maker_.give_all_back();
    arrived_.notify_all();  // a dead one is room
  }
  pump();
  if (slow_.pass_on_unlocking(lock)) return true;  // the next group is another submission
  if (demand_.lacks_frame()) {
    lock.unlock();
    maker_.make();
    lock.lock();
    return true;  // also where none could be made: what lacks one has to be served by what leaves
  }
  return maker_.give_excess_back_unlocking(lock) || slow_.give_slots_back_unlocking(lock) ||
         maker_.give_unused_back_unlocking(lock);
}

void Migrator::take_completed_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  std::array<StoreCompletion, 64> done;
  const Nanoseconds timeout = frames_.any_busy() ? frames_.pause() : Nanoseconds{1'000'000'000};
  const std::size_t count = slow_.wait_unlocking(lock, done, timeout);
  for (std::size_t i = 0; i < count; ++i) complete(done[i]);
  if (count > 0) arrived_.notify_all();
}

void Migrator::pump() {
  op_.disturb();
  start_urgent();
  start_planned_evictions();
  make_room();
  start_urgent();  // chunks that arrived and were not used have left at once
  start_planned_fetches();
  maker_.note_use();
}

void Migrator::start_urgent() {
  bool came = false;
  while (queues_.urgent() > 0 && books_.in_flight() < slow_.depth()) {
    const ChunkIndex c = queues_.most_urgent();
    const Books::Chunk& chunk = books_[c];
    const bool unbacked = chunk.state == ChunkState::unbacked;
    if (!unbacked && (chunk.state != ChunkState::away || chunk.live == 0)) {
      queues_.pop_urgent();  // it came, died, or will be shown when its write ends
      continue;
    }
    if (unbacked) {
      if (!frames_.back(c, /*in_use=*/true)) break;
      books_.serve(c);
      came = true;
    } else {
      const auto frame = frames_.take_parked();
      if (!frame) break;
      start_fetch(c, *frame, MoveCause::urgent);
    }
    queues_.pop_urgent();
  }
  if (came) arrived_.notify_all();
}

// Goes once through the whole queue: chunks that have to wait keep their places in it.
void Migrator::start_planned_evictions() {
  std::uint32_t most = demand_.planned_start(StoreRequest::Direction::write);
  if (most == 0) return;
  const bool wait = demand_.writes_wait();
  for (std::size_t looked_at = queues_.evictions(); looked_at > 0; --looked_at) {
    const MoveQueues::Leaving leaving = queues_.take_eviction();
    const ChunkIndex c = leaving.chunk;
    const Books::Chunk& chunk = books_[c];
    if (!chunk.leaving) continue;  // needed again meanwhile
    const bool will_be_written = !chunk.unchanged;
    const bool slot_in_use = chunk.slot_busy && chunk.state == ChunkState::resident && chunk.live > 0;
    if (most == 0 || books_.in_flight() >= slow_.depth() || (wait && will_be_written) || slot_in_use) {
      queues_.evict(leaving);
      continue;
    }
    books_.plan_to_stay(c);
    if (start_eviction(c, MoveCause::planned, leaving.target)) --most;
  }
}

void Migrator::start_planned_fetches() {
  std::uint32_t most = demand_.planned_start(StoreRequest::Direction::read);
  std::vector<MoveQueues::Coming> in_use;  // in place, by the op that runs
  while (demand_.has_fetches_due() && most > 0 && books_.in_flight() < slow_.depth() && demand_.waiting_need() == 0 &&
         books_.available() > demand_.promised()) {
    const MoveQueues::Coming coming = queues_.take_fetch(books_.uses());
    const ChunkIndex c = coming.chunk;
    const Books::Chunk& chunk = books_[c];
    // It came too late, and an op waited for it: by now the plan may have it away.
    const bool is_over = coming.use < books_.tick() || (coming.use == books_.tick() && !books_.in_op());
    if (chunk.live == 0 || is_over) continue;
    books_.plan_to_stay(c);
    if (chunk.state == ChunkState::hidden || chunk.state == ChunkState::covered) frames_.make_resident(c);
    if (chunk.state == ChunkState::evicting) books_.want(c);  // needed again before its write ended: it stays
    if (chunk.state == ChunkState::in_place && !in_place_.take_back(c)) in_use.push_back(coming);
    if (chunk.state != ChunkState::away) continue;
    const auto frame = frames_.take_parked();
    if (!frame) {
      queues_.fetch_first({coming});
      break;
    }
    start_fetch(c, *frame, MoveCause::planned);
    --most;
  }
  queues_.fetch_first(in_use);
}

void Migrator::make_room() {
  const auto coming = [&] { return books_.available() + books_.evicting(); };
  while (demand_.waiting_need() + demand_.excess() > coming() && books_.in_flight() < slow_.depth()) {
    const std::size_t most =
        std::min<std::size_t>(demand_.waiting_need() + demand_.excess() - coming(), slow_.depth() - books_.in_flight());
    const bool expects = op_.is_predicted() && !books_.paged();
    const std::vector<ChunkIndex> leaving =
        expects ? books_.victims(most, op_.ahead().outlook().calendar) : books_.victims(most);
    for (const ChunkIndex c : leaving) start_eviction(c, MoveCause::room);
    if (!leaving.empty()) continue;
    if (demand_.waiting_need() <= coming()) break;  // the rest of the excess can wait
    if (books_.evicting() != 0 || books_.in_flight() != 0 || books_.available() != 0 || books_.birth_goes_on()) break;
    if (failed_writes_.worth_trying_again() && failed_writes_.forgive()) {
      books_.forgive_writes();
      continue;
    }
    if (frames_.waits_for_busy()) return;
    if (books_.in_op() && !books_.paged()) op_.go_paged();
    arrived_.notify_all();
    const bool once_more = (books_.paged() && books_.has_victim()) || (queues_.urgent() > 0 && try_writes_again());
    if (!once_more) return;
  }
  frames_.room_found();
}

// A thread waits for bytes and no chunk that could make room can be written. A passing error goes away; else the wait
// would never end.
bool Migrator::try_writes_again() {
  if (!failed_writes_.last()) return false;
  constexpr std::uint32_t most_rounds = 3;
  if (failed_writes_.next_round() > most_rounds)
    die((failed_writes_.last()->message + "; bytes that are needed now find no room, so the program ends here")
            .c_str());
  if (failed_writes_.forgive()) books_.forgive_writes();
  return books_.has_victim();
}

bool Migrator::start_eviction(ChunkIndex c, MoveCause cause, TierIndex target) {
  const Books::Chunk& chunk = books_[c];
  if (!books_.may_leave(c)) return false;
  const FrameIndex f = chunk.frame;
  const Nanoseconds now = program_.now();
  const bool expected_soon = op_.is_predicted() && books_.uses().told(c) < op_.ahead().outlook().until;
  if (cause == MoveCause::room && expected_soon) queues_.fetch({c});  // it has been told before
  if (chunk.state == ChunkState::arrived) {  // no thread could write there: its slot has the bytes
    books_.evicted(c);
    figures_.dropped(c, cause);
    arrived_.notify_all();
    return true;
  }
  if (chunk.state == ChunkState::resident && !frames_.hide(c, f)) return false;
  books_.start_eviction(c);
  figures_.move_begins(f, cause, now);
  slow_.ask({.direction = StoreRequest::Direction::write,
             .slot = *books_[c].slot,
             .memory = memory_->parked(f),
             .token = f.value,
             .tier = target});
  return true;
}

void Migrator::start_fetch(ChunkIndex c, FrameIndex f, MoveCause cause) {
  books_.start_fetch(c, f);
  figures_.move_begins(f, cause, program_.now());
  slow_.ask({.direction = StoreRequest::Direction::read,
             .slot = *books_[c].slot,
             .memory = memory_->parked(f),
             .token = f.value,
             .remember = books_[c].unchanged});
}

void Migrator::complete(const StoreCompletion& completion) {
  const FrameIndex f{static_cast<std::uint32_t>(completion.token)};
  const Books::Ended ended = books_.end_io(f);
  if (completion.error == 0) figures_.moved(f, completion, ended);
  if (ended.orphan) {
    maker_.give_all_back();
    return;
  }
  if (ended.read) {
    complete_read(ended.chunk, completion.error);
  } else {
    complete_write(ended.chunk, completion.error);
  }
}

void Migrator::complete_read(ChunkIndex c, int error) {
  if (error == 0) {
    books_.fetched(c);
    if (books_[c].wanted || frames_.watched()) frames_.make_resident(c);
    return;
  }
  constexpr std::uint8_t most_attempts = 3;  // a passing error (EAGAIN, EINTR) goes away; a third one will not
  if (books_.fetch_failed(c) < most_attempts) return demand_.request(c);
  const std::string what = words_.describe(c);
  const std::string cause =
      error == EBADMSG ? "they are not the bytes that were written there (checksum)" : std::strerror(error);
  const std::string sentence = "reading " + what + " back from the slow tier: " + cause +
                               "; its bytes are lost and a thread needs them, so the program ends here";
  die(sentence.c_str());
}

void Migrator::complete_write(ChunkIndex c, int error) {
  if (error != 0) {
    failed_writes_.failed({.cause = Cause::system,
                           .message = "writing to the slow tier: " + std::string(std::strerror(error)) +
                                      "; free space or choose another directory",
                           .errno_value = error});
  } else {
    failed_writes_.worked();
  }
  if (error != 0 || books_[c].wanted) {  // it stays: nothing was lost
    frames_.show(books_[c].frame, c);
    books_.stays(c, error != 0);
  } else {
    books_.evicted(c);
  }
}

}  // namespace vedette::engine
