// OC-DNN: Awan, Chu, Subramoni, Lu, Panda, "OC-DNN: Exploiting Advanced Unified Memory Capabilities in CUDA 9 and Volta
// GPUs for Out-of-Core DNN Training", HiPC'18. The text was not at hand: rules are from memory.
//
// Kept: buffers are in unified memory; before each layer's op the buffers of the layer are prefetched, and those of the
//   layer before it are sent back, by commands inserted by hand. The rest is left to page faults, least recently
//   used first.
// Changed: the commands for a layer go out when the layer before it begins, as the paper's asynchronous prefetch does;
//   sent back is only what the next layer does not use, and only where room is short, because unified memory would
//   write it for nothing.
//
// Cost of prepare: O(steps * (accesses + evictions * resident tensors)).
#include <algorithm>

#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/phases.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class LayerAhead final : public OnlineRules {
 public:
  explicit LayerAhead(const Ledger& ledger)
      : layer_(layer_numbers(ledger.trace())), needed_(ledger.trace().tensors.size()) {
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      if (i == 0 || layer_[i] != layer_[i - 1]) begins_.push_back(i);
    }
  }

  bool spared(std::uint32_t now, std::uint32_t tensor) const override { return needed_[tensor] >= now; }

  void ready(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    const std::uint32_t op = now % ledger.ops(), step = now - op;
    const std::size_t next = (layer_[op] + 1) % begins_.size();
    const std::uint32_t begin = step + begins_[next] + (next == 0 ? ledger.ops() : 0);
    for (std::uint32_t i = begin; i < begin + ledger.ops() && layer_[i % ledger.ops()] == next; ++i) {
      for (const std::uint32_t t : ledger.uses().operands[i % ledger.ops()]) {
        needed_[t] = std::max(needed_[t], i);
        if (!residence.alive(t) || residence.near(t)) continue;
        if (!residence.make_room(static_cast<std::int64_t>(ledger.size(t)), Residence::all_but_spared) ||
            !residence.fetch(t))
          return;
      }
    }
  }

 private:
  std::vector<std::uint32_t> layer_, begins_, needed_;  // needed_[t]: until which op it was asked for
};

}  // namespace

std::unique_ptr<Policy> make_ocdnn(std::uint64_t) { return std::make_unique<OnlinePolicy<LayerAhead>>("oc-dnn", 4); }

}  // namespace vedette
