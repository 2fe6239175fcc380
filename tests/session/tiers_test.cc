// Three levels live: fast memory, host memory and a disk. The same loop ends with the same bytes; counters and events
// say which level they went to; plans for three tiers are made, accepted and followed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "session/loop.h"
#include "tier/store.h"
#include "vedette/check.h"
#include "vedette/observer.h"
#include "vedette/replay.h"

namespace vedette::tiers_test {
namespace {

using testing::Loop;
using testing::open_session;
using testing::Outcome;

constexpr Bytes chunk = 64_KiB;
constexpr std::uint64_t steps = 7;

class Witness final : public Observer {
 public:
  void opened(const Machine& told, std::string_view, Bytes, Bytes) override { machine = told; }
  void planned(std::uint64_t step, std::uint64_t, const Trace& units, const Plan& made) override {
    // The last plan's first step may begin with what it leaves still near.
    plan_that_leaves_ran_twice_ |= leaves_ && step > began_ + 1;
    began_ = step, leaves_ = !made.in_place.empty();
    plans.push_back(made);
    traces.push_back(units);
  }
  void moved(const MoveRecord& record) override {
    if (record.verb != Verb::drop) sums_[record.verb == Verb::fetch][record.slow] += record.bytes.value;
  }
  void step_ended(std::uint64_t, Nanoseconds, const Counters& of_step) override { last = of_step; }

  std::uint64_t moved_bytes(Verb verb, std::uint32_t tier) const { return sums_[verb == Verb::fetch][tier]; }
  bool planned_a_move(Verb verb, TierIndex source, TierIndex target) const {
    for (const Plan& plan : plans)
      for (const Move& move : plan.moves)
        if (move.verb == verb && move.source == source && move.target == target) return true;
    return false;
  }

  bool a_plan_that_leaves_ran_twice(std::uint64_t end) const {
    return plan_that_leaves_ran_twice_ || (leaves_ && end > began_ + 1);
  }

  Machine machine;
  std::vector<Plan> plans;
  std::vector<Trace> traces;
  Counters last;

 private:
  std::uint64_t began_ = 0;  // the last plan
  bool leaves_ = false, plan_that_leaves_ran_twice_ = false;
  std::atomic<std::uint64_t> sums_[2][3] = {};  // [fetches?][slow tier]
};

void look_at_nothing(const Counters&) {}

// `at_end`: with the counters, once nothing moves. `count`: steps; none: until one runs by a plan, which a busy machine
// makes later.
Outcome run(Bytes budget, const std::string& slow, const std::string& policy, Witness* observer = nullptr,
            const std::function<void(const Counters&)>& at_end = look_at_nothing,
            std::optional<std::uint64_t> count = steps) {
  constexpr std::uint64_t too_many = 2000;
  Outcome outcome;
  const auto session = open_session(budget, slow, policy, chunk, observer, &outcome.messages);
  Loop loop(*session, 10, 400'000);
  const auto goes_on = [&](std::uint64_t step) {
    return step < count.value_or(steps) || (!count && session->phase() != "planned" && step < too_many);
  };
  for (std::uint64_t step = 0; goes_on(step); ++step) outcome.losses.push_back(loop.step(step));
  outcome.state = loop.state();
  for (bool still = false; !still; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    outcome.counters = session->counters();
    at_end(outcome.counters);
    still = outcome.counters == session->counters();
  }
  return outcome;
}

class ThreeTiers : public ::testing::TestWithParam<const char*> {};

TEST_P(ThreeTiers, EndWithTheSameBytesAndCountThemByLevel) {
  const Outcome plenty = run(64_MiB, "host", GetParam());
  const Bytes budget{plenty.counters.peak_bytes.value * 3 / 10};
  for (const char* const host : {"host:1MiB", "host:4MiB", "host:64MiB"}) {
    SCOPED_TRACE(host);
    Witness witness;
    bool agrees = false;
    const auto compare = [&](const Counters& c) {
      agrees = witness.moved_bytes(Verb::fetch, 1) == c.bytes_in.value - c.far_bytes_in.value &&
               witness.moved_bytes(Verb::fetch, 2) == c.far_bytes_in.value &&
               witness.moved_bytes(Verb::evict, 1) == c.bytes_out.value - c.far_bytes_out.value &&
               witness.moved_bytes(Verb::evict, 2) == c.far_bytes_out.value;
    };
    const Outcome tight =
        run(budget, std::string(host) + "+nvme:" + ::testing::TempDir(), GetParam(), &witness, compare);
    EXPECT_TRUE(agrees) << "events tell the same tiers as the counters";
    EXPECT_EQ(plenty, tight);
    EXPECT_THAT(tight.messages, ::testing::IsEmpty());
    const Counters& c = tight.counters;
    EXPECT_LE(c.resident_max_bytes.value, budget.value);
    EXPECT_GT(c.bytes_in.value, c.far_bytes_in.value) << "some came from host memory";
    EXPECT_LE(witness.last.far_bytes_in.value, witness.last.bytes_in.value);
    const bool holds_all = std::string_view(host) == "host:64MiB";
    EXPECT_EQ(c.far_bytes_out.value + c.moved_between_slow_tiers.value == 0, holds_all);
    EXPECT_EQ(c.far_bytes_in.value == 0, holds_all);
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, ThreeTiers, ::testing::Values("vedette", "on-demand", "sentinel"),
                         [](const auto& policy) {
                           std::string name = policy.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ThreeTiersPlanned, AMachineOfMeasuredLinksIsPlannedForAndThePlansTiersReachTheStore) {
  const Bytes budget{run(64_MiB, "host", "vedette").counters.peak_bytes.value * 3 / 10};
  bool dealt = false;
  // A plan deals between the tiers where host memory holds most of what leaves; measured links decide how much.
  for (std::uint64_t mib = 8; mib <= 16 && !dealt; ++mib) {
    SCOPED_TRACE(std::to_string(mib) + " MiB");
    Witness witness;
    const Outcome tight = run(budget, "host:" + std::to_string(mib) + "MiB+nvme:" + ::testing::TempDir(), "vedette",
                              &witness, look_at_nothing, std::nullopt);
    EXPECT_EQ(run(64_MiB, "host", "vedette", nullptr, look_at_nothing, tight.losses.size()), tight);
    const Machine& machine = witness.machine;
    ASSERT_EQ(machine.tiers.size(), 3u);
    EXPECT_EQ(machine.tiers[1].name, "host");
    const std::uint64_t slots = mib * 16 - layered_extra_depth;
    EXPECT_EQ(machine.tiers[1].capacity.value,
              (slots - spare_near_slots(static_cast<std::uint32_t>(slots))) * chunk.value);
    EXPECT_EQ(machine.tiers[2].name, "nvme");
    ASSERT_EQ(machine.links.size(), 4u);
    for (const Link& link : machine.links) EXPECT_GT(link.bytes_per_s, 0u);
    ASSERT_FALSE(witness.plans.empty());
    const auto broken = check(witness.traces[0], machine, witness.plans[0]);
    EXPECT_FALSE(broken.has_value()) << broken->message;
    dealt = witness.planned_a_move(Verb::evict, {0}, {1}) && witness.planned_a_move(Verb::evict, {0}, {2});
    if (!dealt) continue;
    EXPECT_GT(tight.counters.far_bytes_out.value, 0u) << "the plan's target reached the store";
  }
  if (!dealt) GTEST_SKIP() << "no plan for the links measured here deals between the tiers";
}

class ThreeTiersInPlace : public ::testing::TestWithParam<const char*> {};

// Memory in the middle that plays a CXL module. What the plan leaves there is used there; what the memory has no room
// for goes through it to the disk, and comes to an op as from any disk.
TEST_P(ThreeTiersInPlace, OpsUseTheMiddleOneWhereTheirOperandsLie) {
  const Outcome plenty = run(64_MiB, "host", GetParam());
  const Bytes budget{plenty.counters.peak_bytes.value * 4 / 10};
  for (const char* const host : {"host:2MiB", "host:6MiB", "host:64MiB"}) {
    SCOPED_TRACE(host);
    Witness witness;
    const Outcome tight =
        run(budget, std::string(host) + "@cxl-2025+nvme:" + ::testing::TempDir(), GetParam(), &witness);
    EXPECT_EQ(plenty, tight);
    EXPECT_THAT(tight.messages, ::testing::IsEmpty());
    const Counters& c = tight.counters;
    EXPECT_LE(c.resident_max_bytes.value, budget.value);
    ASSERT_EQ(witness.machine.tiers.size(), 3u);
    EXPECT_TRUE(witness.machine.tiers[1].addressable);
    EXPECT_FALSE(witness.machine.tiers[2].addressable);
    // Whether a plan leaves something there depends on this run's times. What one leaves is used there.
    EXPECT_TRUE(c.bytes_in_place.value > 0 || !witness.a_plan_that_leaves_ran_twice(steps));
    EXPECT_TRUE(c.far_bytes_out.value + c.moved_between_slow_tiers.value > 0 || std::string_view(host) != "host:2MiB");
    for (std::size_t p = 0; p < witness.plans.size(); ++p) {
      const auto replayed = replay(witness.traces[p], witness.machine, witness.plans[p]);
      ASSERT_TRUE(replayed) << replayed.error().message;
      for (const InPlace& each : witness.plans[p].in_place) EXPECT_EQ(each.tier, TierIndex{1});
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, ThreeTiersInPlace, ::testing::Values("vedette", "sentinel", "autotm", "belady"));

// The moments are to stay in the middle, and are nearly all that has room there: the weights go on to the disk and come
// from it, step for step, and never push them out.
TEST(ThreeTiersPlanned, WhatIsUsedInPlaceIsNotPushedOutToTheDisk) {
  constexpr std::size_t layers = 8, chunks = 5;
  std::vector<std::uint64_t> in_tiers;
  std::uint64_t steps = 24;  // more on a busy machine, which has its plan later
  for (const bool tight : {true, false}) {
    Witness witness;
    const std::string slow = "host:3MiB@cxl-2025+nvme:" + ::testing::TempDir();
    const auto session = open_session(tight ? 3_MiB : 64_MiB, tight ? slow : "host", "vedette", chunk, &witness);
    if (tight) {
      ASSERT_TRUE(session->place("*.moment", "slow", Session::Placement::rule).ok());
    }
    Loop loop(*session, layers, chunks * chunk.value);  // so that no two tensors share a chunk
    loop.give_names();
    const std::uint64_t in_place_of_a_step = layers * chunks * chunk.value;
    std::vector<std::uint64_t> losses;
    std::uint64_t settled = 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      losses.push_back(loop.step(step));
      settled += witness.last.bytes_in_place.value >= in_place_of_a_step ? 1 : 0;
      if (tight && step + 1 == steps && settled <= 8 && steps < 400) ++steps;
    }
    losses.push_back(loop.state());
    if (!tight) {
      EXPECT_EQ(losses, in_tiers);
      continue;
    }
    in_tiers = losses;
    ASSERT_FALSE(witness.plans.empty());
    const Plan& plan = witness.plans.back();
    const Trace& units = witness.traces.back();
    for (const Move& move : plan.moves) EXPECT_FALSE(units.tensors[move.extent.tensor.value].name.ends_with(".moment"));
    EXPECT_GT(settled, 8u) << "steps that used all moments where they lie";
    EXPECT_GT(witness.last.far_bytes_in.value, 0u) << "else nothing went on to the disk";
    EXPECT_LE(session->counters().resident_max_bytes.value, (3_MiB).value);
  }
}

TEST(ThreeTiersPlanned, MoreThanTheMiddleHasRoomForCannotBeMadeToStayThere) {
  std::vector<std::string> messages;
  const auto session =
      open_session(6_MiB, "host:2MiB@cxl-2025+nvme:" + ::testing::TempDir(), "vedette", chunk, nullptr, &messages);
  ASSERT_TRUE(session->place("*.moment", "slow", Session::Placement::rule).ok());
  Loop loop(*session, 8, 5 * chunk.value);
  loop.give_names();
  for (std::uint64_t step = 0; step < 6; ++step) loop.step(step);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], ::testing::HasSubstr("steps are planned without the rules"));
}

TEST(ThreeTiersPlanned, AMachineSaysTheInterferenceThatTheProgramSays) {
  for (const std::optional<std::uint32_t> percent : {std::optional<std::uint32_t>(), std::optional(7u)}) {
    Witness witness;
    SessionOptions options{.fast_memory = 2_MiB, .slow = "host", .chunk = chunk};
    options.observer = &witness;
    options.interference_percent = percent;
    ASSERT_TRUE(Session::open(options));
    EXPECT_EQ(witness.machine.interference_percent, percent);
  }
}

}  // namespace
}  // namespace vedette::tiers_test
