// The on-demand policy: no plan, and the tensors used longest ago leave when room is short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/traces.h"
#include "vedette/policy.h"

namespace vedette::on_demand_test {
namespace {

Trace small() {
  return {.tensors = {{.name = "a", .bytes = {10}, .persistent = true},
                      {.name = "b", .bytes = {20}, .persistent = true},
                      {.name = "c", .bytes = {30}, .persistent = true}},
          .ops = {{.name = "f", .reads = {{0}}},
                  {.name = "g", .reads = {{1}}},
                  {.name = "h", .reads = {{2}}},
                  {.name = "i", .reads = {{0}}}}};
}

std::vector<std::uint32_t> victims(Policy& policy, const Trace& trace, const Machine& machine, Bytes lacking,
                                   OpIndex op, std::vector<TierIndex> where) {
  const std::vector<Bytes> room(2);
  const Event event{.kind = Event::Kind::short_of_room, .op = op, .bytes = lacking};
  std::vector<std::uint32_t> found;
  for (const Move& move : policy.react(event, {trace, machine, where, room}).moves) {
    EXPECT_EQ(move.verb, Verb::evict);
    EXPECT_EQ(move.target, TierIndex{1});
    found.push_back(move.extent.tensor.value);
  }
  return found;
}

class OnDemand : public ::testing::Test {
 protected:
  void begin(std::uint32_t op) {
    const std::vector<TierIndex> where(3);
    const std::vector<Bytes> room(2);
    policy_->react({.kind = Event::Kind::op_begins, .op = {op}}, {trace_, machine_, where, room});
  }

  const Trace trace_ = small();
  const Machine machine_ = testing::two_tiers({64});
  std::unique_ptr<Policy> policy_ = make_policy("on-demand", 1);
};

TEST_F(OnDemand, EvictsWhatWasUsedLongestAgo) {
  for (std::uint32_t op : {0u, 1u, 2u, 3u}) begin(op);
  EXPECT_THAT(victims(*policy_, trace_, machine_, {20}, {3}, {{0}, {0}, {0}}), ::testing::ElementsAre(1));
  EXPECT_THAT(victims(*policy_, trace_, machine_, {21}, {3}, {{0}, {0}, {0}}), ::testing::ElementsAre(1, 2));
}

TEST_F(OnDemand, SparesTheOperandsOfTheRunningOp) {
  begin(0);
  EXPECT_THAT(victims(*policy_, trace_, machine_, {1000}, {0}, {{0}, {0}, {0}}), ::testing::ElementsAre(2, 1));
}

TEST_F(OnDemand, SparesWhatIsAway) {
  for (std::uint32_t op : {0u, 1u, 2u}) begin(op);
  EXPECT_THAT(victims(*policy_, trace_, machine_, {1000}, {2}, {{1}, {0}, {0}}), ::testing::ElementsAre(1));
}

TEST_F(OnDemand, PlansNoMoves) {
  const Plan plan = policy_->prepare(trace_, machine_).value();
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.home.size(), trace_.tensors.size());
}

}  // namespace
}  // namespace vedette::on_demand_test
