// Sentinel's own habits: what it moves, when, and how it makes up its mind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/generate_trace.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"

namespace vedette::sentinel_test {
namespace {

Trace deep() {
  return testing::generate_trace(3, {.layers = 12,
                                     .short_lived = 2,
                                     .largest_activation = {256 << 10},
                                     .largest_weight = {64 << 10},
                                     .moments = 1,
                                     .plain_sizes = true});
}

Bytes part_of_peak(const Trace& trace, double share) {
  return {static_cast<std::uint64_t>(static_cast<double>(peak_bytes(trace).value) * share)};
}

// Ends a step that took `time`, and says whether a new plan is wanted.
bool end_step(Policy& policy, const Trace& trace, const Machine& machine, std::int64_t time,
              std::vector<std::uint32_t> late = {}) {
  const StepMeasured measured{.time = {time}, .late = std::move(late)};
  const std::vector<TierIndex> where(trace.tensors.size());
  const std::vector<Bytes> room(machine.tiers.size());
  return policy.react({.kind = Event::Kind::step_ended, .measured = &measured}, {trace, machine, where, room}).replan;
}

TEST(Sentinel, KeepsShortLivedTensorsNear) {
  const Trace trace = deep();
  const Plan plan = make_policy("sentinel", 1)->prepare(trace, testing::two_tiers(part_of_peak(trace, 0.5))).value();
  EXPECT_FALSE(plan.moves.empty());
  for (const Move& move : plan.moves) {
    const std::string& name = trace.tensors[move.extent.tensor.value].name;
    EXPECT_EQ(name.find(".t"), std::string::npos) << name;
  }
}

TEST(Sentinel, ReservesThePeakOfShortLivedTensors) {
  const Trace trace = deep();
  const Plan plan = make_policy("sentinel", 1)->prepare(trace, testing::two_tiers(part_of_peak(trace, 0.5))).value();
  EXPECT_EQ(plan.reserved, Bytes{2 * (256 << 10)});  // two of a layer's inner tensors live at once
}

TEST(Sentinel, FetchesBeforeTheIntervalThatNeedsThem) {
  const Trace trace = deep();
  const Plan plan = make_policy("sentinel", 1)->prepare(trace, testing::two_tiers(part_of_peak(trace, 0.5))).value();
  for (const Move& move : plan.moves) {
    EXPECT_NE(move.issue, move.due);
  }
}

TEST(Sentinel, PutsOpsInPlaceOnlyWhereTheSlowTierIsAddressable) {
  const Trace trace = deep();
  Machine machine = testing::two_tiers(part_of_peak(trace, 0.3));
  EXPECT_TRUE(make_policy("sentinel", 1)->prepare(trace, machine).value().in_place.empty());
}

bool does_the_same(Plan a, Plan b) {  // for whatever reasons
  a.reasons = b.reasons = {};
  return a == b;
}

TEST(Sentinel, TriesOneCandidateAStepAndKeepsTheFastest) {
  const Trace trace = deep();
  const Machine machine = testing::two_tiers(part_of_peak(trace, 0.5));
  const std::unique_ptr<Policy> policy = make_policy("sentinel", 1);
  std::vector<Plan> tried = {policy->prepare(trace, machine).value()};
  const std::vector<std::int64_t> times = {50, 40, 30, 45, 60, 70, 80};
  std::size_t step = 0;
  while (end_step(*policy, trace, machine, times.at(step++))) {
    ASSERT_LT(step, times.size());
    tried.push_back(policy->prepare(trace, machine).value());
    EXPECT_EQ(check(trace, machine, tried.back()), std::nullopt);
  }
  ASSERT_GE(tried.size(), 4u);
  EXPECT_TRUE(does_the_same(policy->prepare(trace, machine).value(), tried[2]));
  EXPECT_FALSE(end_step(*policy, trace, machine, 1));
}

TEST(Sentinel, TriesToLeaveLateTensorsInPlaceAndKeepsTheFaster) {
  const Trace trace = deep();
  Machine machine = testing::two_tiers(part_of_peak(trace, 0.5));
  machine.tiers[1].addressable = true;
  for (const bool leaving_helps : {true, false}) {
    const std::unique_ptr<Policy> policy = make_policy("sentinel", 1);
    Plan plan = policy->prepare(trace, machine).value();
    const auto first_fetch = [&] {
      const auto found =
          std::find_if(plan.moves.begin(), plan.moves.end(), [](const Move& move) { return move.verb == Verb::fetch; });
      return static_cast<std::uint32_t>(found - plan.moves.begin());
    };
    // The first candidate is the fastest, and one of its fetches was late.
    const Plan waiting = plan;
    const Move late = plan.moves.at(first_fetch());
    std::int64_t time = 10;
    bool leaving = false;
    for (int step = 0; step < 10 && !leaving; ++step) {
      ASSERT_TRUE(end_step(*policy, trace, machine, time, {first_fetch()}));
      plan = policy->prepare(trace, machine).value();
      time = 20;
      leaving = std::count_if(plan.in_place.begin(), plan.in_place.end(),
                              [&](const InPlace& each) {
                                return each.op == late.due && each.tensor == late.extent.tensor;
                              }) > 0 &&
                std::count(waiting.moves.begin(), waiting.moves.end(), late) >
                    std::count(plan.moves.begin(), plan.moves.end(), late);
    }
    ASSERT_TRUE(leaving);
    EXPECT_EQ(check(trace, machine, plan), std::nullopt);
    EXPECT_EQ(end_step(*policy, trace, machine, leaving_helps ? 5 : 15), !leaving_helps);
    EXPECT_TRUE(does_the_same(policy->prepare(trace, machine).value(), leaving_helps ? plan : waiting));
  }
}

TEST(Sentinel, StartsAnewForAnotherSequence) {
  const Trace one = deep(), other = testing::generate_trace(4, testing::random_shape(4));
  const Machine machine = testing::two_tiers(part_of_peak(one, 0.5));
  const Machine machine_of_other = testing::two_tiers(testing::smallest_fast_tier(other, {4096}));
  const std::unique_ptr<Policy> policy = make_policy("sentinel", 1);
  const Plan before = policy->prepare(one, machine).value();
  end_step(*policy, one, machine, 10);
  EXPECT_EQ(check(other, machine_of_other, policy->prepare(other, machine_of_other).value()), std::nullopt);
  EXPECT_EQ(policy->prepare(one, machine).value(), before);
}

}  // namespace
}  // namespace vedette::sentinel_test
