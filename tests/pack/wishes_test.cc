// Tensors with a place of their own: the rest of the step is planned without them, by any policy, and the judge accepts
// the plan of the whole.
#include "pack/wishes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/step_kinds.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::wishes_test {
namespace {

TEST(Wishes, OfTensorsThatShareAChunkAreFastIfOneIsAndSlowIfAllAre) {
  using enum Wish;
  EXPECT_EQ(together(none, fast_hint), fast_hint);
  EXPECT_EQ(together(slow_rule, fast_hint), fast_hint);
  EXPECT_EQ(together(fast_hint, fast_rule), fast_rule);
  EXPECT_EQ(together(slow_rule, none), none);
  EXPECT_EQ(together(slow_rule, slow_hint), slow_hint);
  EXPECT_EQ(together(slow_rule, slow_rule), slow_rule);
}

TEST(Wishes, AreHeededAsFarAsThereAreAny) {
  using enum Wish;
  EXPECT_EQ(strongest(std::vector{none, none}), Heeded::none);
  EXPECT_EQ(strongest(std::vector{none, slow_rule}), Heeded::rules);
  EXPECT_EQ(strongest(std::vector{fast_hint, slow_rule}), Heeded::all);
  EXPECT_EQ(without_hints(std::vector{fast_hint, slow_rule}), Heeded::rules);
  EXPECT_EQ(without_hints(std::vector{fast_hint, none}), Heeded::none);
}

Machine near_and_far(const Trace& trace, std::uint64_t percent) {
  Machine machine = testing::on_a_disk({peak_bytes(trace).value * percent / 100});
  machine.tiers[1] = {.name = "far", .capacity = machine.tiers[1].capacity, .addressable = true};
  return machine;
}

// The moments of an optimizer, by their kind.
std::vector<Wish> of_moments(const Trace& trace, Wish wish) {
  std::vector<Wish> wishes;
  for (const Tensor& t : trace.tensors)
    wishes.push_back(t.persistent && t.kind == TensorKind::optimizer ? wish : Wish::none);
  return wishes;
}

class OfPolicy : public ::testing::TestWithParam<std::string> {};

Result<Plan> planned(const std::string& policy, const PlacedStep& placed, const Trace& trace) {
  Result<Plan> plan = make_policy(policy, 1)->prepare(placed.trace, placed.machine);
  if (!plan) return plan;
  return with_placed(placed, trace, *std::move(plan));
}

TEST_P(OfPolicy, ASlowTensorNeverMovesAndIsUsedInPlaceByEachOpThatNeedsIt) {
  const Trace trace = testing::eager_step(4);
  const Machine machine = near_and_far(trace, 60);
  const std::vector<Wish> wishes = of_moments(trace, Wish::slow_rule);
  const auto placed = with_wishes(trace, machine, wishes, Heeded::rules);
  ASSERT_TRUE(placed);
  ASSERT_FALSE(placed->slow.empty());
  EXPECT_EQ(placed->machine.tiers[0].capacity, machine.tiers[0].capacity) << "they take no fast memory";
  const auto plan = planned(GetParam(), *placed, trace);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto broken = check(trace, machine, *plan);
  EXPECT_FALSE(broken) << broken->message;
  for (const Move& move : plan->moves) EXPECT_EQ(wishes[move.extent.tensor.value], Wish::none);
  std::size_t uses = 0;
  for (const Op& op : trace.ops)
    for (const TensorIndex t : placed->slow)
      uses += std::ranges::count(op.reads, t) > 0 || std::ranges::count(op.writes, t) > 0 ? 1 : 0;
  EXPECT_GE(plan->in_place.size(), uses);
  EXPECT_TRUE(replay(trace, machine, *plan).ok());
}

TEST_P(OfPolicy, AFastTensorStaysAndTheOthersHaveTheRestOfTheMemory) {
  const Trace trace = testing::eager_step(4);
  const Machine machine = near_and_far(trace, 80);
  std::vector<Wish> wishes = of_moments(trace, Wish::fast_rule);
  // one that is born and dies in the step, too
  const auto passing = std::ranges::find_if(trace.tensors, [](const Tensor& t) { return !t.persistent; });
  wishes[static_cast<std::size_t>(passing - trace.tensors.begin())] = Wish::fast_rule;
  const auto placed = with_wishes(trace, machine, wishes, Heeded::rules);
  ASSERT_TRUE(placed);
  EXPECT_LT(placed->machine.tiers[0].capacity, machine.tiers[0].capacity);
  const auto plan = planned(GetParam(), *placed, trace);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto broken = check(trace, machine, *plan);
  EXPECT_FALSE(broken) << broken->message;
  for (const Move& move : plan->moves) EXPECT_EQ(wishes[move.extent.tensor.value], Wish::none);
  for (const TensorIndex t : placed->fast) EXPECT_EQ(plan->home[t.value], TierIndex{0});
}

INSTANTIATE_TEST_SUITE_P(Each, OfPolicy, ::testing::Values("vedette", "sentinel", "autoswap-swdoa", "belady", "g10"));

TEST(Wishes, ThatAreHintsAreLeftOutWhereRulesAloneCount) {
  const Trace trace = testing::eager_step(2);
  const Machine machine = near_and_far(trace, 60);
  EXPECT_FALSE(with_wishes(trace, machine, of_moments(trace, Wish::slow_hint), Heeded::rules));
  EXPECT_TRUE(with_wishes(trace, machine, of_moments(trace, Wish::slow_hint), Heeded::all));
  EXPECT_FALSE(with_wishes(trace, machine, of_moments(trace, Wish::slow_rule), Heeded::none));
}

TEST(Wishes, ForSlowMemoryCountWhereOpsCanUseIt) {
  const Trace trace = testing::eager_step(2);
  Machine machine = near_and_far(trace, 60);
  machine.tiers[1].addressable = false;
  EXPECT_FALSE(with_wishes(trace, machine, of_moments(trace, Wish::slow_rule), Heeded::all));
}

// An op whose weight another op of the step changes would recompute with other bytes, and its plan does not see that.
TEST(Wishes, LeaveNoOpToBeRecomputedWhosePlacedOperandTheStepChanges) {
  Trace trace = testing::eager_step(2);
  for (Op& op : trace.ops) op.runs_again = true;
  std::vector<Wish> wishes(trace.tensors.size());
  const Op& last = trace.ops.back();
  ASSERT_FALSE(last.writes.empty());
  const TensorIndex changed = last.writes.front();
  wishes[changed.value] = Wish::fast_rule;
  const auto placed = with_wishes(trace, near_and_far(trace, 60), wishes, Heeded::rules);
  ASSERT_TRUE(placed);
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const bool uses = std::ranges::count(op.reads, changed) + std::ranges::count(op.writes, changed) > 0;
    EXPECT_EQ(placed->trace.ops[i].runs_again, !uses) << i;
  }
}

}  // namespace
}  // namespace vedette::wishes_test
