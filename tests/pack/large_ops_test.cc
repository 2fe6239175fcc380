// Ops larger than fast memory, as planners get them.
#include "pack/large_ops.h"

#include <gtest/gtest.h>

#include "support/small_steps.h"
#include "vedette/check.h"
#include "vedette/policy.h"

namespace vedette::large_ops_test {
namespace {

using testing::kilo;
using testing::op;
using testing::step;

TEST(LargeOps, WhereAllFitNothingChanges) {
  const Trace trace = step(3, {op(10, {{0}, {1}}), op(10, {{2}}, {{2}})});
  EXPECT_FALSE(with_ops_that_fit(trace, {2 * kilo}));
}

TEST(LargeOps, LoseTheirLargestOperandsUntilTheyFit) {
  Trace trace = step(4, {op(10, {{0}}), op(10, {{0}, {1}, {2}}, {{1}}), op(10, {{2}, {3}})});
  trace.tensors[1].bytes = {3 * kilo};
  trace.tensors[2].bytes = {2 * kilo};
  const auto fitting = with_ops_that_fit(trace, {3 * kilo});
  ASSERT_TRUE(fitting);
  EXPECT_EQ(fitting->ops[0], trace.ops[0]);
  EXPECT_EQ(fitting->ops[1].reads, (std::vector<TensorIndex>{{0}, {2}}));
  EXPECT_TRUE(fitting->ops[1].writes.empty());
  EXPECT_EQ(fitting->ops[2], trace.ops[2]);
}

// What the op makes has to be there, as its first write.
TEST(LargeOps, KeepWhatTheyMake) {
  Trace trace = step(3, {op(10, {{0}, {1}}, {{2}}), op(10, {{2}})});
  trace.tensors[2].persistent = false;
  trace.tensors[2].bytes = {2 * kilo};
  trace.ops[1].frees = {{2}};
  const auto fitting = with_ops_that_fit(trace, {3 * kilo});
  ASSERT_TRUE(fitting);
  EXPECT_EQ(fitting->ops[0].writes, trace.ops[0].writes);
  EXPECT_EQ(fitting->ops[0].reads.size(), 1u);
  EXPECT_FALSE(with_ops_that_fit(trace, {kilo})) << "that alone does not fit";
}

// Twelve pages in the memory of six; one op reads all of them.
TEST(LargeOps, LeaveAPlanToTheOthers) {
  std::vector<Op> ops;
  for (std::uint32_t i = 0; i < 12; ++i) ops.push_back(op(100'000, {{i}}, {{i}}));
  ops.push_back(op(100'000, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}}));
  const Trace trace = step(12, std::move(ops));
  Machine machine;
  machine.tiers = {{.name = "fast", .capacity = {6 * kilo}}, {.name = "slow", .capacity = {1000 * kilo}}};
  for (const auto& [source, target] : {std::pair(0, 1), std::pair(1, 0)})
    machine.links.push_back({.source = {static_cast<std::uint32_t>(source)},
                             .target = {static_cast<std::uint32_t>(target)},
                             .bytes_per_s = 1'000'000'000});
  EXPECT_FALSE(make_policy("vedette", 1)->prepare(trace, machine));
  const auto fitting = with_ops_that_fit(trace, machine.tiers[0].capacity);
  ASSERT_TRUE(fitting);
  const auto plan = make_policy("vedette", 1)->prepare(*fitting, machine);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(check(*fitting, machine, *plan));
}

}  // namespace
}  // namespace vedette::large_ops_test
