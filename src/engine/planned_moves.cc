#include "engine/planned_moves.h"

namespace vedette::engine {

void PlannedMoves::take(const Part& part) {
  if (op_.is_predicted() && part.ahead == nullptr) queues_.forget_fetches();  // some of them were not due yet
  op_.ahead().end();
  if (part.ahead != nullptr) return take_prediction(*part.ahead, part.step_begins);
  for (const detail::OpMoves::NextUse& use : part.moves.next_uses)
    for (const ChunkIndex c : use.chunks) books_.set_next_use(c, part.step_begins + use.after);
  for (const detail::OpMoves::Fetch& fetch : part.moves.fetches)
    for (const ChunkIndex c : fetch.chunks) {
      books_.expect_unchanged(c, fetch.unchanged);
      const Ticks use = books_.uses().told(c);  // overdue: of a step before, or of another plan
      queues_.fetch({c, use > books_.tick() ? use : never});
    }
  if (part.start != nullptr) catch_up(*part.start, part.step_begins);
}

void PlannedMoves::let_leave(Departures departures) {
  for (const detail::OpMoves::Departure& departure : departures) {
    if (departure.source.value != 0) {
      settle(departure);
      continue;
    }
    for (const ChunkIndex c : departure.chunks) demand_.let_leave(c, departure.dead ? TierIndex{} : departure.target);
  }
}

// Chunks that are in fast memory by now stay there.
void PlannedMoves::settle(const detail::OpMoves::Departure& move) {
  const TierIndex target = move.dead ? TierIndex{} : move.target;
  for (const ChunkIndex c : move.chunks) {
    in_place_.take_back(c);
    const Books::Chunk& chunk = books_[c];
    const bool leaves = chunk.state == ChunkState::away || chunk.state == ChunkState::evicting;
    if (leaves && chunk.slot) slow_.settle(*chunk.slot, target);
  }
}

void PlannedMoves::forget() {
  queues_.forget_plan();
  op_.ahead().end();
  frames_.make_resident_all();
  in_place_.take_all_back();
  books_.forget_next_uses();
}

// A chunk that comes to be read alone is not written when it leaves.
void PlannedMoves::mark_changes(const Part& part) {
  for (const ChunkRange range : part.operands)
    for (const ChunkIndex c : range)
      if (books_[c].state == ChunkState::away) books_.expect_unchanged(c, true);
  for (const ChunkRange range : part.written)
    for (const ChunkIndex c : range)
      if (books_[c].live > 0) books_.may_change(c);
}

}  // namespace vedette::engine
