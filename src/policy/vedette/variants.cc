#include "policy/vedette/variants.h"

#include <algorithm>
#include <utility>

namespace vedette::planning {
namespace {

constexpr std::size_t most_variants = 4;

std::uint64_t fingerprint_of(const Recomputed& recomputed) {
  std::uint64_t fingerprint = 1;
  for (const Recomputation& each : recomputed.recomputations)
    fingerprint = mixed(mixed(mixed(fingerprint, each.before.value), each.producer.value), each.tensor.value);
  for (const Move& drop : recomputed.drops)
    fingerprint = mixed(mixed(fingerprint, drop.issue.value), drop.extent.tensor.value);
  return fingerprint;
}

}  // namespace

const Variants::Smaller& Variants::smaller(std::uint32_t share) {
  Smaller& made = smaller_[share];
  if (made.recomputer) return made;
  made.machine = machine_;
  made.machine.tiers[0].capacity.value = machine_.tiers[0].capacity.value / all_of_it * share;
  if (share == all_of_it) made.machine.tiers[0].capacity = machine_.tiers[0].capacity;
  made.setting = setting_;
  made.setting.budget = static_cast<std::int64_t>(made.machine.tiers[0].capacity.value);
  made.recomputer = std::make_unique<Recomputer>(trace_, made.machine);
  return made;
}

const Variant& Variants::of(const RecomputeRule& rule, std::uint32_t share, std::uint64_t best) {
  for (const Variant& each : variants_) {
    if (each.rule == rule && each.share == share) return each;
  }
  if (rule.shares_at != 0) smaller(share).recomputer->find_shares(smaller(share).setting, rule.shares_at);
  Variant made{.rule = rule,
               .share = share,
               .recomputed = smaller(share).recomputer->apply(rule),
               .parts = {},
               .uses = {},
               .step = {}};
  made.fingerprint = mixed(fingerprint_of(made.recomputed), share);
  for (Variant& each : variants_) {  // another rule with the same outcome: nothing has to be cut again
    if (each.fingerprint != made.fingerprint) continue;
    each.rule = rule;
    return each;
  }
  made.parts = split(made.recomputed.trace,
                     features_.parts ? part_bytes(static_cast<std::uint64_t>(setting_.budget), setting_.granule)
                                     : rounded(peak_bytes(trace_).value, setting_.granule));
  made.uses = uses_of(made.parts.trace);
  made.step = sim::flatten(made.parts.trace);
  variants_.push_front(std::move(made));
  if (variants_.size() > most_variants) {
    variants_.erase(variants_.end() - (variants_.back().fingerprint == best ? 2 : 1));
  }
  return variants_.front();
}

}  // namespace vedette::planning
