// Two profiles of the same step, matched: one that saw pages, of a step on the processor, and one that knows operands
// alone, of a step on a GPU, whose pages nothing sees. Ops are matched by name and order; where both tell the same
// bytes for each layer, what the pages of the one say holds for the other.
//
// Source of the matching: Myers, An O(ND) Difference Algorithm (Algorithmica 1986). Pure; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vedette/model.h"

namespace vedette {

struct LayerMatch {
  std::string layer;  // of the profile that saw pages; empty: the ops of no layer
  Phase phase = Phase::forward;
  std::uint32_t ops = 0;  // matched
  // Added up over the matched ops: of each, the bytes of its tensors that its pages cover, and those of its operands.
  Bytes by_pages, by_operands;
  bool operator==(const LayerMatch&) const = default;
};

struct ProfileMatch {
  std::vector<std::pair<OpIndex, OpIndex>> ops;  // of `pages` and of `operands`, in order
  std::vector<OpIndex> only_in_pages, only_in_operands;
  std::vector<LayerMatch> layers;  // in the order of their first op
};

// `pages` was profiled at each op. Tensors below `least` bytes count in neither. O((ops + D) D) for D ops that are in
// one profile alone.
ProfileMatch match_profiles(const Trace& pages, const Trace& operands, Bytes least = {});

}  // namespace vedette
