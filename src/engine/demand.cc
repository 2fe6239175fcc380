#include "engine/demand.h"

#include <algorithm>

#include "base/room_for_reads.h"
#include "engine/pace.h"

namespace vedette::engine {

void Demand::request(ChunkIndex c) {
  const Books::Chunk& chunk = books_[c];
  if (parked(chunk.state)) {
    frames_.make_resident(c);
    return arrived_.notify_all();
  }
  if (chunk.wanted && chunk.state != ChunkState::unbacked) return;
  books_.want(c);
  if (chunk.state == ChunkState::dropped) words_.want_dropped(c);
  if (chunk.state == ChunkState::away || chunk.state == ChunkState::unbacked) queues_.request(c);
}

// An op that goes through an operand in order waits for each chunk: the following ones come meanwhile.
void Demand::request_what_follows(ChunkIndex c) {
  constexpr std::uint32_t ahead = 2,
                          least_frames = 16;  // with fewer frames early chunks have left when they are wanted
  const auto operand = [&](std::uint32_t chunk) {
    return chunk < books_.used().limit().value && books_.operand(books_[{chunk}]);
  };
  const bool in_order = c.value > 0 && operand(c.value - 1) && books_[{c.value - 1}].state == ChunkState::resident;
  if (!in_order || books_.frames() < books_.held() + least_frames) return;
  for (std::uint32_t next = c.value + 1; next <= c.value + ahead && operand(next); ++next)
    if (books_[{next}].state == ChunkState::away) request({next});
}

void Demand::let_leave(ChunkIndex c, TierIndex target) {
  books_.plan_to_leave(c);
  queues_.evict({c, target});
  frames_.hide_ahead(c);
}

// --- room ------------------------------------------------------------------------------------------------------------

std::size_t Demand::waiting_need() const noexcept { return waiting_frames_ + queues_.urgent(); }

std::uint32_t Demand::promised() const noexcept { return op_.births_to_come() + excess(); }

// A paged op's operands may leave.
std::uint32_t Demand::least_frames() const noexcept {
  if (!books_.in_op() || books_.paged()) return books_.held() + least_unheld;
  return std::max(books_.op_chunks() + op_.births_to_come(), books_.held() + least_unheld);
}

std::uint32_t Demand::excess() const noexcept {
  if (books_.frames() <= books_.pool().wanted()) return 0;
  return books_.frames() - std::min(books_.frames(), std::max(books_.pool().wanted(), least_frames()));
}

bool Demand::room_impossible() const noexcept {
  return books_.available() == 0 && !frames_.any_busy() && books_.evicting() == 0 && books_.in_flight() == 0 &&
         !books_.has_victim() && !books_.birth_goes_on() && !failed_writes_.worth_trying_again();
}

bool Demand::may_be_unbacked() const noexcept { return books_.paged() && !failed_writes_.last() && !room_impossible(); }

// --- what may start --------------------------------------------------------------------------------------------------

bool Demand::has_fetches_due() const noexcept { return queues_.any_before(op_.due(), books_.uses()); }

// One disk serves both directions, so a write that can wait slows down reads that ops will wait for.
bool Demand::writes_wait() const noexcept {
  return (has_fetches_due() || books_.reads_in_flight() > 0) && waiting_need() == 0 &&
         books_.available() > promised() + room_for_reads;
}

// At the pace of the slowest tier: copies of a near one end within submit(). Writes go in groups of the default size,
// whatever the link: no op waits for them, and smaller groups cost the processor more.
std::uint32_t Demand::planned_start(StoreRequest::Direction direction) const noexcept {
  const bool read = direction == StoreRequest::Direction::read;
  const std::uint32_t in_flight = read ? books_.reads_in_flight() : books_.writes_in_flight();
  const Pace pace =
      pace_of(read ? slow_.slowest().reads_in_flight : default_in_flight, op_waits_ || waiting_frames_ > 0);
  return in_flight > pace.refill_at ? 0 : std::min(pace.group, pace.most - in_flight);
}

bool Demand::lacks_frame() const noexcept {
  if (books_.pool().unmade() == 0 || books_.pool().ready() > 0 || books_.longest_idle()) return false;
  if (books_.in_flight() >= slow_.depth()) return false;
  if (queues_.urgent() > 0) return true;
  return has_fetches_due() && waiting_need() == 0 && books_.available() > promised() &&
         planned_start(StoreRequest::Direction::read) > 0;
}

// Waking the migrator interrupts a thread that computes. So it is not woken for moves that it will see by itself: it
// comes back with the next completion, and then starts all that has gathered in one system call.
bool Demand::can_start() const noexcept {
  if (waiting_need() > 0 || excess() > 0) return true;
  return (queues_.evictions() > 0 && books_.writes_in_flight() == 0 && !writes_wait()) ||
         (has_fetches_due() && books_.reads_in_flight() == 0 && books_.available() > promised());
}

void Demand::start_soon() {
  if (can_start()) slow_.kick();
}

}  // namespace vedette::engine
