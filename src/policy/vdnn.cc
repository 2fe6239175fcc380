// vDNN: Rhu, Gimelshein, Clemons, Zulfiqar, Keckler, "vDNN: Virtualized Deep Neural Networks for Scalable,
// Memory-Efficient Neural Network Design", MICRO'16. The text was not at hand: rules are from memory.
//
// Kept: the unit is the input of a layer, an activation that forward leaves for backward; it is offloaded after its
//   last consumer in forward, and the next layer begins when it is out. While a layer of backward runs, the nearest
//   offloaded inputs of the layers before it (in forward's order), not past the next convolution, are fetched; the next
//   layer waits for them. Weights and gradients stay. vdnn-all offloads every input, vdnn-conv those of convolutions,
//   vdnn-dyn tries to offload nothing, then conv, then all, and takes the first that fits.
// Changed: an input is offloaded when its last reader has ended, not while it runs, because a plan's moves start at op
//   boundaries. Where everything fits, nothing moves. Where a fetch a layer ahead does not fit, it is issued when it
//   does. In a trace without convolutions the ops that read weights count as such.
// Partial: the choice of cuDNN algorithms (memory- or performance-optimal, and vdnn-dyn's downgrade layer by layer): a
//   trace has one time and one workspace an op.
//
// Cost of prepare: O((gaps + ops) log), a dozen times that where there is no plan, to say from which size there is one.
#include <algorithm>

#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/phases.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

enum class Inputs : std::uint8_t { all, convolutions, dynamic };

class Vdnn final : public TrialPolicy {
 public:
  Vdnn(std::string_view name, Inputs inputs)
      : TrialPolicy(name, "what is not a layer's input may not move"), inputs_(inputs) {}

 private:
  std::optional<Plan> plan(const Trace& trace, const Machine& machine) const override {
    std::optional<Plan> found;
    if (inputs_ != Inputs::all) found = offload(trace, machine, true);
    if (!found && inputs_ != Inputs::convolutions) found = offload(trace, machine, false);
    return found;
  }

  static std::optional<Plan> offload(const Trace& trace, const Machine& machine, bool convolutions_only) {
    Ledger ledger(trace, machine);
    const std::vector<std::uint32_t> layer = layer_numbers(trace);
    const std::vector<bool> heavy = convolutions(trace);
    for (const std::uint32_t g : saved_gaps(ledger, first_backward_op(trace))) {
      const Gap& gap = ledger.gaps()[g];
      if (convolutions_only && !read_by(ledger, gap.tensor, heavy)) continue;
      Absence away = ledger.shortest(g);
      const auto tier = ledger.tier_for(g, away.leave);
      if (!tier) continue;
      away.tier = *tier;
      away.gone = std::min(end_of_layer(layer, gap.after), gap.before - 1);
      away.back = std::max(fetch_begins(layer, heavy, gap.before), away.gone);
      ledger.leave(g, away);
    }
    if (!ledger.settle([](const Gap& gap) { return gap.dead; })) return std::nullopt;
    return ledger.write();
  }

  static bool read_by(const Ledger& ledger, std::uint32_t tensor, const std::vector<bool>& heavy) {
    const std::vector<Use>& uses = ledger.uses().tensors[tensor].uses;
    return std::any_of(uses.begin() + 1, uses.end(), [&](const Use& use) { return heavy[use.op]; });
  }

  static std::uint32_t end_of_layer(const std::vector<std::uint32_t>& layer, std::uint32_t op) {
    std::uint32_t end = op + 1;
    while (end < layer.size() && layer[end] == layer[op]) ++end;
    return end;
  }

  // The begin of the layer before that of `op`, or of one further back while no convolution lies between.
  static std::uint32_t fetch_begins(const std::vector<std::uint32_t>& layer, const std::vector<bool>& heavy,
                                    std::uint32_t op) {
    std::uint32_t begin = op;
    while (begin > 0 && layer[begin - 1] == layer[op]) --begin;
    while (begin > 0) {
      const std::uint32_t before = layer[begin - 1];
      bool convolution = false;
      while (begin > 0 && layer[begin - 1] == before) convolution = heavy[--begin] || convolution;
      if (convolution) break;
    }
    return begin;
  }

  Inputs inputs_;
};

}  // namespace

std::unique_ptr<Policy> make_vdnn_all(std::uint64_t) { return std::make_unique<Vdnn>("vdnn-all", Inputs::all); }
std::unique_ptr<Policy> make_vdnn_conv(std::uint64_t) {
  return std::make_unique<Vdnn>("vdnn-conv", Inputs::convolutions);
}
std::unique_ptr<Policy> make_vdnn_dyn(std::uint64_t) { return std::make_unique<Vdnn>("vdnn-dyn", Inputs::dynamic); }

}  // namespace vedette
