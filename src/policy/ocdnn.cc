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

#include "policy/canvas/phases.h"
#include "policy/canvas/residence.h"
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

  double worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) override {
    return residence.last_use(tensor);
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

class OutOfCore final : public Policy {
 public:
  std::string_view name() const noexcept override { return "oc-dnn"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(ledger)) return *error;
    if (ledger.fits()) return ledger.write();
    LayerAhead rules(ledger);
    if (!Residence(ledger, rules).play(4) || !ledger.settle({}, false)) return no_room(ledger);
    Plan plan = ledger.write();
    plan.fallback = Fallback::least_recent;
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_ocdnn(std::uint64_t) { return std::make_unique<OutOfCore>(); }

}  // namespace vedette
