#include "engine/announced_ops.h"

#include "base/assert.h"

namespace vedette::engine {

void AnnouncedOps::begin(OpIndex op, std::string_view name, const Part& part) {
  std::unique_lock lock(mutex_);
  op_.disturb();
  VEDETTE_ASSERT(!books_.in_op());
  op_.begin(op, name);
  enter_and_await(lock, part);
  in_place_.slow_down_unlocking(lock);
}

void AnnouncedOps::go_on(Departures departures, const Part& part, const std::function<void()>& between) {
  std::unique_lock lock(mutex_);
  op_.disturb();
  VEDETTE_ASSERT(books_.in_op());
  leave(departures);
  if (between) {
    lock.unlock();
    between();
    lock.lock();
  }
  enter_and_await(lock, part);
  in_place_.slow_down_unlocking(lock);
}

void AnnouncedOps::end(Departures departures) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  if (!books_.in_op()) return;
  leave(departures);
  if (demand_.can_start() || slow_.settles()) slow_.kick();
  if (is_steady()) quick_.settle();
}

void AnnouncedOps::enter_and_await(std::unique_lock<std::mutex>& lock, const Part& part) {
  op_.enter(part);
  planned_.take(part);
  in_place_.use(part.moves.in_place);
  const std::span<const ChunkRange> operands = part.operands;
  std::size_t missing = 0;
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range) {
      if (books_[c].live == 0 || books_.used_in_place(c)) continue;
      frames_.pin(c);
      missing += books_.present(c) ? 0 : 1;
    }
  if (!part.planned) planned_.mark_changes(part);
  op_.go_paged_unless_it_fits();
  if (!books_.paged()) planned_.make_room_ahead(missing);
  if (missing == 0 || books_.paged()) {
    demand_.start_soon();
    return;
  }
  const Nanoseconds began = program_.now();
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range)
      if (!books_.present(c)) demand_.request(c);
  demand_.op_waits(true);
  slow_.kick();
  migrator_.await(lock, [&] {
    if (books_.paged()) return true;  // another thread's allocation made the op too large for the budget
    for (const ChunkRange range : operands)
      for (const ChunkIndex c : range)
        if (!books_.present(c)) return false;
    return true;
  });
  demand_.op_waits(false);
  op_.add_stall(began, false);
}

void AnnouncedOps::leave(Departures departures) {
  for (const ChunkIndex c : covered_)
    if (books_[c].state == ChunkState::covered) {
      frames_.make_resident(c);
      books_.set_touched(c, false);  // by the op's end, not by a thread
    }
  covered_.clear();
  op_.leave();
  in_place_.let_strayed_leave();
  if (books_.frames() > books_.pool().wanted()) arrived_.notify_all();  // its operands may leave now
  planned_.let_leave(departures);
  planned_.make_room_ahead(0);
}

bool AnnouncedOps::is_steady() const noexcept {
  return books_.all_present() && !frames_.watched() && books_.in_flight() == 0 && demand_.is_empty() &&
         !frames_.any_busy() && !slow_.settles() && !maker_.winds_down() && books_.frames() <= books_.pool().wanted();
}

void AnnouncedOps::observe(std::span<const ChunkRange> operands) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  const bool coverable = !frames_.watched() && books_.in_op() && !books_.paged();
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range) {
      const Books::Chunk& chunk = books_[c];
      if (coverable && chunk.state == ChunkState::resident && chunk.live > 0 && books_.operand(chunk) &&
          chunk.holds == 0 && !chunk.busy && frames_.hide(c, chunk.frame)) {
        books_.covered(c);
        covered_.push_back(c);
      }
      books_.set_touched(c, chunk.state != ChunkState::covered);
    }
}

bool AnnouncedOps::was_touched(ChunkRange operand) const noexcept {
  const std::lock_guard lock(mutex_);
  for (const ChunkIndex c : operand)
    if (books_[c].touched) return true;
  return false;
}

}  // namespace vedette::engine
