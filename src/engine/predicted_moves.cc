// Chunks of ops that follow no plan move by predictions from an earlier step: those that are used next are fetched
// early, and those that are used last leave before their room is wanted. A wrong prediction costs transfers.
#include <algorithm>

#include "engine/planned_moves.h"

namespace vedette::engine {
namespace {

// In nanoseconds, by the slowest tier.
struct ChunkMoves {
  double in = 0, in_and_out = 0;
};

ChunkMoves moves_of(Bytes chunk, const LinkSpeed& speed) {
  const auto ns = [&](std::uint64_t bytes_per_s) {
    return static_cast<double>(chunk.value) * 1e9 / static_cast<double>(std::max<std::uint64_t>(1, bytes_per_s));
  };
  const double in = ns(speed.read_alone());
  return {.in = in, .in_and_out = speed.one_bus() ? in + ns(speed.write_alone()) : in};
}

const auto chunk_of = [](const auto& coming) { return coming.chunk; };

}  // namespace

void PlannedMoves::take_prediction(const detail::Ahead& ahead, Ticks step_begins) {
  op_.predict(moves::outlook_of(ahead, step_begins));
  if (ahead.anew) queues_.forget_fetches();
  for (const detail::OpMoves::NextUse& use : ahead.next_uses)
    for (const ChunkIndex c : use.chunks)
      books_.expect_use(c, step_begins + use.after, use.dead_at ? step_begins + *use.dead_at : never);
  for (const detail::OpMoves::Fetch& fetch : ahead.fetches)
    for (const ChunkIndex c : fetch.chunks) {
      const ChunkState state = books_[c].state;
      books_.plan_to_stay(c);
      if (state == ChunkState::hidden) frames_.make_resident(c);
      if (state != ChunkState::away && state != ChunkState::evicting) continue;
      books_.expect_unchanged(c, fetch.unchanged);
      queues_.fetch({c});
    }
}

// The chunks still to come, in order of need.
void PlannedMoves::sort_fetches() {
  std::erase_if(queues_.fetches(), [&](const MoveQueues::Coming& coming) {
    const Books::Chunk& chunk = books_[coming.chunk];
    const bool comes = chunk.state == ChunkState::away || chunk.state == ChunkState::evicting;
    return chunk.live == 0 || !comes || books_.operand(chunk);  // operands are urgent
  });
  op_.ahead().sort(queues_.fetches(), books_.uses(), chunk_of);
}

Ticks PlannedMoves::busy_until(double ns_of_fetch) {
  return op_.ahead().busy_until(books_.tick(), books_.used().size(), [&] {
    std::vector<std::pair<Ticks, double>> transfers;
    for (const Ticks use : books_.uses_to_come()) transfers.emplace_back(use, ns_of_fetch);
    return transfers;
  });
}

// Between two ops, so that nothing is hidden beside a thread that computes. As an op begins, for what is fetched beside
// it; as it ends, also for what will be born in the next one.
void PlannedMoves::make_room_ahead(std::size_t missing) {
  constexpr std::size_t most_fetches = 16;  // chunks: more do not start before the next op ends
  constexpr double early = 2;               // a fetch is due when half of the time until its op is needed
  if (!op_.is_predicted() || frames_.watched()) return;
  sort_fetches();
  const moves::Outlook& outlook = op_.ahead().outlook();
  const ChunkMoves one = moves_of(chunk_bytes_, slow_.slowest().speed);
  op_.set_due(
      op_.ahead().due(queues_.fetches(), books_.uses(), chunk_of, [&](ChunkIndex) { return early * one.in_and_out; }));
  const std::size_t births = outlook.births + (books_.in_op() ? 0 : outlook.next_births),
                    fetches = outlook.makes_room
                                  ? std::min(queues_.fetches_before(op_.due(), books_.uses()), most_fetches)
                                  : 0,
                    wanted = missing + births + fetches;
  const std::size_t coming = books_.available() + books_.evicting() + queues_.evictions();
  if (wanted <= coming) return;
  const std::size_t lacking = wanted - coming, for_fetches = std::min(lacking, fetches);
  const auto leave = [&](Ticks unused_until, std::size_t most) {
    for (const ChunkIndex c : books_.victims_unused_until(unused_until, outlook.calendar, most)) demand_.let_leave(c);
  };
  const Ticks until = outlook.until, busy = for_fetches > 0 ? busy_until(one.in) : 0;
  if (busy <= until) return leave(until, lacking);
  if (lacking > for_fetches) leave(until, lacking - for_fetches);
  leave(busy, for_fetches);
}

}  // namespace vedette::engine
