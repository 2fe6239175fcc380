// Ops that follow no plan, by the uses that an earlier step lets expect: the chunks that are used next come early, and
// those that are used last leave before their room is wanted. A wrong expectation costs transfers.
#include <algorithm>

#include "engine/engine.h"

namespace vedette {
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

}  // namespace

void Engine::take_expected(const Ahead& ahead, Ticks step_begins) {
  op_.ahead = ahead;
  op_.ahead->fetches = {};  // live as long as this call
  op_.ahead->next_uses = {};
  if (ahead.anew) queues_.fetches.clear();
  for (const OpMoves::NextUse& use : ahead.next_uses)
    for (const ChunkIndex c : use.chunks)
      books_.expect_use(c, step_begins + use.after, use.dead_at ? step_begins + *use.dead_at : never);
  for (const OpMoves::Fetch& fetch : ahead.fetches)
    for (const ChunkIndex c : fetch.chunks) {
      const ChunkState state = books_[c].state;
      books_.plan_to_stay(c);
      if (state == ChunkState::hidden) make_resident(c);
      if (state != ChunkState::away && state != ChunkState::evicting) continue;
      books_.expect_unchanged(c, fetch.unchanged);
      queues_.fetches.push_back({c});
    }
}

Books::Calendar Engine::expected_calendar() const noexcept {
  return {.ends = op_.step_begins + op_.ahead->ends, .next_begins = op_.step_begins + detail::ticks_of_a_step};
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

// A chunk that comes earlier than it must takes its room from one that is used sooner, which then moves, too. So a
// fetch is due where it, those before it and what leaves for them take half of the time until its op, or where a later
// fetch is. Everything, where the times of ops are not known.
Ticks Engine::due() const {
  constexpr double early = 2;
  const OpSchedule& schedule = op_.ahead->schedule;
  if (!schedule.is_known()) return never;
  const double one = early * moves_of(chunk_bytes_, slow_.habits.back().speed).in_and_out;
  double moving = 0;
  Ticks due = books_.tick() + 2;  // of the next op: always
  for (const Coming& coming : queues_.fetches) {
    const Ticks use = books_[coming.chunk].next_use;
    moving += one;
    if (moving >= schedule.ns_until(use - std::min(use, books_.tick()))) due = std::max(due, use + 1);
  }
  return due;
}

// Until this tick the link has more to fetch than it can. A chunk that is used before then and leaves for another one's
// early fetch has to be fetched, too: that gains nothing. It is counted once an op, or where there are many chunks once
// in some ops.
Ticks Engine::busy_until() {
  constexpr Ticks chunks_an_op = 512;
  const Ticks stays = books_.used().size() / chunks_an_op, now = books_.tick();
  const bool is_fresh = op_.counted <= now && now - op_.counted <= stays;
  if (is_fresh && !op_.ahead->anew) return op_.busy;
  op_.counted = now;
  const OpSchedule& schedule = op_.ahead->schedule;
  const double one = moves_of(chunk_bytes_, slow_.habits.back().speed).in;
  double moving = 0;
  op_.busy = 0;
  for (const Ticks use : books_.uses_to_come()) {
    if (!schedule.has(use - now)) break;
    moving += one;
    if (moving >= schedule.ns_until(use - now)) op_.busy = use + 1;
  }
  return op_.busy;
}

std::size_t Engine::fetches_due() const {
  if (op_.due == never) return queues_.fetches.size();
  return static_cast<std::size_t>(
      std::find_if(queues_.fetches.begin(), queues_.fetches.end(),
                   [&](const Coming& coming) { return books_[coming.chunk].next_use >= op_.due; }) -
      queues_.fetches.begin());
}

bool Engine::has_fetches_due() const noexcept {
  if (!queues_.catching_up.empty()) return true;
  if (queues_.fetches.empty()) return false;
  return !op_.ahead || op_.due == never || books_[queues_.fetches.front().chunk].next_use < op_.due;
}

// Between two ops, so that nothing is hidden beside a thread that computes. As an op begins, for what is fetched beside
// it; as it ends, also for what will be born in the next one.
void Engine::make_room_ahead(std::size_t missing) {
  constexpr std::size_t most_fetches = 16;  // chunks: more do not start before the next op ends
  if (!op_.ahead || watch_ != nullptr) return;
  sort_fetches();
  op_.due = due();
  const std::size_t births = op_.ahead->births + (books_.in_op() ? 0 : op_.ahead->next_births),
                    fetches = op_.ahead->makes_room ? std::min(fetches_due(), most_fetches) : 0,
                    wanted = missing + births + fetches;
  const std::size_t coming = books_.available() + books_.evicting() + queues_.evictions.size();
  if (wanted <= coming) return;
  const std::size_t lacking = wanted - coming, for_fetches = std::min(lacking, fetches);
  const Books::Calendar step = expected_calendar();
  const auto leave = [&](Ticks unused_until, std::size_t most) {
    for (const ChunkIndex c : books_.victims_unused_until(unused_until, step, most)) let_leave(c);
  };
  const Ticks until = op_.step_begins + op_.ahead->until, busy = for_fetches > 0 ? busy_until() : 0;
  if (busy <= until) return leave(until, lacking);
  if (lacking > for_fetches) leave(until, lacking - for_fetches);
  leave(busy, for_fetches);
}

}  // namespace vedette
