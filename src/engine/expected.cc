// Ops that follow no plan, with what an earlier step lets expect: the chunks that are used next come early, and those
// that are used last leave before their room is wanted. A wrong expectation costs transfers.
#include <algorithm>

#include "engine/engine.h"

namespace vedette {

void Engine::take_expected(const Planned& planned) {
  for (const NextUse& use : planned.next_uses)
    for (const ChunkIndex c : use.range) books_.expect_use(c, planned.base + use.tick);
  for (const PlannedFetch& fetch : planned.fetches)
    for (const ChunkIndex c : fetch.range) {
      const ChunkState state = books_[c].state;
      if (state != ChunkState::away && state != ChunkState::evicting) continue;
      books_.expect_unchanged(c, fetch.unchanged);
      queues_.fetches.push_back(c);
    }
}

// Between two ops, so that nothing is hidden beside a thread that computes.
void Engine::make_room_ahead() {
  constexpr std::size_t most_fetches = 16;  // chunks: more do not start before the next op ends
  if (!op_.expected || watch_ != nullptr) return;
  const std::size_t wanted = op_.expected->births + std::min(queues_.fetches.size(), most_fetches);
  const std::size_t coming = books_.available() + books_.evicting() + queues_.evictions.size();
  if (wanted <= coming) return;
  for (const ChunkIndex c : books_.victims_unused_until(op_.expected->until, op_.expected->step, wanted - coming)) {
    books_.plan_to_leave(c);
    queues_.evictions.push_back({c, TierIndex{}});
    hide_ahead(c);
  }
}

}  // namespace vedette
