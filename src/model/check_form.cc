// Rules of single entries: see check_form.h.
#include "model/check_form.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/dependences.h"

namespace vedette {
namespace {

std::string digits(std::uint64_t value) { return std::to_string(value); }

class Form {
 public:
  Form(const Trace& trace, const Machine& machine, const Plan& plan) : trace_(trace), machine_(machine), plan_(plan) {}

  std::optional<Violation> judge() {
    well_formed();
    if (!found_) due_after_issue();
    if (!found_) allowed();
    return found_;
  }

 private:
  void broken(Rule rule, std::string message) {
    if (!found_) found_ = Violation{rule, std::move(message)};
  }

  // Tensors, ops and tiers that the plan names exist.

  bool tensor_exists(TensorIndex t) const { return t.value < trace_.tensors.size(); }
  bool op_exists(OpIndex i) const { return i.value < trace_.ops.size(); }
  bool tier_exists(TierIndex k) const { return k.value < machine_.tiers.size(); }

  void well_formed() {
    if (machine_.tiers.empty() || machine_.granule.value == 0)
      broken(Rule::well_formed, "the machine has no tier, or a granule of 0");
    for (std::size_t i = 0; i < trace_.ops.size(); ++i) well_formed_op(i);
    if (plan_.paging && (plan_.block.value == 0 || !(plan_.moves.empty() && plan_.in_place.empty() &&
                                                     plan_.recomputations.empty() && plan_.order.empty())))
      broken(Rule::well_formed, "the plan leaves paging to the driver, and says more than the size of its blocks");
    if (plan_.home.size() != trace_.tensors.size())
      broken(Rule::well_formed, "the plan does not have one home for each tensor");
    for (TierIndex tier : plan_.home) {
      if (!tier_exists(tier))
        broken(Rule::well_formed, "a home is tier " + digits(tier.value) + ", which the machine lacks");
    }
    if (!found_ && plan_.reserved > machine_.tiers[0].capacity)
      broken(Rule::well_formed, "more is reserved than the fastest tier has");
    for (std::size_t m = 0; m < plan_.moves.size() && !found_; ++m) well_formed_move(m);
    for (const InPlace& each : plan_.in_place) {
      if (!op_exists(each.op) || !tensor_exists(each.tensor) || !tier_exists(each.tier)) {
        broken(Rule::well_formed, "an operand in place names an op, a tensor or a tier that is not there");
      } else if (each.tier.value != 0 && !machine_.tiers[each.tier.value].addressable) {
        broken(Rule::well_formed, "tensor " + digits(each.tensor.value) + " is used in place in tier " +
                                      digits(each.tier.value) + ", which is not addressable");
      }
    }
    for (const OpIndex op : plan_.barriers) {
      if (!op_exists(op)) broken(Rule::well_formed, "a barrier is at op " + digits(op.value) + ", which is not there");
    }
    for (const Recomputation& each : plan_.recomputations) {
      if (!op_exists(each.before) || !op_exists(each.producer) || !tensor_exists(each.tensor)) {
        broken(Rule::well_formed, "a recomputation names an op or a tensor that is not there");
      } else if (!std::ranges::count(trace_.ops[each.producer.value].writes, each.tensor)) {
        broken(Rule::well_formed,
               "op " + digits(each.producer.value) + " does not write tensor " + digits(each.tensor.value));
      }
    }
    well_formed_order();
  }

  void well_formed_op(std::size_t i) {
    for (const auto* list : {&trace_.ops[i].reads, &trace_.ops[i].writes, &trace_.ops[i].frees}) {
      for (TensorIndex t : *list) {
        if (!tensor_exists(t))
          broken(Rule::well_formed, "op " + digits(i) + " names tensor " + digits(t.value) + ", which is not there");
      }
    }
  }

  void well_formed_move(std::size_t m) {
    const Move& move = plan_.moves[m];
    const std::string who = "move " + digits(m);
    if (!op_exists(move.issue) || !op_exists(move.due) || !tensor_exists(move.extent.tensor) ||
        !tier_exists(move.source) || !tier_exists(move.target)) {
      return broken(Rule::well_formed, who + " names an op, a tensor or a tier that is not there");
    }
    if (m > 0 && plan_.moves[m - 1].issue > move.issue)
      return broken(Rule::well_formed, who + " is issued before the move in front of it");
    if (move.verb == Verb::fetch && move.target >= move.source)
      return broken(Rule::well_formed, who + " fetches to a tier that is not faster");
    if (move.verb == Verb::evict && move.target <= move.source)
      return broken(Rule::well_formed, who + " evicts to a tier that is not slower");
    if (move.verb != Verb::drop && !machine_.link(move.source, move.target)) {
      return broken(Rule::well_formed, who + " goes from tier " + digits(move.source.value) + " to tier " +
                                           digits(move.target.value) + ", which no link joins");
    }
    if (!move.extent.part) return;
    const Span<Bytes> part = *move.extent.part;
    const Bytes size = trace_.tensors[move.extent.tensor.value].bytes;
    const auto at_granule = [&](Bytes place) { return place.value % machine_.granule.value == 0 || place == size; };
    if (part.begin >= part.end || part.end > size || !at_granule(part.begin) || !at_granule(part.end)) {
      broken(Rule::well_formed, who + " has a part that is empty, outside the tensor, or not made of whole granules");
    }
  }

  void well_formed_order() {
    if (plan_.order.empty()) return;
    std::vector<OpIndex> sorted = plan_.order;
    std::ranges::sort(sorted);
    bool permutation = sorted.size() == trace_.ops.size();
    for (std::uint32_t i = 0; i < sorted.size(); ++i) permutation = permutation && sorted[i] == OpIndex{i};
    if (!permutation) broken(Rule::well_formed, "the order does not name each op once");
  }

  // A fetch may be issued and due at one op: the op waits. An evict or drop starts when its op has ended, so its due is
  // another op; in a step of one op that is the same op, one step later.
  void due_after_issue() {
    for (std::size_t m = 0; m < plan_.moves.size(); ++m) {
      const Move& move = plan_.moves[m];
      if (move.verb == Verb::evict && move.issue == move.due && trace_.ops.size() > 1) {
        broken(Rule::due_after_issue, "move " + digits(m) + " starts when op " + digits(move.issue.value) +
                                          " has ended and is due before it begins");
      }
    }
  }

  void allowed() {
    if (!plan_.recomputations.empty() && !machine_.can_recompute)
      broken(Rule::allowed, "the plan recomputes, which this machine cannot do yet");
    if (plan_.order.empty()) return;
    if (!machine_.can_reorder)
      return broken(Rule::allowed, "the plan has an order of its own, which this machine cannot do yet");
    std::vector<std::size_t> place(trace_.ops.size());
    for (std::size_t i = 0; i < plan_.order.size(); ++i) place[plan_.order[i].value] = i;
    for (std::size_t later = 0; later < place.size(); ++later) {
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        if (place[earlier] > place[later] && depends(trace_.ops[later], trace_.ops[earlier])) {
          broken(Rule::allowed,
                 "op " + digits(later) + " is placed before op " + digits(earlier) + ", which it has to follow");
        }
      }
    }
  }

  static bool touches(const Op& op, TensorIndex t) {
    return std::ranges::count(op.reads, t) || std::ranges::count(op.writes, t) || std::ranges::count(op.frees, t);
  }
  static bool depends(const Op& one, const Op& other) {
    const auto writes_for = [](const Op& a, const Op& b) {
      return std::ranges::any_of(a.writes, [&](TensorIndex t) { return touches(b, t); });
    };
    const Turn turn = turn_of(one), turn_of_other = turn_of(other);
    return writes_for(one, other) || writes_for(other, one) || turn == Turn::fence || turn_of_other == Turn::fence ||
           (turn == Turn::in_turn && turn_of_other == Turn::in_turn);
  }

  const Trace& trace_;
  const Machine& machine_;
  const Plan& plan_;
  std::optional<Violation> found_;
};

}  // namespace

std::optional<Violation> check_form(const Trace& trace, const Machine& machine, const Plan& plan) {
  return Form(trace, machine, plan).judge();
}

}  // namespace vedette
