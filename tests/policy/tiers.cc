// Which slower tier each stay goes to where the nearest of them is full.
#include "policy/vedette/tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "support/generate_trace.h"
#include "support/small_steps.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/model.h"
#include "vedette/policy.h"

namespace vedette::tiers_test {
namespace {

using testing::kilo;
using testing::op;
using testing::step;

// Forward makes a tensor an op, backward reads them in the opposite order.
Trace there_and_back(std::uint32_t count) {
  Trace made = step(count, {});
  for (std::uint32_t t = 0; t < count; ++t) {
    made.tensors[t].persistent = false;
    made.ops.push_back(op(10'000, {}, {{t}}));
  }
  for (std::uint32_t t = count; t-- > 0;) made.ops.push_back(op(10'000, {{t}}));
  return made;
}

// Fast memory, a middle tier for `middle` tensors, and a slow tier without end behind a link of a quarter of the speed.
Machine with_full_middle(std::uint64_t middle) {
  Machine machine = testing::two_tiers({4 * kilo}, {kilo}, 1'000'000'000);
  machine.tiers[1].capacity = {middle * kilo * 100 / 98 + 100};
  machine.tiers.push_back({.name = "far", .capacity = {std::uint64_t{1} << 40}});
  machine.links.push_back({.source = {2}, .target = {0}, .bytes_per_s = 250'000'000});
  machine.links.push_back({.source = {0}, .target = {2}, .bytes_per_s = 250'000'000});
  return machine;
}

std::vector<planning::Stay> all_leave(std::uint32_t count) {
  std::vector<planning::Stay> stays;
  for (std::uint32_t t = 0; t < count; ++t)
    stays.push_back(
        {.tensor = t, .last_use = t, .gone = t + 1, .fetch = 2 * count - t - 1, .next_use = 2 * count - t - 1});
  return stays;
}

// The longest stays are the first evictions: if all of them went far, the near link would idle meanwhile.
TEST(Tiers, DealsStaysBetweenTiersInOrderOfEviction) {
  constexpr std::uint32_t count = 24;
  const Trace one = there_and_back(count);
  const Machine machine = with_full_middle(count / 2);
  planning::Setting setting{.budget = 4 * kilo, .slow = {1}, .granule = kilo};
  std::vector<planning::Stay> stays = all_leave(count);
  const planning::Spread spread = planning::spread_over_tiers(one, machine, setting, {}, stays);
  EXPECT_TRUE(spread.overflows && spread.fits);
  const auto far = [&](std::uint32_t begin, std::uint32_t end) {
    return std::count_if(stays.begin() + begin, stays.begin() + end, [](const auto& stay) { return stay.tier == 2; });
  };
  EXPECT_EQ(far(0, count), count / 2);
  // the last few are too short for two trips, so the others share 12 among 21
  for (std::uint32_t begin = 0; begin + 4 <= 20; begin += 4) {
    EXPECT_GE(far(begin, begin + 4), 2) << begin;
    EXPECT_LE(far(begin, begin + 4), 3) << begin;
  }
}

TEST(Tiers, LeavesTheMiddleTierToOneStretchWhereItsWeightSaysSo) {
  constexpr std::uint32_t count = 24;
  const Trace one = there_and_back(count);
  planning::Setting setting{.budget = 4 * kilo, .slow = {1}, .granule = kilo};
  std::vector<planning::Stay> stays = all_leave(count);
  planning::TierShares shares;
  shares.weights[0] = 0;  // of the first eighth of 21 evictions none goes far
  const planning::Spread spread = planning::spread_over_tiers(one, with_full_middle(count / 2), setting, shares, stays);
  EXPECT_TRUE(spread.fits);
  for (const planning::Stay& stay : stays) {
    if (stay.last_use < 3) {
      EXPECT_NE(stay.tier, 2U);
    }
  }
  shares.weights.fill(0);
  stays = all_leave(count);
  EXPECT_FALSE(planning::spread_over_tiers(one, with_full_middle(count / 2), setting, shares, stays).fits);
}

// Forward begins with a burst: near takes it, because the far link could not, and far takes what comes later. A
// constant share would let the far link fall behind first and idle then.
TEST(Tiers, LeaveToTheMiddleTierWhatTheFarLinkCannotKeepUpWith) {
  constexpr std::uint32_t count = 24, burst = 8;
  Trace one = there_and_back(count);
  for (std::uint32_t i = 0; i < 2 * count; ++i) one.ops[i].time = {i < burst ? 1'000 : 40'000};  // far takes 16,384 ns
  const Machine machine = with_full_middle(count / 2);
  planning::Setting setting{.budget = 4 * kilo, .slow = {1}, .granule = kilo};
  const auto far_of_burst = [&](planning::TierShares::Rule rule) {
    std::vector<planning::Stay> stays = all_leave(count);
    EXPECT_TRUE(planning::spread_over_tiers(one, machine, setting, {.rule = rule}, stays).fits);
    return std::count_if(stays.begin(), stays.begin() + burst, [](const auto& stay) { return stay.tier == 2; });
  };
  EXPECT_LE(far_of_burst(planning::TierShares::Rule::far_keeps_up), 1);
  EXPECT_GE(far_of_burst(planning::TierShares::Rule::in_proportion), 3);
  EXPECT_EQ(far_of_burst(planning::TierShares::Rule::longest_first), burst);
}

// Each tensor is changed in backward, leaves, comes for forward, leaves unchanged and comes for backward. In the tier
// that has its bytes it leaves for nothing; in the other one it would have to be written.
TEST(Tiers, KeepWhatLeavesUnchangedWhereItsBytesAre) {
  constexpr std::uint32_t count = 16;
  Trace one = step(count, {});
  for (std::uint32_t t = 0; t < count; ++t) one.ops.push_back(op(100'000, {{t}}));
  for (std::uint32_t t = count; t-- > 0;) one.ops.push_back(op(100'000, {{t}}, {{t}}));
  std::vector<planning::Stay> stays;
  for (std::uint32_t t = 0; t < count; ++t) {
    const std::uint32_t forward = t, backward = 2 * count - 1 - t, next = forward + 2 * count;
    if (backward - forward > 2)
      stays.push_back({t, forward, forward + 1, backward, backward, true, /*writes=*/false, 0});
    stays.push_back({t, backward, backward + 1, next, next, true, /*writes=*/true, 0});
  }
  planning::Setting setting{.budget = 4 * kilo, .slow = {1}, .granule = kilo};
  for (const auto rule : {planning::TierShares::Rule::in_proportion, planning::TierShares::Rule::far_keeps_up,
                          planning::TierShares::Rule::longest_first}) {
    const planning::Spread spread =
        planning::spread_over_tiers(one, with_full_middle(count / 2), setting, {.rule = rule}, stays);
    EXPECT_TRUE(spread.overflows && spread.fits);
    std::vector<std::set<std::uint32_t>> tiers(count);
    for (const planning::Stay& stay : stays) tiers[stay.tensor].insert(stay.tier);
    for (std::uint32_t t = 0; t < count; ++t) EXPECT_EQ(tiers[t].size(), 1U) << t;
    const auto far = std::count_if(tiers.begin(), tiers.end(), [](const auto& of) { return of.contains(2); });
    EXPECT_GE(far, count / 2 - 1);
    // the far link always keeps up here
    EXPECT_LE(far, rule == planning::TierShares::Rule::far_keeps_up ? count : count / 2 + 1);
  }
}

// What fast memory does not hold, and two of the largest tensors on their way, have room in the slow tier, and no more.
TEST(FullSlowTier, HasAPlanThatTheJudgeAccepts) {
  std::size_t planned = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Trace trace = testing::generate_trace(seed, testing::random_shape(seed));
    const Bytes granule{512}, least = testing::smallest_fast_tier(trace, granule),
                              ample = testing::ample_fast_tier(trace, granule);
    Bytes largest;
    for (const Tensor& tensor : trace.tensors) largest = std::max(largest, tensor.bytes);
    Machine machine = testing::two_tiers({least.value + (ample.value - least.value) / 8}, granule);
    const Bytes peak = peak_bytes(trace), fast = machine.tiers[0].capacity;
    if (peak <= fast) continue;
    for (const Habits& habits : {Habits{}, habits_of_sessions}) {
      for (const bool recomputes : {false, true}) {
        machine.habits = habits;
        machine.can_recompute = recomputes;
        machine.tiers[1].capacity = {peak.value - fast.value + 2 * largest.value};
        const auto plan = make_policy("vedette", 1)->prepare(trace, machine);
        ++tight;
        if (!plan) {
          EXPECT_NE(plan.error().message.find("'nvme'"), std::string::npos) << plan.error().message;
          continue;
        }
        ++planned;
        const auto broken = check(trace, machine, *plan);
        EXPECT_FALSE(broken.has_value()) << seed << ": " << broken->message;
      }
    }
  }
  EXPECT_GT(tight, 50U);
  EXPECT_EQ(planned, tight);
}

TEST(FullSlowTier, SaysWhatIsMissingWhereAllTiersHoldTooLittle) {
  const Trace one = there_and_back(24);
  Machine machine = testing::two_tiers({4 * kilo}, {kilo});
  machine.tiers[1].capacity = {19 * kilo};
  const auto plan = make_policy("vedette", 1)->prepare(one, machine);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().cause, Cause::infeasible);
  EXPECT_EQ(
      plan.error().message,
      "the step has 96.0 KiB (98304 bytes) at once, and fast memory and all below it hold 92.0 KiB (94208 bytes); "
      "give the slowest 4.0 KiB (4096 bytes) more");
}

}  // namespace
}  // namespace vedette::tiers_test
