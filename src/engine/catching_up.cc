// A step by a plan, after one of another plan, or of none: memory is as that one left it. What this plan has in fast
// memory as its step begins comes beside its own fetches, in order of need. What it has away leaves beside the first
// ops, before their births wait for its room.
#include "engine/engine.h"

namespace vedette {

void Engine::catch_up(const detail::StepStart& start, Ticks step_begins) {
  if (start.near.empty() && start.away.empty()) return;
  const Ticks now = books_.tick();
  for (const auto* const units : {&start.near, &start.away})
    for (const auto& [chunks, first_use, tier] : *units)
      for (const ChunkIndex c : chunks)
        if (books_[c].live > 0 && step_begins + first_use >= now) books_.set_next_use(c, step_begins + first_use);
  queues_.catching_up.clear();
  for (const auto& [chunks, first_use, tier] : start.near) {
    if (step_begins + first_use < now) continue;  // the plan took over in the middle of a step
    for (const ChunkIndex c : chunks) {
      const ChunkState state = books_[c].state;
      if (books_[c].live > 0 &&
          (state == ChunkState::away || state == ChunkState::evicting || state == ChunkState::in_place))
        queues_.catching_up.push_back({c, step_begins + first_use});
    }
  }
  for (const auto& [chunks, first_use, tier] : start.away) {
    if (step_begins + first_use <= now) break;  // the latest first
    for (const ChunkIndex c : chunks)
      if (books_.may_leave(c)) let_leave(c, tier);
  }
}

// Of both queues the chunk that is used first; a plan's own fetches go before those for which it names no use.
Engine::Coming Engine::take_next_fetch() {
  const bool catches_up = !queues_.catching_up.empty() &&
                          (queues_.fetches.empty() || books_.uses().told(queues_.catching_up.front().chunk) <
                                                          books_.uses().told(queues_.fetches.front().chunk));
  std::deque<Coming>& queue = catches_up ? queues_.catching_up : queues_.fetches;
  const Coming next = queue.front();
  queue.pop_front();
  return next;
}

}  // namespace vedette
