// Facts of a trace and a machine that all of Sentinel's choices of intervals share: made once, used by each candidate.
// Pure.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "vedette/model.h"

namespace vedette::sentinel {

// A step cut into layers, or into groups of ops where layers are too large, and the tensors that live inside one of
// them.
struct Layered {
  std::vector<std::uint64_t> begins;  // the first op of each layer; one more entry at the end
  std::vector<char> brief_lived;      // [tensor]: lives inside one layer
  std::vector<std::uint64_t> brief;   // [op]: bytes of those, and workspace
};

class Facts {
 public:
  Facts(const Trace& trace, const Machine& machine, TierIndex slow);

  // Layers cut further, into groups of at most so many ops; 0: whole. Made when first asked for. O(accesses).
  const Layered& layered(std::uint32_t ops_per_group);
  std::span<const std::uint32_t> uses_of(std::uint32_t tensor) const {
    return std::span(uses_).subspan(first_use_[tensor], first_use_[tensor + 1] - first_use_[tensor]);
  }
  // Whether its k-th use changes the tensor, or makes it.
  bool changes(std::uint32_t tensor, std::size_t k) const { return changes_[first_use_[tensor] + k]; }

  std::vector<std::uint64_t> sizes;         // [tensor]: rounded up to the granule
  std::vector<std::int64_t> in_ns, out_ns;  // [tensor]: times of its fetch and its eviction; 0 without a link
  std::vector<Span<OpIndex>> lives;         // [tensor]
  std::vector<std::int64_t> began;          // [op]: when it begins without waiting; one more entry at the end

 private:
  const Trace& trace_;
  std::vector<bool> changes_;                    // of each of uses_
  std::vector<std::uint32_t> uses_, first_use_;  // ops of all tensors one after the other; where each tensor's begin
  std::map<std::uint32_t, Layered> layered_;
};

std::uint32_t layer_count(const Trace& trace);
std::uint32_t longest_layer(const Trace& trace);

// Largest sum over ops of operands, each rounded up to the granule, and workspace; and the op that needs it.
std::pair<Bytes, OpIndex> smallest_fast_tier(const Trace& trace, Bytes granule);

}  // namespace vedette::sentinel
