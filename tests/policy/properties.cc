// What every policy that plans must keep, on toy traces and on generated ones whose seed is printed (CONVENTIONS, How it is
// tested, 5). on-demand makes no plan: it reacts, and is expected to fail the judge.
#include <gtest/gtest.h>

#include "support/generate_trace.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"

namespace vedette {
namespace {

constexpr std::uint64_t seeds = 30;  // 300 more passed when this was written; these keep `fast` fast

struct Case {
  std::string what;  // which trace, for messages
  Trace trace;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& file : testing::toy_trace_files()) all.push_back({file.filename().string(), testing::load_trace(file)});
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    all.push_back(
        {"generate_trace(seed " + std::to_string(seed) + ")", testing::generate_trace(seed, testing::random_shape(seed))});
  }
  return all;
}

// From the smallest workable size to everything, each tensor rounded up to the granule.
std::vector<Bytes> budgets(const Trace& trace, Bytes granule) {
  const std::uint64_t least = testing::smallest_fast_tier(trace, granule).value,
                      most = testing::ample_fast_tier(trace, granule).value;
  return {{least},
          {least + granule.value},
          {least + (most - least) / 8},
          {least + (most - least) / 4},
          {least + (most - least) / 2},
          {most}};
}

class Planner : public ::testing::TestWithParam<std::string> {
 protected:
  static Plan plan(const Trace& trace, const Machine& machine, std::uint64_t seed = 1) {
    return make_policy(GetParam(), seed)->prepare(trace, machine).value();
  }
};

void expect_sound(const Case& each, const Machine& machine, const Plan& plan) {
  const std::optional<Violation> found = check(each.trace, machine, plan);
  EXPECT_FALSE(found.has_value()) << each.what << " with " << machine.tiers[0].capacity.value << " bytes: " << found->message;
}

TEST_P(Planner, PlansWhatTheJudgeAcceptsAtEveryWorkableSize) {
  for (const Case& each : cases()) {
    for (const Bytes granule : {Bytes{4096}, Bytes{65536}}) {
      for (const Bytes budget : budgets(each.trace, granule)) {
        const Machine machine = testing::two_tiers(budget, granule);
        const Result<Plan> plan = make_policy(GetParam(), 1)->prepare(each.trace, machine);
        ASSERT_TRUE(plan.ok()) << each.what << " with " << budget.value << " bytes: " << plan.error().message;
        expect_sound(each, machine, *plan);
      }
    }
  }
}

TEST_P(Planner, PlansSoundlyForAnAddressableSlowTier) {
  for (const Case& each : cases()) {
    for (const Bytes budget : budgets(each.trace, {4096})) {
      Machine machine = testing::two_tiers(budget);
      machine.tiers[1].addressable = true;
      expect_sound(each, machine, plan(each.trace, machine));
    }
  }
}

// Steps end, slower each time or faster each time, every fetch late: whatever the policy tries next must be sound as well.
TEST_P(Planner, PlansSoundlyAfterEveryMeasuredStep) {
  for (const Case& each : cases()) {
    for (const bool addressable : {false, true}) {
      Machine machine = testing::two_tiers(budgets(each.trace, {4096})[2]);
      machine.tiers[1].addressable = addressable;
      const std::unique_ptr<Policy> policy = make_policy(GetParam(), 1);
      const std::vector<TierIndex> where(each.trace.tensors.size());
      const std::vector<Bytes> room(2);
      for (int step = 0; step < 12; ++step) {
        const Plan found = policy->prepare(each.trace, machine).value();
        expect_sound(each, machine, found);
        StepMeasured measured{.time = {step % 2 == 0 ? 100 - step : 100 + step}};
        for (std::uint32_t m = 0; m < found.moves.size(); ++m) measured.late.push_back(m);
        const Event ended{.kind = Event::Kind::step_ended, .measured = &measured};
        if (!policy->react(ended, {each.trace, machine, where, room}).replan) break;
      }
    }
  }
}

TEST_P(Planner, MovesNothingWhereEverythingFits) {
  for (const Case& each : cases()) {
    const Machine machine = testing::two_tiers(testing::ample_fast_tier(each.trace, {4096}));
    const Plan found = plan(each.trace, machine);
    EXPECT_TRUE(found.moves.empty()) << each.what;
    EXPECT_TRUE(found.in_place.empty()) << each.what;
  }
}

TEST_P(Planner, SaysTheSmallestWorkableSizeBelowIt) {
  for (const Case& each : cases()) {
    const Bytes least = testing::smallest_fast_tier(each.trace, {4096});
    const Result<Plan> found = make_policy(GetParam(), 1)->prepare(each.trace, testing::two_tiers({least.value - 1}));
    ASSERT_FALSE(found.ok()) << each.what;
    EXPECT_EQ(found.error().cause, Cause::infeasible) << each.what;
    EXPECT_NE(found.error().message.find(std::to_string(least.value)), std::string::npos)
        << each.what << ": " << found.error().message;
  }
}

TEST_P(Planner, GivesTheSamePlanForTheSameSeed) {
  for (const Case& each : cases()) {
    const Machine machine = testing::two_tiers(budgets(each.trace, {4096})[3]);
    EXPECT_EQ(plan(each.trace, machine, 7), plan(each.trace, machine, 7)) << each.what;
  }
}

TEST_P(Planner, DoesNotLookAtNames) {
  for (const Case& each : cases()) {
    const Machine machine = testing::two_tiers(budgets(each.trace, {4096})[3]);
    Trace renamed = each.trace;
    for (std::size_t t = 0; t < renamed.tensors.size(); ++t) renamed.tensors[t].name.assign(1 + (t * 7919) % 13, 'z');
    for (Op& op : renamed.ops) op.name.insert(0, "renamed ");
    EXPECT_EQ(plan(renamed, machine), plan(each.trace, machine)) << each.what;
  }
}

std::vector<std::string> planners() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) {
    if (entry.name != "on-demand") names.emplace_back(entry.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Each, Planner, ::testing::ValuesIn(planners()), [](const auto& each) { return each.param; });

TEST(Policies, AreFoundByTheirNames) {
  for (const PolicyEntry& entry : policies()) {
    const std::unique_ptr<Policy> policy = make_policy(entry.name, 1);
    ASSERT_NE(policy, nullptr) << entry.name;
    EXPECT_EQ(policy->name(), entry.name);
    EXPECT_FALSE(entry.paper.empty());
    EXPECT_FALSE(entry.summary.empty());
  }
  EXPECT_EQ(make_policy("no such policy", 1), nullptr);
}

}  // namespace
}  // namespace vedette
