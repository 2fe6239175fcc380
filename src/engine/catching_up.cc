// A step by a plan, after one of another plan, or of none: memory is as that one left it. What this plan has in fast
// memory as its step begins comes beside its own fetches, in order of need. What it has away leaves beside the first
// ops, before their births wait for its room.
#include "engine/planned_moves.h"

namespace vedette::engine {

void PlannedMoves::catch_up(const detail::StepStart& start, Ticks step_begins) {
  if (start.near.empty() && start.away.empty()) return;
  const Ticks now = books_.tick();
  for (const auto* const units : {&start.near, &start.away})
    for (const auto& [chunks, first_use, tier] : *units)
      for (const ChunkIndex c : chunks)
        if (books_[c].live > 0 && step_begins + first_use >= now) books_.set_next_use(c, step_begins + first_use);
  std::vector<MoveQueues::Coming> restores;
  for (const auto& [chunks, first_use, tier] : start.near) {
    if (step_begins + first_use < now) continue;  // the plan took over in the middle of a step
    for (const ChunkIndex c : chunks) {
      const ChunkState state = books_[c].state;
      if (books_[c].live > 0 &&
          (state == ChunkState::away || state == ChunkState::evicting || state == ChunkState::in_place))
        restores.push_back({c, step_begins + first_use});
    }
  }
  queues_.restore(restores);
  for (const auto& [chunks, first_use, tier] : start.away) {
    if (step_begins + first_use <= now) break;  // the latest first
    for (const ChunkIndex c : chunks)
      if (books_.may_leave(c)) demand_.let_leave(c, tier);
  }
}

}  // namespace vedette::engine
