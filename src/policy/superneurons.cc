// SuperNeurons: Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, "SuperNeurons: Dynamic GPU Memory Management for Training
// Deep Neural Networks", PPoPP'18, after the paper's abstract and the published code (linnanwang/superneurons-release).
//
// Kept: liveness (tensors without a later use are freed). Checkpoints are the results of layers that compute heavily;
//   everything between two of them is dropped after forward and recomputed in backward. A segment whose forward bytes
//   stay within the largest layer's need is made once and kept (speed-centric), a larger one tensor by tensor
//   (memory-centric). Only checkpoints are offloaded, when forward has used them last; they come back one checkpoint
//   ahead. A tensor cache stands before all: nothing leaves while there is room, then the least recently used.
// Changed: recomputation is taken up segment by segment, first the cheapest a byte, until the step fits, not
//   everywhere. A segment is recomputed as far as its means allow; under "memory-centric" what other ops of the segment
//   need later stays dropped only where the trace holds it dead. Where the machine cannot recompute, the cache moves
//   those tensors too.
// Partial: the choice of convolution algorithms by the workspace that is left.
//
// Cost of prepare: O(saved tensors * producers + (gaps + ops) log).
#include <algorithm>

#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/phases.h"
#include "policy/canvas/recompute.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class SuperNeurons final : public LedgerPolicy {
 public:
  SuperNeurons() : LedgerPolicy("superneurons") {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    for (const bool recompute : {true, false}) {
      Ledger tried(ledger.trace(), ledger.machine());
      Recompute again(tried);
      if (recompute && again.possible()) drop_between_checkpoints(tried, again);
      offload_checkpoints(tried, again);
      const auto may = [&](const Gap& gap) {
        return !again.pinned(static_cast<std::uint32_t>(&gap - tried.gaps().data()));
      };
      if (tried.settle(may, false)) return again.write();
    }
    return no_room(ledger);
  }

  static bool over(const Ledger& ledger, const Gap& gap) {
    return ledger.most(gap.after + 1, gap.before) > ledger.capacity();
  }

  static void drop_between_checkpoints(Ledger& ledger, Recompute& again) {
    const std::vector<bool> checkpoint = convolutions(ledger.trace());
    struct Dropped {
      double cost;
      std::uint32_t gap;
    };
    std::vector<Dropped> order;
    for (const std::uint32_t g : saved_gaps(ledger, first_backward_op(ledger.trace()))) {
      const Gap& gap = ledger.gaps()[g];
      if (checkpoint[ledger.uses().tensors[gap.tensor].birth]) continue;
      if (const auto chain = again.chain(g))
        order.push_back({static_cast<double>(chain->time) / static_cast<double>(ledger.size(gap.tensor) + 1), g});
    }
    std::stable_sort(order.begin(), order.end(), [](const Dropped& a, const Dropped& b) { return a.cost < b.cost; });
    for (const Dropped& each : order) {
      if (ledger.fits()) return;
      if (again.pinned(each.gap) || !over(ledger, ledger.gaps()[each.gap])) continue;
      const auto chain = again.chain(each.gap);
      const std::uint32_t before = ledger.gaps()[each.gap].before;
      if (chain && ledger.load(before) + chain->bytes <= ledger.capacity()) again.drop(each.gap, *chain);
    }
  }

  static void offload_checkpoints(Ledger& ledger, const Recompute& again) {
    const std::vector<bool> checkpoint = convolutions(ledger.trace());
    for (const std::uint32_t g : saved_gaps(ledger, first_backward_op(ledger.trace()))) {
      const Gap& gap = ledger.gaps()[g];
      if (ledger.fits()) return;
      if (ledger.absence(g) || again.pinned(g) || !checkpoint[ledger.uses().tensors[gap.tensor].birth] ||
          !over(ledger, gap))
        continue;
      Absence away = ledger.shortest(g);
      const auto tier = ledger.tier_for(g, away.leave);
      if (!tier) continue;
      away.tier = *tier;
      std::uint32_t ahead = gap.before - 1;
      while (ahead > away.gone && !checkpoint[ahead]) --ahead;
      away.back = std::max(ahead, away.gone);
      if (away.back == away.gone) away.back = gap.before;
      ledger.leave(g, away);
    }
    queue_evictions(ledger);
  }
};

}  // namespace

std::unique_ptr<Policy> make_superneurons(std::uint64_t) { return std::make_unique<SuperNeurons>(); }

}  // namespace vedette
