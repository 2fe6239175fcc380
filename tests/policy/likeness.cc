// Plans carried over from other sizes of the same ops, beside the planner's own for that size.
#include "policy/vedette/likeness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/sanitized.h"
#include "support/step_kinds.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::likeness_test {
namespace {

using planning::plan_by_likeness;
using planning::PlannedStep;

// Weights, gradients and moments stay as they are; activations and the time of ops that use some grow.
Trace of_size(Trace trace, std::uint64_t percent) {
  for (Tensor& tensor : trace.tensors)
    if (!tensor.persistent && tensor.kind == TensorKind::activation)
      tensor.bytes.value = tensor.bytes.value * percent / 100;
  const auto grows = [&](TensorIndex t) { return trace.tensors[t.value].kind == TensorKind::activation; };
  for (Op& op : trace.ops)
    if (std::any_of(op.reads.begin(), op.reads.end(), grows) || std::any_of(op.writes.begin(), op.writes.end(), grows))
      op.time.value = op.time.value * static_cast<std::int64_t>(percent) / 100;
  return trace;
}

// Each activation as two tensors, as units of other sizes may be cut.
Trace in_halves(Trace trace) {
  const auto whole = static_cast<std::uint32_t>(trace.tensors.size());
  std::vector<std::uint32_t> other(whole, ~0u);
  for (std::uint32_t t = 0; t < whole; ++t) {
    if (trace.tensors[t].persistent) continue;
    other[t] = static_cast<std::uint32_t>(trace.tensors.size());
    Tensor half = trace.tensors[t];
    half.bytes.value /= 2;
    trace.tensors[t].bytes.value -= half.bytes.value;
    trace.tensors.push_back(half);
  }
  for (Op& op : trace.ops)
    for (auto* const list : {&op.reads, &op.writes, &op.frees}) {
      const std::vector<TensorIndex> before = *list;
      for (const TensorIndex t : before)
        if (other[t.value] != ~0u) list->push_back({other[t.value]});
    }
  return trace;
}

Machine sessions_disk(Bytes fast) {
  Machine machine = testing::on_a_disk(fast);
  machine.habits = habits_of_sessions;
  return machine;
}

struct Kind {
  std::string name;
  Trace trace;
};
std::vector<Kind> kinds() {
  return {{"eager", testing::eager_step(testing::sanitized ? 2 : 4)},
          {"experts", testing::experts_step(2, 4)},
          {"adapters", testing::adapters_step(testing::sanitized ? 2 : 4)}};
}

Plan plan_of(const Trace& trace, const Machine& machine) {
  return make_policy("vedette", 1)->prepare(trace, machine).value();
}
double time_of(const Trace& trace, const Machine& machine, const Plan& plan) {
  return static_cast<double>(replay(trace, machine, plan).value().measured.time.value);
}

// From two sizes: between them, and on either side.
TEST(PlansByLikeness, AThirdSizeTakesHardlyLongerThanByAPlanOfItsOwn) {
  double sum = 0;
  int count = 0;
  for (const Kind& kind : kinds())
    for (const std::uint64_t percent_of_peak : {70, 50, 35}) {
      const Trace small = of_size(kind.trace, 60), large = of_size(kind.trace, 140);
      const Machine machine = sessions_disk({peak_bytes(kind.trace).value * percent_of_peak / 100});
      if (largest_op_bytes(of_size(kind.trace, 170)).value * 11 / 10 > machine.tiers[0].capacity.value) continue;
      const Plan of_small = plan_of(small, machine), of_large = plan_of(large, machine);
      const PlannedStep planned[] = {{&small, &of_small}, {&large, &of_large}};
      for (const std::uint64_t size : {45, 80, 100, 120, 170}) {
        SCOPED_TRACE(kind.name + " with " + std::to_string(percent_of_peak) + " %, of size " + std::to_string(size));
        const Trace third = of_size(kind.trace, size);
        const Result<Plan> like = plan_by_likeness(planned, third, machine);
        ASSERT_TRUE(like.ok()) << like.error().message;
        EXPECT_EQ(check(third, machine, *like), std::nullopt);
        EXPECT_EQ(*plan_by_likeness(planned, third, machine), *like);
        const double own = time_of(third, machine, plan_of(third, machine)), carried = time_of(third, machine, *like);
        EXPECT_LE(carried, own * (size > 60 && size < 140 ? 1.065 : 1.09));
        sum += carried / own;
        ++count;
      }
    }
  ASSERT_GE(count, 25);
  EXPECT_LE(sum / count, 1.02);
}

TEST(PlansByLikeness, TensorsNeedNotCorrespond) {
  const Trace trace = testing::eager_step(4), small = in_halves(of_size(trace, 60)), large = of_size(trace, 140);
  const Machine machine = sessions_disk({peak_bytes(trace).value * 7 / 10});
  const Plan of_small = plan_of(small, machine), of_large = plan_of(large, machine);
  const PlannedStep planned[] = {{&small, &of_small}, {&large, &of_large}};
  for (const Trace& third : {trace, in_halves(trace)}) {
    const Plan like = plan_by_likeness(planned, third, machine).value();
    EXPECT_EQ(check(third, machine, like), std::nullopt);
    EXPECT_LE(time_of(third, machine, like), time_of(third, machine, plan_of(third, machine)) * 1.05);
  }
}

TEST(PlansByLikeness, OtherOpsAreNotLikeThese) {
  const Trace trace = testing::eager_step(2), fewer = testing::eager_step(1);
  Trace renamed = trace;
  renamed.ops[3].name = "another";
  const Machine machine = sessions_disk({peak_bytes(trace).value / 2});
  const Plan plan;
  for (const Trace* const other : {&fewer, static_cast<const Trace*>(&renamed)}) {
    const PlannedStep planned[] = {{other, &plan}};
    const Result<Plan> like = plan_by_likeness(planned, trace, machine);
    ASSERT_FALSE(like.ok());
    EXPECT_EQ(like.error().cause, Cause::malformed_input);
  }
  EXPECT_FALSE(plan_by_likeness({}, trace, machine).ok());
}

TEST(PlansByLikeness, AnOpThatDoesNotFitHasNone) {
  const Trace trace = testing::eager_step(2), large = of_size(trace, 900);
  const Machine machine = sessions_disk({peak_bytes(trace).value * 9 / 10});
  const Plan plan = plan_of(trace, machine);
  const PlannedStep planned[] = {{&trace, &plan}};
  const Result<Plan> like = plan_by_likeness(planned, large, machine);
  ASSERT_FALSE(like.ok());
  EXPECT_EQ(like.error().cause, Cause::infeasible);
}

TEST(PlansByLikeness, WhatFitsMovesNothing) {
  const Trace trace = testing::eager_step(1), small = of_size(trace, 50);
  const Machine machine = sessions_disk({peak_bytes(trace).value * 2});
  const Plan plan = plan_of(trace, machine);
  const PlannedStep planned[] = {{&trace, &plan}};
  EXPECT_TRUE(plan_by_likeness(planned, small, machine).value().moves.empty());
}

}  // namespace
}  // namespace vedette::likeness_test
