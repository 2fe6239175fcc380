// The plans of all policies on the toy traces, byte for byte: redesigns change none.
#include "support/goldens.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "cli/sha256.h"
#include "support/traces.h"
#include "vedette/machine.h"
#include "vedette/policy.h"

namespace vedette::goldens_test {
namespace {

// Each field of the plan that a replay or a guard reads, in words.
std::string words(const Plan& plan) {
  std::string text;
  const auto number = [&](std::uint64_t value) { text += std::to_string(value) + ' '; };
  for (const TierIndex home : plan.home) number(home.value);
  for (const Move& move : plan.moves) {
    const Span<Bytes> part = move.extent.part.value_or(Span<Bytes>{});
    number(move.issue.value), number(move.due.value), number(move.extent.tensor.value);
    number(part.begin.value), number(part.end.value);
    number(move.source.value), number(move.target.value), number(static_cast<std::uint64_t>(move.verb));
  }
  text += "in place ";
  for (const InPlace& each : plan.in_place) number(each.op.value), number(each.tensor.value), number(each.tier.value);
  text += "recomputes ";
  for (const Recomputation& each : plan.recomputations)
    number(each.before.value), number(each.producer.value), number(each.tensor.value);
  text += "order ";
  for (const OpIndex op : plan.order) number(op.value);
  number(plan.reserved.value);
  number(static_cast<std::uint64_t>(plan.fallback)), number(static_cast<std::uint64_t>(plan.after_life));
  number(plan.one_copy ? 1 : 0), number(plan.block.value);
  text += "barriers ";
  for (const OpIndex op : plan.barriers) number(op.value);
  number(plan.paging ? plan.paging->window + 1 : 0);
  return text;
}

Machine of_preset(std::string_view name, Bytes fast) {
  for (const MachinePreset& preset : machine_presets()) {
    if (preset.name != name) continue;
    Machine machine = preset.make();
    machine.tiers[0].capacity = fast;
    return machine;
  }
  return {};
}

std::string planned(const PolicyEntry& entry, const Trace& trace, const Machine& machine) {
  const Result<Plan> plan = make_policy(entry.name, 1)->prepare(trace, machine);
  return plan.ok() ? words(*plan) : "cannot";
}

// At the least memory that each op fits into, and a quarter, half and three quarters of the way to all; and at a
// quarter over two slower tiers.
TEST(Goldens, PlansOfAllPoliciesAreThose) {
  testing::Goldens found;
  for (const PolicyEntry& entry : policies()) {
    for (const auto& file : testing::toy_trace_files()) {
      const Trace trace = testing::load_trace(file);
      const std::uint64_t least = testing::smallest_fast_tier(trace, {4096}).value,
                          most = testing::ample_fast_tier(trace, {4096}).value;
      std::string two_tiers;
      for (const std::uint64_t quarter : {0u, 1u, 2u, 3u})
        two_tiers += planned(entry, trace, testing::two_tiers({least + (most - least) * quarter / 4})) + '\n';
      const std::string three_tiers = planned(entry, trace, of_preset("a100-g10", {least + (most - least) / 4}));
      found[std::string(entry.name) + ' ' + file.stem().string()] =
          cli::sha256(two_tiers).substr(0, 16) + ' ' + cli::sha256(three_tiers).substr(0, 16);
    }
  }
  testing::expect_goldens("policy/goldens.txt", found);
}

}  // namespace
}  // namespace vedette::goldens_test
