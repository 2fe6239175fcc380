// On demand: no plan at all. Ops wait for their operands, and when room is short the tensors used longest ago leave.
// Not from a paper: the textbook replacement policy, and an engine's rule before it knows better (warm-up steps).
//
// op_begins events mark uses. Ties go to the larger tensor, then to the smaller index. Cost: O(tensors log tensors)
// each time room is short.
#include <algorithm>
#include <tuple>
#include <vector>

#include "model/liveness.h"
#include "policy/makers.h"

namespace vedette {
namespace {

class OnDemand final : public Policy {
 public:
  std::string_view name() const noexcept override { return "on-demand"; }

  // No moves: persistent tensors start in the slowest tier, and the first op that needs it waits. Such a plan fails
  // check().
  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    used_.assign(trace.tensors.size(), 0);
    clock_ = 0;
    Plan plan;
    for (const Tensor& tensor : trace.tensors) plan.home.push_back(tensor.persistent ? slowest(machine) : TierIndex{0});
    return plan;
  }

  Reaction react(const Event& event, const View& view) override {
    used_.resize(view.trace.tensors.size(), 0);
    if (event.kind == Event::Kind::op_begins) use(view, event.op);
    if (event.kind == Event::Kind::touched_while_away || event.kind == Event::Kind::allocated)
      used_.at(event.tensor.value) = ++clock_;
    if (event.kind == Event::Kind::short_of_room) return make_room(event, view);
    return {};
  }

 private:
  static TierIndex slowest(const Machine& machine) { return {static_cast<std::uint32_t>(machine.tiers.size() - 1)}; }

  void use(const View& view, OpIndex op) {
    ++clock_;
    for (TensorIndex t : operands(view.trace.ops.at(op.value))) used_[t.value] = clock_;
  }

  // Tensors that lie in the fastest tier, without `busy`. View::where alone would count pieces that are dead or on
  // their way out, whose eviction frees nothing.
  static std::vector<TensorIndex> candidates(const View& view, const std::vector<TensorIndex>& busy) {
    std::vector<char> near(view.where.size(), view.extents.empty());
    for (const PlacedExtent& extent : view.extents)
      if (extent.state == PlacedExtent::State::resident) near.at(extent.tensor.value) = 1;
    std::vector<TensorIndex> found;
    for (std::uint32_t t = 0; t < view.where.size(); ++t) {
      if (near[t] != 0 && view.where[t].value == 0 && !std::binary_search(busy.begin(), busy.end(), TensorIndex{t}))
        found.push_back({t});
    }
    return found;
  }

  // Evicts until event.bytes are free, sparing the operands of the op that is running.
  Reaction make_room(const Event& event, const View& view) const {
    const std::vector<TensorIndex> busy =
        event.op.value < view.trace.ops.size() ? operands(view.trace.ops[event.op.value]) : std::vector<TensorIndex>{};
    std::vector<TensorIndex> victims = candidates(view, busy);
    const auto sooner = [&](TensorIndex a, TensorIndex b) {
      const Bytes size_a = view.trace.tensors[a.value].bytes, size_b = view.trace.tensors[b.value].bytes;
      return std::tuple(used_[a.value], size_b, a) < std::tuple(used_[b.value], size_a, b);
    };
    std::sort(victims.begin(), victims.end(), sooner);
    Reaction reaction;
    Bytes freed;
    for (TensorIndex victim : victims) {
      if (freed >= event.bytes) break;
      reaction.moves.push_back({.issue = event.op,
                                .due = event.op,
                                .extent = {.tensor = victim},
                                .source = {0},
                                .target = slowest(view.machine),
                                .verb = Verb::evict});
      freed += view.trace.tensors[victim.value].bytes;
    }
    return reaction;
  }

  std::vector<std::uint64_t> used_;  // [tensor]: the clock at its last use
  std::uint64_t clock_ = 0;          // ticks of op_begins
};

}  // namespace

std::unique_ptr<Policy> make_on_demand(std::uint64_t) { return std::make_unique<OnDemand>(); }

}  // namespace vedette
