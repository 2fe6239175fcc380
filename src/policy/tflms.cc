// TFLMS: Le, Imai, Negishi, Kawachiya, "TFLMS: Large Model Support in TensorFlow by Graph Rewriting", arXiv 1807.02037
// (2018), and the v2 that tunes itself by simulation; parameters are from memory.
//
// Kept: an activation that a far consumer reads (its distance in ops at least `swapout_threshold`) gets a swap-out
//   after its producer's last near consumer and a swap-in before the far one, started by a control dependency on the op
//   `lb` before it. n_tensors of them are rewritten, the furthest first. v2: thresholds and lb are chosen by simulating
//   candidates.
// Changed: distance is counted in the order of ops, since a trace is no graph. n_tensors is the smallest that fits.
//   Weights stay, as in the rewritten graphs.
//
// Cost of prepare: O(candidates * (gaps + ops) log), a dozen times that where there is no plan, to say from which size
// there is one.
#include <algorithm>

#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class TfLms final : public TrialPolicy {
 public:
  TfLms() : TrialPolicy("tflms", "only activations with a far consumer may move") {}

 private:
  std::optional<Plan> plan(const Trace& trace, const Machine& machine) const override {
    std::optional<Plan> best;
    std::int64_t least = 0;
    for (const std::uint32_t threshold : {16U, 4U, 2U}) {
      for (const std::uint32_t lb : {1U, 2U, 5U, 10U, 20U}) {
        Ledger ledger(trace, machine);
        if (!rewrite(ledger, threshold, lb)) continue;
        const std::int64_t time = predicted_time(ledger);
        if (!best || time < least) best = ledger.write(), least = time;
      }
      if (best) break;
    }
    return best;
  }

  static bool rewrite(Ledger& ledger, std::uint32_t threshold, std::uint32_t lb) {
    std::vector<std::uint32_t> far;
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
      const Gap& gap = ledger.gaps()[g];
      if (!gap.dead && !ledger.trace().tensors[gap.tensor].persistent && gap.before - gap.after >= threshold)
        far.push_back(g);
    }
    const auto distance = [&](std::uint32_t g) { return ledger.gaps()[g].before - ledger.gaps()[g].after; };
    std::stable_sort(far.begin(), far.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return distance(a) > distance(b); });
    for (const std::uint32_t g : far) {
      if (ledger.fits()) break;
      const Gap& gap = ledger.gaps()[g];
      if (ledger.most(gap.after + 1, gap.before) <= ledger.capacity()) continue;
      Absence away = ledger.shortest(g);
      const auto tier = ledger.tier_for(g, away.leave);
      if (!tier) continue;
      away.tier = *tier;
      if (gap.before - lb > away.gone && lb < gap.before) away.back = gap.before - lb;
      ledger.leave(g, away);
    }
    queue_evictions(ledger);
    return ledger.settle([](const Gap& gap) { return gap.dead; });
  }
};

}  // namespace

std::unique_ptr<Policy> make_tflms(std::uint64_t) { return std::make_unique<TfLms>(); }

}  // namespace vedette
