// FlashNeuron: Bae, Lee, Jin, Son, Kim, Jang, Ham, Lee, "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep
// Neural Networks", FAST'21, with its scheduler as published (SNU-ARC/flashneuron) and the form of it that G10's
// artifact compares with.
//
// Kept: only activations that forward leaves for backward are offloaded, to the furthest tier (the SSD; the host is not
//   used). Linear selection: in forward order, until the rest fits beside weights and the largest op. Backward begins
//   when every offload has ended. Fetches are one queue in the order of backward, each as early as there is room.
//   Weights never move: where they and the largest op do not fit, there is no plan. The same where they fit but some op
//   does not (the selection's arithmetic is over the whole forward pass, not op by op).
// Changed: the published code gives 0.6 of the free bytes to tensors that stay; here, as in G10's artifact, all. The
//   two-ended arena is the allocator's affair, not a plan's. Where everything fits, nothing moves.
// Partial: compression. The paper un-selects tensors that cannot be compressed (CSR for ReLU outputs, FP16) when
//   offloading takes longer than forward; a trace does not say which tensors can be.
//
// G10's artifact simulates another form under this name: flashneuron_of_g10.cc.
//
// Cost of prepare: O((gaps + ops) log), a dozen times that where there is no plan, to say from which size there is one.
#include <algorithm>

#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/phases.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class FlashNeuron final : public TrialPolicy {
 public:
  FlashNeuron() : TrialPolicy("flashneuron", "what it may not move does not fit") {}

 private:
  // nullopt: weights, the largest op, and unchosen tensors do not fit at some op.
  std::optional<Plan> plan(const Trace& trace, const Machine& machine) const override {
    Ledger ledger(trace, machine);
    const Bytes beside = resident_bytes(ledger);
    if (beside >= machine.tiers[0].capacity) return std::nullopt;
    offload(ledger, first_backward_op(trace), ledger.capacity() - static_cast<std::int64_t>(beside.value));
    if (!ledger.settle([](const Gap& gap) { return gap.dead; })) return std::nullopt;
    return ledger.write();
  }

  // Weights, and the largest sum of one op's operands.
  static Bytes resident_bytes(const Ledger& ledger) {
    Bytes sum = least_capacity(ledger);
    for (std::uint32_t t = 0; t < ledger.trace().tensors.size(); ++t) {
      if (ledger.trace().tensors[t].persistent && !ledger.uses().tensors[t].uses.empty()) sum += Bytes{ledger.size(t)};
    }
    return sum;
  }

  void offload(Ledger& ledger, std::uint32_t border, std::int64_t budget) const {
    std::vector<std::uint32_t> saved = saved_gaps(ledger, border);
    std::int64_t remain = 0;
    for (const std::uint32_t g : saved) remain += static_cast<std::int64_t>(ledger.size(ledger.gaps()[g].tensor));
    const auto birth = [&](std::uint32_t g) { return ledger.uses().tensors[ledger.gaps()[g].tensor].birth; };
    std::stable_sort(saved.begin(), saved.end(), [&](std::uint32_t a, std::uint32_t b) { return birth(a) < birth(b); });
    std::vector<std::uint32_t> chosen;
    for (const std::uint32_t g : saved) {
      if (remain < budget) break;
      Absence out = ledger.shortest(g);
      const auto tier = ledger.tier_for(g, out.leave, Ledger::From::furthest);
      if (!tier) continue;
      out.tier = *tier;
      ledger.leave(g, out);
      chosen.push_back(g);
      remain -= static_cast<std::int64_t>(ledger.size(ledger.gaps()[g].tensor));
    }
    queue_evictions(ledger);
    for (const std::uint32_t g : chosen) {
      Absence out = *ledger.absence(g);
      out.gone = std::min(out.gone, std::max(border, out.leave + 1));  // backward waits for all offloads
      ledger.leave(g, out);
    }
    fetch_in_order(ledger, chosen, border);
  }

  // One queue: a fetch is issued when those before it are and when there is room for it until it is used.
  static void fetch_in_order(Ledger& ledger, std::vector<std::uint32_t> chosen, std::uint32_t border) {
    std::stable_sort(chosen.begin(), chosen.end(), [&](std::uint32_t a, std::uint32_t b) {
      return ledger.gaps()[a].before < ledger.gaps()[b].before;
    });
    std::uint32_t head = border;
    for (const std::uint32_t g : chosen) {
      Absence out = *ledger.absence(g);
      const std::uint32_t before = ledger.gaps()[g].before;
      head = std::max(head, out.gone);
      const auto size = static_cast<std::int64_t>(ledger.size(ledger.gaps()[g].tensor));
      std::uint32_t back = before;
      if (back > head) {
        const auto full = ledger.last_over(head, before, ledger.capacity() - size);
        back = full ? *full + 1 : head;
      }
      out.back = std::max(back, out.gone);
      head = std::max(head, back);
      ledger.leave(g, out);
    }
  }
};

}  // namespace

std::unique_ptr<Policy> make_flashneuron(std::uint64_t) { return std::make_unique<FlashNeuron>(); }

}  // namespace vedette
