#include "policy/vedette/variants.h"

#include <algorithm>
#include <utility>

#include "policy/canvas/op_times.h"

namespace vedette::planning {
namespace {

constexpr std::size_t most_variants = 8;

std::uint64_t fingerprint_of(const Decided& recomputed) {
  std::uint64_t fingerprint = mixed(1, recomputed.workspaces);
  for (const Recomputation& each : recomputed.recomputations)
    fingerprint = mixed(mixed(mixed(fingerprint, each.before.value), each.producer.value), each.tensor.value);
  for (const Move& drop : recomputed.drops)
    fingerprint = mixed(mixed(fingerprint, drop.issue.value), drop.extent.tensor.value);
  return fingerprint;
}

}  // namespace

const Setting& Variants::setting(std::uint32_t share) {
  if (share == all_of_it) return setting_;
  const auto [made, is_new] = smaller_.try_emplace(share, setting_);
  if (is_new) made->second.budget = setting_.budget / all_of_it * share;
  return made->second;
}

Variant& Variants::of(const RecomputeRule& rule, std::uint64_t best) {
  for (Variant& each : variants_) {
    if (each.rule == rule) return each;
  }
  if (rule.shares_at != 0) recomputer_.find_shares(setting_, rule.shares_at);
  Variant made{.rule = rule, .decided = recomputer_.decide(rule)};
  made.fingerprint = fingerprint_of(made.decided);
  for (Variant& each : variants_) {  // another rule with the same outcome: nothing has to be cut again
    if (each.fingerprint != made.fingerprint) continue;
    each.rule = rule;
    return each;
  }
  made.ops_ns = ops_ns_ + made.decided.ns;
  variants_.push_front(std::move(made));
  if (variants_.size() > most_variants) {
    variants_.erase(variants_.end() - (variants_.back().fingerprint == best ? 2 : 1));
  }
  return variants_.front();
}

void Variants::cut(Variant& variant) const {
  if (std::exchange(variant.is_cut, true)) return;
  variant.recomputed = recomputer_.apply(variant.decided);
  variant.parts =
      split_taking_ops(variant.recomputed.trace,
                       features_.parts ? part_bytes(static_cast<std::uint64_t>(setting_.budget), setting_.granule)
                                       : rounded(peak_bytes(trace_).value, setting_.granule));
  variant.uses = uses_of(variant.parts.trace);
  variant.costs = costs_of(variant.parts.trace, variant.uses, setting_);
  variant.step = sim::flatten(variant.parts.trace);
}

}  // namespace vedette::planning
