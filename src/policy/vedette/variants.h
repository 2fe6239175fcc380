// The traces that a search plans for: some tensors recomputed, the rest cut into parts, for a share of the memory. The
// latest few are kept, and the best one's. Pure.
#pragma once
#include <cstdint>
#include <deque>
#include <map>

#include "policy/canvas/op_times.h"
#include "policy/canvas/uses.h"
#include "policy/vedette/choice.h"
#include "policy/vedette/features.h"
#include "policy/vedette/recompute.h"
#include "policy/vedette/split.h"
#include "policy/vedette/sweep.h"
#include "sim/step.h"
#include "vedette/model.h"

namespace vedette::planning {

struct Variant {
  RecomputeRule rule;
  Decided decided;
  Recomputed recomputed;  // its trace may lack the ops, which are in `parts` then
  Split parts;
  Uses uses;
  Costs costs;
  sim::Step step;
  std::uint64_t fingerprint = 0;  // the same where the same is recomputed
  std::int64_t ops_ns = 0;        // of its ops, recomputation included
  bool is_cut = false;
};

class Variants {
 public:
  // All four outlive it.
  Variants(const Trace& trace, const Machine& machine, const Setting& setting, const Features& features)
      : trace_(trace),
        setting_(setting),
        features_(features),
        recomputer_(trace, machine),
        ops_ns_(time_of_ops(trace).value) {}

  // The result lives until the next call; that of the fingerprint `best` is made once, while others come and go. Its
  // trace is not made yet: many a variant takes too long by its ops alone, or was tried before.
  Variant& of(const RecomputeRule& rule, std::uint64_t best);
  void cut(Variant& variant) const;             // sets what comes of `decided`, once
  const Setting& setting(std::uint32_t share);  // with a share of the memory
  const Recomputer& recomputer() const { return recomputer_; }

 private:
  const Trace& trace_;
  const Setting& setting_;
  const Features& features_;
  Recomputer recomputer_;
  std::int64_t ops_ns_;  // without recomputation
  std::map<std::uint32_t, Setting> smaller_;
  std::deque<Variant> variants_;  // the best one's, and the latest
};

}  // namespace vedette::planning
