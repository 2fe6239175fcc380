// Orders of ops: those that a search makes are legal, the judge and the simulator agree about plans with one, and what
// vedette and SwapAdvisor find is no slower than the traced order.
#include "policy/canvas/orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/dependences.h"
#include "support/generate_trace.h"
#include "support/traces.h"
#include "vedette/bound.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::orders_test {
namespace {

using planning::Order;
using planning::Orders;

Trace step(std::uint32_t seed) { return testing::generate_trace(seed, testing::random_shape(seed)); }

Machine tight(const Trace& trace) {
  Machine machine = testing::two_tiers(testing::smallest_fast_tier(trace, {4096}));
  machine.can_reorder = true;
  return machine;
}

// Of an op among those that may come next.
Order random_order(const Trace& trace, std::mt19937& random) {
  const Orders orders(trace);
  Order order = orders.traced();
  for (std::size_t i = 0; i < 4 * order.size(); ++i)
    orders.move(order, random() % order.size(), random() % order.size());
  return order;
}

TEST(Orders, OfSchedulesAndChangesKeepDependences) {
  std::mt19937 random(5);
  std::size_t changed = 0;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const Trace trace = step(seed);
    const Orders orders(trace);
    std::vector<Order> all = orders.listed({peak_bytes(trace).value / 3});
    all.push_back(random_order(trace, random));
    for (const Order& one : all) {
      ASSERT_EQ(misplaced(trace, one), std::nullopt) << seed;
      ASSERT_EQ(misplaced(trace, orders.joined(one, random() % one.size(), all.back())), std::nullopt) << seed;
    }
    if (all.back() != orders.traced()) ++changed;
  }
  EXPECT_GE(changed, 20u);  // of some steps no other order is legal
}

TEST(Orders, AreJudgedAndReplayedAsTheStepInThatOrder) {
  std::mt19937 random(6);
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const Trace trace = step(seed);
    const Machine machine = tight(trace);
    const Order order = random_order(trace, random);
    const Trace other = reordered(trace, order);
    auto plan = make_policy("belady", 1)->prepare(other, machine);
    ASSERT_TRUE(plan) << seed;
    const auto expected = replay(other, machine, *plan);
    ASSERT_EQ(check(other, machine, *plan), std::nullopt) << seed;
    plan->order = order;
    ASSERT_EQ(check(trace, machine, *plan), std::nullopt) << seed;
    const auto replayed = replay(trace, machine, *plan);
    ASSERT_TRUE(replayed && expected) << seed;
    EXPECT_EQ(replayed->step_times, expected->step_times) << seed;
    EXPECT_EQ(replayed->bytes_in, expected->bytes_in) << seed;
    EXPECT_EQ(replayed->peak, expected->peak) << seed;
    std::shuffle(plan->order.begin(), plan->order.end(), random);
    EXPECT_TRUE(check(trace, machine, *plan)) << seed;
    EXPECT_FALSE(replay(trace, machine, *plan)) << seed;
  }
}

TEST(Orders, OfPlansAreLegalAndNoSlower) {
  std::size_t faster = 0;
  for (const char* name : {"swapadvisor", "vedette"}) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      const Trace trace = step(seed);
      Machine machine = tight(trace);
      const auto plan = make_policy(name, 1)->prepare(trace, machine);
      ASSERT_TRUE(plan) << name << seed;
      const auto violation = check(trace, machine, *plan);
      ASSERT_FALSE(violation) << name << seed << violation->message;
      EXPECT_EQ(*make_policy(name, 1)->prepare(trace, machine), *plan) << name << seed;
      machine.can_reorder = false;
      const auto traced = make_policy(name, 1);
      const auto as_traced = replay(trace, machine, *traced, {.keep_plan = true});
      ASSERT_TRUE(as_traced) << name << seed;
      EXPECT_THAT(as_traced->plan->order, ::testing::IsEmpty()) << name << seed;
      const auto replayed = replay(trace, machine, *plan);
      ASSERT_TRUE(replayed) << name << seed;
      if (std::string_view(name) == "vedette") {
        EXPECT_LE(replayed->measured.time, as_traced->measured.time) << seed;
      }
      if (replayed->measured.time < as_traced->measured.time) ++faster;
    }
  }
  EXPECT_GE(faster, 2u);
}

// Each weight's update follows its gradient: no gradient waits for the optimizer, and no weight is read a second time.
TEST(Orders, BringUpdatesToTheirGradients) {
  Trace trace;
  constexpr std::uint32_t layers = 12;
  for (std::uint32_t t = 0; t < 2 * layers + 1; ++t)
    trace.tensors.push_back({.name = "t", .bytes = {1 << 20}, .persistent = t < layers});
  for (std::uint32_t l = 0; l < layers; ++l)
    trace.ops.push_back({.name = "backward",
                         .time = {1'000'000},
                         .reads = l == 0 ? std::vector<TensorIndex>{{l}} : std::vector<TensorIndex>{{l}, {2 * layers}},
                         .writes = {{layers + l}, {2 * layers}}});
  for (std::uint32_t l = 0; l < layers; ++l)
    trace.ops.push_back({.name = "update", .time = {1'000'000}, .reads = {{l}, {layers + l}}, .writes = {{l}}});
  Machine machine = testing::two_tiers({6 << 20});
  const auto traced = replay(trace, machine, *make_policy("vedette", 1));
  const Nanoseconds bound = lower_bound(trace, machine);
  machine.can_reorder = true;
  const auto other = replay(trace, machine, *make_policy("vedette", 1), {.keep_plan = true});
  ASSERT_TRUE(traced && other);
  EXPECT_LT(other->measured.time, bound);  // which is of the traced order
  EXPECT_LE(bound, traced->measured.time);
  EXPECT_FALSE(other->plan->order.empty());
}

}  // namespace
}  // namespace vedette::orders_test
