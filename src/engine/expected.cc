// Ops that follow no plan, by the uses that an earlier step lets expect: the chunks that are used next come early, and
// those that are used last leave before their room is wanted. A wrong expectation costs transfers.
#include <algorithm>

#include "engine/engine.h"

namespace vedette {

void Engine::take_expected(const Planned& planned) {
  if (planned.expected->anew) queues_.fetches.clear();
  for (const NextUse& use : planned.next_uses)
    for (const ChunkIndex c : use.range)
      books_.expect_use(c, planned.base + use.tick, use.dead_at == never ? never : planned.base + use.dead_at);
  for (const PlannedFetch& fetch : planned.fetches)
    for (const ChunkIndex c : fetch.range) {
      const ChunkState state = books_[c].state;
      books_.plan_to_stay(c);
      if (state == ChunkState::hidden) make_resident(c);
      if (state != ChunkState::away && state != ChunkState::evicting) continue;
      books_.expect_unchanged(c, fetch.unchanged);
      queues_.fetches.push_back({c});
    }
}

// A chunk that comes to be read alone is not written when it leaves.
void Engine::mark_changes(std::span<const ChunkRange> operands, std::span<const ChunkRange> written) {
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range)
      if (books_[c].state == ChunkState::away) books_.expect_unchanged(c, true);
  for (const ChunkRange range : written)
    for (const ChunkIndex c : range)
      if (books_[c].live > 0) books_.may_change(c);
}

// The chunks still to come, in order of need.
void Engine::sort_fetches() {
  std::erase_if(queues_.fetches, [&](const Coming& coming) {
    const Books::Chunk& chunk = books_[coming.chunk];
    const bool comes = chunk.state == ChunkState::away || chunk.state == ChunkState::evicting;
    return chunk.live == 0 || !comes || books_.operand(chunk);  // operands are urgent
  });
  std::stable_sort(queues_.fetches.begin(), queues_.fetches.end(), [&](const Coming& a, const Coming& b) {
    return books_[a.chunk].next_use < books_[b.chunk].next_use;
  });
}

// Between two ops, so that nothing is hidden beside a thread that computes. As an op begins, for what is fetched beside
// it; as it ends, also for what will be born in the next one.
void Engine::make_room_ahead(std::size_t missing) {
  constexpr std::size_t most_fetches = 16;  // chunks: more do not start before the next op ends
  if (!op_.expected || watch_ != nullptr) return;
  sort_fetches();
  const std::size_t births = op_.expected->births + (books_.in_op() ? 0 : op_.expected->next_births),
                    fetches = op_.expected->makes_room ? std::min(queues_.fetches.size(), most_fetches) : 0,
                    wanted = missing + births + fetches;
  const std::size_t coming = books_.available() + books_.evicting() + queues_.evictions.size();
  if (wanted <= coming) return;
  for (const ChunkIndex c : books_.victims_unused_until(op_.expected->until, op_.expected->step, wanted - coming))
    let_leave(c);
}

}  // namespace vedette
