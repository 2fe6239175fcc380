// Our planner beside the published ones on steps of kinds that no given trace has: experts and adapters whose middle
// tier is full, and an eager step on a disk whose directions take turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "support/sanitized.h"
#include "support/step_kinds.h"
#include "support/traces.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::kinds_test {
namespace {

// They search for longer than a test may: scripts/ours_first.py compares with them. The last three run by a driver's
// rules (Plan::paging, or faults by blocks), so that their rows are no plans of this machine.
constexpr std::array left_out = {"autotm", "swapadvisor", "autoswap-swdoa", "unified-memory", "deepum+", "g10+"};

double percent_of_ideal(const Trace& trace, const Machine& machine, std::string_view policy) {
  const Result<Replayed> got = replay(trace, machine, *make_policy(policy, 1));
  if (!got.ok()) return 0;
  return 100 * static_cast<double>(got->ideal.value) / static_cast<double>(got->measured.time.value);
}

struct Best {
  std::string_view policy;
  double percent = 0;
};

Best best_of_the_others(const Trace& trace, const Machine& machine) {
  Best best;
  for (const PolicyEntry& entry : policies()) {
    if (entry.bound || entry.name == "vedette" || std::count(left_out.begin(), left_out.end(), entry.name)) continue;
    const double percent = percent_of_ideal(trace, machine, entry.name);
    if (percent > best.percent) best = {.policy = entry.name, .percent = percent};
  }
  return best;
}

void expect_ours_ahead(const Trace& trace, const Machine& machine) {
  constexpr double tie = 0.5;
  const double ours = percent_of_ideal(trace, machine, "vedette");
  const Best best = best_of_the_others(trace, machine);
  EXPECT_GE(ours, best.percent - tie) << best.policy << " with " << machine.tiers[0].capacity.value << " bytes";
}

Bytes share(const Trace& trace, std::uint64_t percent) { return {peak_bytes(trace).value * percent / 100}; }

// As if the ops took so many percent of their time.
Trace in_time(Trace trace, std::int64_t percent) {
  for (Op& op : trace.ops) op.time.value = op.time.value * percent / 100;
  return trace;
}

struct Sizes {
  std::int64_t time;  // percent, as the others
  std::uint64_t fast, middle = 0;
};

// The nearest of 128 cells that were compared when this was written (docs/policy.md), and others.
void expect_ours_ahead_over_a_full_middle_tier(const Sizes& each) {
  for (const Trace& kind : {testing::experts_step(6, 8), testing::adapters_step(12)}) {
    SCOPED_TRACE(kind.name + " of " + std::to_string(each.time) + " %");
    const Trace trace = in_time(kind, each.time);
    expect_ours_ahead(trace, testing::with_middle_tier(share(trace, each.fast), share(trace, each.middle)));
  }
}
TEST(Kinds, OverAFullMiddleTierNoPolicyIsAheadOfOurs) { expect_ours_ahead_over_a_full_middle_tier({800, 70, 40}); }
TEST(Kinds, OverAFullMiddleTierNoPolicyIsAheadOfOursWhereOpsAreFast) {
  expect_ours_ahead_over_a_full_middle_tier({400, 55, 20});
  expect_ours_ahead_over_a_full_middle_tier({200, 25, 60});
}

// What the optimizer's last ops use comes and goes beside ops that hide no transfers: it has to stay, and activations
// move in its place.
TEST(Kinds, OnADiskWithOneBusNoPolicyIsAheadOfOurs) {
  for (const Sizes& each : {Sizes{50, 35}, {75, 35}, {75, 30}, {100, 35}, {125, 35}}) {
    if (testing::sanitized && each.time != 100) continue;
    SCOPED_TRACE(std::to_string(each.time) + " %");
    const Trace trace = in_time(testing::eager_step(24), each.time);
    expect_ours_ahead(trace, testing::on_a_disk(share(trace, each.fast)));
  }
}

}  // namespace
}  // namespace vedette::kinds_test
