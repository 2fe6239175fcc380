// What leaves at the end of a step, or early in the next one. Where plans come in turns, more is to be near as a step
// begins, by the same moves and without more waiting.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "policy/vedette/rehearsal.h"
#include "support/generate_trace.h"
#include "support/small_steps.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::seam_test {
namespace {

using testing::kilo;
using testing::op;
using testing::step;

Plan plan(const Trace& trace, Machine machine, bool in_turns) {
  machine.habits.plans_in_turns = in_turns;
  return make_policy("vedette", 1)->prepare(trace, machine).value();
}
// A third of the way from the largest op to all that lives at once; a page for each tensor that is rounded up.
Bytes between(const Trace& trace) {
  const Bytes least = largest_op_bytes(trace) + Bytes{trace.tensors.size() * kilo};
  return {least.value + (std::max(peak_bytes(trace), least) - least).value / 3};
}
std::uint64_t near_at_first(const Trace& trace, const Plan& plan) {
  std::uint64_t bytes = 0;
  for (std::size_t t = 0; t < trace.tensors.size(); ++t)
    if (trace.tensors[t].persistent && plan.home[t].value == 0) bytes += trace.tensors[t].bytes.value;
  return bytes;
}
std::vector<std::pair<Verb, std::uint32_t>> moves_of(const Plan& plan) {
  std::vector<std::pair<Verb, std::uint32_t>> moves;
  for (const Move& move : plan.moves) moves.emplace_back(move.verb, move.extent.tensor.value);
  std::sort(moves.begin(), moves.end());
  return moves;
}

// Room for one tensor: the moment, which the last op changes, or the activation, which lives during ops 3 and 4.
TEST(SeamOfPlans, AMomentLeavesWhenItsRoomIsWanted) {
  Trace one = step(2, {op(100'000, {}), op(100'000, {}), op(100'000, {}), op(100'000, {}, {{1}}), op(100'000, {{1}}),
                       op(100'000, {{0}}, {{0}}), op(100'000, {})});
  one.tensors[1].persistent = false;
  const Machine machine = testing::two_tiers({kilo});
  const Plan before = plan(one, machine, false), in_turns = plan(one, machine, true);
  EXPECT_EQ(near_at_first(one, before), 0u);
  EXPECT_EQ(near_at_first(one, in_turns), kilo);
  EXPECT_EQ(moves_of(in_turns), moves_of(before));
  const auto leaves = std::find_if(in_turns.moves.begin(), in_turns.moves.end(),
                                   [](const Move& move) { return move.verb == Verb::evict; });
  ASSERT_NE(leaves, in_turns.moves.end());
  EXPECT_EQ(leaves->issue, OpIndex{0});
  EXPECT_EQ(leaves->due, OpIndex{2}) << "its copy ends beside op 1";
  EXPECT_EQ(check(one, machine, in_turns), std::nullopt);
  EXPECT_EQ(replay(one, machine, in_turns).value().measured.stall, replay(one, machine, before).value().measured.stall);
}

// The activation is born as the step begins: the moment has to be gone by then.
TEST(SeamOfPlans, WhereTheRoomIsWantedAtOnceItLeavesBefore) {
  Trace one = step(
      2, {op(100'000, {}, {{1}}), op(100'000, {{1}}), op(100'000, {}), op(100'000, {{0}}, {{0}}), op(100'000, {})});
  one.tensors[1].persistent = false;
  const Machine machine = testing::two_tiers({kilo});
  EXPECT_EQ(plan(one, machine, true), plan(one, machine, false));
}

TEST(SeamOfPlans, TheSameMovesWaitNoLongerAndLeaveMoreNear) {
  int more = 0, moving = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    Machine machine = testing::two_tiers(between(one));
    if (seed % 2 == 0) machine.habits = habits_of_sessions;
    const Plan before = plan(one, machine, false), in_turns = plan(one, machine, true);
    EXPECT_EQ(check(one, machine, in_turns), std::nullopt);
    EXPECT_EQ(moves_of(in_turns), moves_of(before));
    const planning::Rehearsal rehearsal(one, machine);
    EXPECT_LE(rehearsal.of(in_turns).value().waits, rehearsal.of(before).value().waits);
    EXPECT_GE(near_at_first(one, in_turns), near_at_first(one, before));
    more += near_at_first(one, in_turns) > near_at_first(one, before) ? 1 : 0;
    moving += before.moves.empty() ? 0 : 1;
  }
  RecordProperty("more_near", more);
  EXPECT_GE(more * 4, moving) << more << " of " << moving;
}

}  // namespace
}  // namespace vedette::seam_test
