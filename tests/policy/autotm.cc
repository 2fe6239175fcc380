// AutoTM's two programs against brute force, and the plans that it makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/liveness.h"
#include "policy/autotm/one_tier.h"
#include "policy/autotm/program.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::autotm_test {
namespace {

constexpr std::uint64_t kilo = 4096;

// Small steps with up to six tensors, random uses and times.
Trace tiny(std::uint64_t seed) {
  std::uint64_t state = seed;
  const auto draw = [&](std::uint64_t below) {
    return (state = state * 6364136223846793005ULL + 1442695040888963407ULL, (state >> 33) % below);
  };
  Trace made;
  const auto tensors = static_cast<std::uint32_t>(3 + draw(4));
  for (std::uint32_t t = 0; t < tensors; ++t)
    made.tensors.push_back({.name = "t", .bytes = {kilo * (1 + draw(3))}, .kind = TensorKind::activation});
  for (std::uint32_t t = 0; t < tensors; ++t)
    made.ops.push_back({.name = "f", .time = {static_cast<std::int64_t>(500 + draw(9000))}, .writes = {{t}}});
  for (std::uint32_t t = tensors; t-- > 0;)
    made.ops.push_back({.name = "b", .time = {static_cast<std::int64_t>(500 + draw(9000))}, .reads = {{t}}});
  return made;
}

class BruteForce {
 public:
  BruteForce(planning::Ledger& ledger, const std::vector<autotm::Candidate>& candidates)
      : ledger_(ledger), candidates_(candidates) {}
  double best() {
    choose(0);
    return best_;
  }

 private:
  void choose(std::size_t c) {
    if (c == candidates_.size()) {
      if (ledger_.fits()) best_ = std::min(best_, autotm::objective(ledger_, candidates_, chosen_));
      return;
    }
    choose(c + 1);
    for (const std::uint32_t out : candidates_[c].out) {
      for (const std::uint32_t in : candidates_[c].in) {
        if (in < out + 2) continue;
        chosen_.push_back({.candidate = c, .out = out, .in = in});
        ledger_.leave(candidates_[c].gap, autotm::absence(ledger_, candidates_[c], chosen_.back()));
        choose(c + 1);
        ledger_.stay(candidates_[c].gap);
        chosen_.pop_back();
      }
    }
  }
  planning::Ledger& ledger_;
  const std::vector<autotm::Candidate>& candidates_;
  std::vector<autotm::Chosen> chosen_;
  double best_ = std::numeric_limits<double>::infinity();
};

TEST(AutoTm, EqualsBruteForceOnUpToSixTensors) {
  if (!autotm::solver_present()) GTEST_SKIP() << "this build has no COIN-OR Cbc (coinor-libcbc-dev)";
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Trace trace = tiny(seed);
    const Bytes least = testing::smallest_fast_tier(trace, {kilo});
    const Machine machine = testing::two_tiers(
        {(least.value + planning::Ledger(trace, testing::two_tiers({1})).peak().value) / 2 / kilo * kilo});
    planning::Ledger ledger(trace, machine);
    if (ledger.fits()) continue;
    // Few places a gap, so that trying all of them takes a moment.
    const std::vector<autotm::Candidate> found = autotm::candidates(ledger, 6, trace.tensors.size() > 4 ? 3 : 4);
    const auto solution = autotm::solve(ledger, found, 100'000);
    ASSERT_TRUE(solution.has_value()) << "seed " << seed;
    EXPECT_TRUE(solution->proven);
    const double best = BruteForce(ledger, found).best();
    if (std::isinf(best)) continue;  // nothing fits; the program then asks for as much as there is
    EXPECT_NEAR(solution->time, best, 1.0) << "seed " << seed;
    ++compared;
  }
  EXPECT_GT(compared, 4);
}

Machine whose_slow_memory_is_reached(Bytes capacity) {
  Machine machine = testing::two_tiers(capacity);
  machine.tiers[1].addressable = true;
  return machine;
}

// Of all sets of tensors whose rest fits at each op.
std::int64_t least_time_in_place(const Trace& trace, const Machine& machine) {
  const auto alive = lives(trace);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::uint32_t far = 0; far < 1U << trace.tensors.size(); ++far) {
    std::int64_t time = 0;
    bool fits = true;
    for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
      std::uint64_t near = trace.ops[i].workspace.value;
      for (std::uint32_t t = 0; t < trace.tensors.size(); ++t)
        if ((far >> t & 1) == 0 && alive[t].begin.value <= i && i < alive[t].end.value)
          near += trace.tensors[t].bytes.value;
      fits = fits && near <= machine.tiers[0].capacity.value;
      for (const auto& operands : {trace.ops[i].reads, trace.ops[i].writes})
        for (const TensorIndex t : operands)
          if ((far >> t.value & 1) != 0)
            time += transfer_time(trace.tensors[t.value].bytes, machine.link({1}, {0})->bytes_per_s).value;
    }
    if (fits) least = std::min(least, time);
  }
  return least;
}

TEST(AutoTmStatic, EqualsBruteForceOnUpToSixTensors) {
  if (!autotm::solver_present()) GTEST_SKIP() << "this build has no COIN-OR Cbc (coinor-libcbc-dev)";
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = tiny(seed);
    const Machine machine = whose_slow_memory_is_reached({peak_bytes(trace).value / 2 / kilo * kilo});
    const auto chosen = autotm::one_tier(trace, machine, 100'000, 0);
    ASSERT_TRUE(chosen.has_value());
    EXPECT_EQ(chosen->in_place.value, least_time_in_place(trace, machine));
    EXPECT_TRUE(chosen->proven);
    const Plan plan = autotm::plan_of(trace, machine, *chosen);
    const auto broken = check(trace, machine, plan);
    EXPECT_FALSE(broken.has_value()) << broken->message;
    std::int64_t all = chosen->in_place.value;
    for (const Op& op : trace.ops) all += op.time.value;
    const auto replayed = replay(trace, machine, plan);
    ASSERT_TRUE(replayed.ok()) << replayed.error().message;
    EXPECT_EQ(replayed->measured.time.value, all);
    EXPECT_EQ(replayed->bytes_in.value + replayed->bytes_out.value, 0u);
    compared += chosen->in_place.value > 0 ? 1 : 0;
  }
  EXPECT_GT(compared, 8);
}

TEST(AutoTmStatic, IsNoPlanWhereSlowMemoryCannotBeReachedOrWorkspacesDoNotFit) {
  Trace trace = tiny(3);
  EXPECT_FALSE(autotm::one_tier(trace, testing::two_tiers({kilo}), 100, 0).has_value());
  trace.ops[1].workspace = {16 * kilo};
  EXPECT_FALSE(autotm::one_tier(trace, whose_slow_memory_is_reached({8 * kilo}), 100, 0).has_value());
}

TEST(AutoTmStatic, IsNotThePlanWhereSlowMemoryIsTooSmallForIt) {
  if (!autotm::solver_present()) GTEST_SKIP() << "this build has no COIN-OR Cbc (coinor-libcbc-dev)";
  Trace trace;
  for (std::uint32_t t = 0; t < 4; ++t) {
    trace.tensors.push_back({.name = "w", .bytes = {4 * kilo}, .kind = TensorKind::weight, .persistent = true});
    trace.ops.push_back({.name = "mm", .time = {1'000}, .reads = {{t}}});
  }
  Machine machine = whose_slow_memory_is_reached({6 * kilo});
  for (Link& link : machine.links) link.latency = {1'000'000};
  machine.tiers[1].capacity = {8 * kilo};  // three of four tensors have 12
  const auto found = make_policy("autotm", 1)->prepare(trace, machine);
  const auto broken = found ? check(trace, machine, *found) : std::nullopt;
  EXPECT_FALSE(broken.has_value()) << broken->message;
}

// Weights that are read once a step, one after the other, and of which one fits. Each move takes the link's latency.
TEST(AutoTmStatic, IsThePlanWhereItsStepIsShorterThanOneOfMoves) {
  if (!autotm::solver_present()) GTEST_SKIP() << "this build has no COIN-OR Cbc (coinor-libcbc-dev)";
  Trace trace;
  for (std::uint32_t t = 0; t < 4; ++t) {
    trace.tensors.push_back({.name = "w", .bytes = {4 * kilo}, .kind = TensorKind::weight, .persistent = true});
    trace.ops.push_back({.name = "mm", .time = {1'000}, .reads = {{t}}});
  }
  Machine machine = whose_slow_memory_is_reached({6 * kilo});
  const auto plan_where_a_move_waits = [&](std::int64_t latency) {
    for (Link& link : machine.links) link.latency = {latency};
    Plan plan = make_policy("autotm", 1)->prepare(trace, machine).value();
    const auto broken = check(trace, machine, plan);
    EXPECT_FALSE(broken.has_value()) << broken->message;
    return plan;
  };
  const Plan fixed = plan_where_a_move_waits(1'000'000);
  EXPECT_TRUE(fixed.moves.empty()) << "each tensor lies in one tier";
  EXPECT_EQ(fixed.in_place.size(), 3u) << "one of four fits";
  ASSERT_FALSE(fixed.reasons.empty());
  EXPECT_TRUE(fixed.reasons.back().starts_with("static: 3 tensors")) << fixed.reasons.back();
  for (Op& op : trace.ops) op.time = {1'000'000};  // a move hides behind an op
  machine.tiers[0].capacity = {12 * kilo};
  machine.interference_percent = 0;
  EXPECT_TRUE(plan_where_a_move_waits(0).in_place.empty());
}

}  // namespace
}  // namespace vedette::autotm_test
