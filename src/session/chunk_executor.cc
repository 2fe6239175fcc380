// A plan's moves as the engine's calls: see chunk_executor.h.
#include "session/chunk_executor.h"

#include <algorithm>
#include <string>

namespace vedette::detail {
namespace {

constexpr TierIndex fast{0};

Error cannot(const std::string& what) {
  return {.cause = Cause::unsupported, .message = "memory here cannot " + what, .errno_value = 0};
}

}  // namespace

Result<void> ChunkExecutor::accepts(const Plan& plan) const {
  if (!plan.in_place.empty())
    return cannot("use an operand where it lies in a slower tier, which the plan does at op " +
                  std::to_string(plan.in_place.front().op.value));
  if (!plan.recomputations.empty())
    return cannot("run an op again, which the plan does before op " +
                  std::to_string(plan.recomputations.front().before.value));
  if (!plan.order.empty()) return cannot("run ops in another order than the program's");
  for (const Move& move : plan.moves) {
    const bool there = std::max(move.source.value, move.target.value) <= slow_tiers_;
    const bool comes = move.verb == Verb::fetch && move.source != fast && move.target == fast;
    const bool leaves = move.verb == Verb::evict && move.source < move.target;
    if (move.verb == Verb::drop ? move.source == fast : there && (comes || leaves)) continue;
    return cannot("move bytes from tier " + std::to_string(move.source.value) + " to tier " +
                  std::to_string(move.target.value) + "; there are fast memory (0) and " +
                  (slow_tiers_ == 1 ? "one slow tier (1)" : "slow tiers 1 to " + std::to_string(slow_tiers_)) +
                  ", and what comes goes to fast memory");
  }
  return {};
}

Engine::Planned ChunkExecutor::planned(const Part& part) {
  fetches_.clear();
  next_uses_.clear();
  const Ahead* const ahead = part.ahead;
  for (const OpMoves::Fetch& fetch : ahead != nullptr ? ahead->fetches : part.moves.fetches)
    fetches_.push_back({fetch.chunks, fetch.unchanged});
  for (const OpMoves::NextUse& use : ahead != nullptr ? ahead->next_uses : part.moves.next_uses)
    next_uses_.push_back({use.chunks, use.after, use.dead_at ? Ticks{*use.dead_at} : never});
  const auto first_uses = [](const std::vector<StepStart::Unit>& units, std::vector<Engine::NextUse>& uses) {
    for (const StepStart::Unit& unit : units) uses.push_back({unit.chunks, unit.first_use});
  };
  begins_near_.clear();
  begins_away_.clear();
  if (part.start != nullptr) {
    first_uses(part.start->near, begins_near_);
    first_uses(part.start->away, begins_away_);
  }
  Engine::Planned planned{.fetches = fetches_,
                          .next_uses = next_uses_,
                          .base = part.step_begins,
                          .begins_near = begins_near_,
                          .begins_away = begins_away_,
                          .frames_to_come = part.frames_to_come,
                          .operands_of_whole_op = part.operands_of_whole_op,
                          .written = {}};
  if (!part.planned) planned.written = part.written;
  if (ahead != nullptr)
    planned.expected = Engine::Expected{
        .anew = ahead->anew,
        .makes_room = ahead->makes_room,
        .births = ahead->births,
        .next_births = ahead->next_births,
        .until = part.step_begins + ahead->until,
        .step = {.ends = part.step_begins + ahead->ends, .next_begins = part.step_begins + ticks_of_a_step},
        .schedule = ahead->schedule};
  return planned;
}

std::span<const Engine::PlannedEviction> ChunkExecutor::leaving(std::span<const OpMoves::Departure> departures) {
  leaving_.clear();
  for (const OpMoves::Departure& departure : departures)
    leaving_.push_back({.range = departure.chunks,
                        .source = departure.source,
                        .target = departure.dead ? TierIndex{} : departure.target});
  return leaving_;
}

void ChunkExecutor::begin_op(OpIndex op, std::string_view name, const Part& part) {
  const bool moves = !part.moves.fetches.empty() || !part.moves.departures.empty() || !part.moves.made.empty();
  if (part.repeats && !moves && part.start == nullptr &&
      engine_->begin_quick_op(part.tick, op, name, part.operands, part.frames_to_come))
    return;
  engine_->begin_op(part.tick, op, name, part.operands, planned(part));
}

void ChunkExecutor::continue_op(std::span<const OpMoves::Departure> departures, const Part& part,
                                const std::function<void()>& between) {
  engine_->continue_op(part.tick, leaving(departures), part.operands, planned(part), between);
}

void ChunkExecutor::end_op(std::span<const OpMoves::Departure> departures) noexcept {
  if (departures.empty() && engine_->end_quick_op()) return;
  engine_->end_op(leaving(departures));
}

}  // namespace vedette::detail
