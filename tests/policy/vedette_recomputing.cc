// Our own planner in sessions that recompute: it does where that is better when rehearsed, tries the plan that does not
// too, and keeps the one that was measured better.
#include <gtest/gtest.h>

#include "base/time_limit.h"
#include "policy/vedette/features.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/prices.h"
#include "policy/vedette/variants.h"
#include "support/small_steps.h"
#include "support/traces.h"
#include "vedette/policy.h"

namespace vedette::vedette_recomputing_test {
namespace {

using testing::kilo;

Machine in_session(Machine machine) {
  machine.habits = habits_of_sessions;
  machine.can_recompute = true;
  return machine;
}

// Eight tensors made one from the other and read in reverse; a link that needs 4 ms a tensor, ops of 10 us.
Trace made_in_turn() {
  Trace trace;
  for (std::uint32_t l = 0; l < 8; ++l) {
    trace.tensors.push_back({.name = "x", .bytes = {kilo}, .kind = TensorKind::activation});
    Op made{.name = "relu", .time = {10'000}, .writes = {{l}}};
    if (l > 0) made.reads = {{l - 1}};
    trace.ops.push_back(made);
  }
  for (std::uint32_t l = 8; l-- > 0;)
    trace.ops.push_back({.name = "backward", .phase = Phase::backward, .time = {10'000}, .reads = {{l}}});
  return trace;
}

class RecomputingTrials : public ::testing::Test {
 protected:
  RecomputingTrials() : machine_(in_session(testing::two_tiers({6 * kilo}, {kilo}, 1'000'000))) {
    plan_ = policy_->prepare(trace_, machine_).value();
  }
  // Steps as with that plan, each of which waited and recomputed for so long, until the policy wants another.
  bool ends_with_another(std::int64_t stall, std::int64_t recomputing) {
    for (int steps = 0; steps < 8; ++steps) {
      const StepMeasured measured{.time = {200'000 + stall + recomputing},
                                  .stall = {stall},
                                  .recomputing = {recomputing},
                                  .op_stall = {},
                                  .late = {}};
      const View view{.trace = trace_, .machine = machine_, .where = {}, .room = {}};
      Event event;
      event.kind = Event::Kind::step_ended;
      event.measured = &measured;
      if (!policy_->react(event, view).replan) continue;
      plan_ = policy_->prepare(trace_, machine_).value();
      return true;
    }
    return false;
  }
  const Trace trace_ = made_in_turn();
  Machine machine_;
  std::unique_ptr<Policy> policy_ = make_policy("vedette", 1);
  Plan plan_;
};

TEST_F(RecomputingTrials, AlsoTryThePlanThatDoesNotAndKeepTheBetter) {
  EXPECT_FALSE(plan_.recomputations.empty());
  const Plan again = plan_;
  ASSERT_TRUE(ends_with_another(0, 20'000));
  EXPECT_TRUE(plan_.recomputations.empty());
  ASSERT_TRUE(ends_with_another(8'000'000, 0));
  EXPECT_EQ(plan_, again);
  EXPECT_FALSE(ends_with_another(0, 20'000));
}

TEST_F(RecomputingTrials, KeepThePlanThatRecomputesNothingWhereRecomputingTakesLonger) {
  ASSERT_TRUE(ends_with_another(0, 20'000));
  EXPECT_FALSE(ends_with_another(10'000, 0));
  EXPECT_TRUE(plan_.recomputations.empty());
}

TEST_F(RecomputingTrials, SayWhatIsRecomputedAndWhatMovesOtherwise) {
  ASSERT_EQ(plan_.reasons.size(), 2U);
  EXPECT_NE(plan_.reasons[0].find("are dropped and recomputed in a step, which takes"), std::string::npos);
  EXPECT_NE(plan_.reasons[1].find("the best plan found that recomputes nothing moves"), std::string::npos);
}

TEST_F(RecomputingTrials, BeginAnewAfterAPlanThatHadNoTime) {
  const auto policy = make_policy("vedette", 1);
  {
    const TimeLimit none(TimeLimit::Clock::now());
    EXPECT_NE(policy->prepare(trace_, machine_).value(), plan_);
  }
  EXPECT_EQ(policy->prepare(trace_, machine_).value(), plan_);
}

// A convolution's result is needed once more, by an op that fills the memory with its source, a gradient that comes and
// one that goes. The convolution needs scratch of a tensor's size.
Trace convolutions() {
  constexpr std::uint32_t layers = 8;
  Trace trace;
  const auto tensor = [&](TensorKind kind) {
    trace.tensors.push_back({.name = "t", .bytes = {kilo}, .kind = kind, .persistent = kind == TensorKind::weight});
    return TensorIndex{static_cast<std::uint32_t>(trace.tensors.size() - 1)};
  };
  const TensorIndex statistics = tensor(TensorKind::weight);
  std::vector<TensorIndex> inputs{tensor(TensorKind::activation)}, results;
  trace.ops.push_back({.name = "load", .time = {10'000}, .writes = {inputs[0]}});
  for (std::uint32_t l = 0; l < layers; ++l) {
    results.push_back(tensor(TensorKind::activation));
    trace.ops.push_back({.name = "aten::convolution",
                         .time = {10'000},
                         .workspace = {kilo},
                         .reads = {inputs[l]},
                         .writes = {results[l]}});
    inputs.push_back(tensor(TensorKind::activation));
    trace.ops.push_back({.name = "aten::native_batch_norm",
                         .time = {10'000},
                         .reads = {statistics, results[l]},
                         .writes = {statistics, inputs[l + 1]}});
  }
  TensorIndex gradient = inputs[layers];
  for (std::uint32_t l = layers; l-- > 0;) {
    for (const TensorIndex saved : {results[l], inputs[l]}) {
      const TensorIndex next = tensor(TensorKind::gradient);
      trace.ops.push_back({.name = "backward",
                           .phase = Phase::backward,
                           .time = {10'000},
                           .reads = saved < gradient ? std::vector{saved, gradient} : std::vector{gradient, saved},
                           .writes = {next}});
      gradient = next;
    }
  }
  return trace;
}

TEST(Vedette, RecomputesBeforeOpsThatFillTheMemory) {
  const Trace trace = convolutions();
  const Machine machine = in_session(testing::two_tiers({5 * kilo}, {kilo}, 1'000'000));
  EXPECT_GE(make_policy("vedette", 1)->prepare(trace, machine).value().recomputations.size(), 4U);
}

// Two rules drop the same, and one of them leaves room beside each convolution: what was planned for before is not what
// comes of the other.
TEST(Variants, AreTheSameWhateverWasAskedForBefore) {
  const Trace trace = convolutions();
  Machine machine = testing::two_tiers({8 * kilo}, {kilo}, 1'000'000);
  machine.can_recompute = true;
  const planning::Features features;
  const planning::Setting setting = planning::setting_of(machine, {1});
  planning::RecomputeRule leaves = planning::uniform(1e9, 16), takes = leaves;
  takes.leaves_room = false;
  const auto ops_of = [&](planning::Variants& variants, const planning::RecomputeRule& rule) {
    planning::Variant& made = variants.of(rule, 0);
    variants.cut(made);
    return made.parts.trace.ops;
  };
  planning::Variants alone(trace, machine, setting, features), both(trace, machine, setting, features);
  const std::vector<Op> expected = ops_of(alone, takes), before = ops_of(both, leaves);
  EXPECT_NE(before, expected);
  EXPECT_EQ(alone.of(leaves, 0).decided.drops, alone.of(takes, 0).decided.drops);
  EXPECT_EQ(ops_of(both, takes), expected);
  EXPECT_EQ(ops_of(both, leaves), before);
}

TEST(Vedette, RecomputesNothingInASessionWhereMovesAreHidden) {
  Trace trace = made_in_turn();
  for (Op& op : trace.ops) op.time = {1'000'000};
  const Machine machine = in_session(testing::two_tiers({6 * kilo}));
  EXPECT_TRUE(make_policy("vedette", 1)->prepare(trace, machine).value().recomputations.empty());
}

// A megabyte is made by op 0 and read by op 7, between them there is no room for it. Links need a millisecond each way,
// the step less than one.
TEST(StretchPrices, ChooseTheProducerWhereItTakesLessThanMoves) {
  Trace trace;
  trace.tensors = {{.name = "a", .bytes = {1'000'000}, .kind = TensorKind::activation}};
  for (int op = 0; op < 8; ++op)
    trace.ops.push_back({.time = {100'000}, .workspace = {op == 0 || op == 7 ? 0U : 2'000'000U}});
  trace.ops[0].writes = trace.ops[7].reads = {{0}};
  planning::Setting setting;
  setting.budget = 2'000'000;
  setting.read_bytes_per_s = setting.write_bytes_per_s = 1'000'000'000;
  const auto priced = [&](double producer_ns) {
    return planning::price(trace, planning::uses_of(trace), setting,
                           {{.tensor = 0, .last = 0, .next = 7, .ns = producer_ns}}, {});
  };
  EXPECT_GT(priced(50'000).shares.at(0), 0.8);
  EXPECT_LE(priced(50'000).waiting_ns, 50'000);
  EXPECT_GT(priced(50'000).waiting_ns, 35'000);
  EXPECT_LT(priced(50'000'000).shares.at(0), 0.2);
}

}  // namespace
}  // namespace vedette::vedette_recomputing_test
