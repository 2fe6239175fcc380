// Gaps between uses, in the order in which a repeating step meets them.
#include "profiler/explain.h"

#include <algorithm>
#include <cstdio>

#include "base/readable.h"
#include "model/liveness.h"
#include "model/producers.h"

namespace vedette {
namespace {

std::string in_words(Nanoseconds time) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(time.value) / 1e6);
  return text;
}

class Explainer {
 public:
  Explainer(const Trace& units, const Machine& machine, const Plan& plan)
      : units_(units), machine_(machine), plan_(plan), uses_(uses(units)) {
    if (!plan.recomputations.empty()) producers_ = producers(units);
    starts_.push_back({0});
    for (const Op& op : units.ops) starts_.push_back(starts_.back() + op.time);
  }

  MoveBasis basis(const Move& move) const {
    MoveBasis found;
    const std::size_t ops = units_.ops.size();
    if (move.extent.tensor.value >= uses_.size() || move.issue.value >= ops || move.due.value > ops) return found;
    const Tensor& unit = units_.tensors[move.extent.tensor.value];
    const Bytes bytes = bytes_of(move.extent, units_);
    // An evict leaves after its issue op, a fetch is there before its due op.
    const std::uint32_t seam = move.verb == Verb::fetch ? move.due.value : move.issue.value + 1;
    look_around(uses_[move.extent.tensor.value], seam, unit.persistent, found);
    const Link* const link = machine_.link(move.source, move.target);
    if (move.verb != Verb::drop && link != nullptr)
      found.transfer = link->latency + transfer_time(bytes, link->bytes_per_s);
    found.slack = between(move.verb == Verb::fetch ? move.issue.value : move.issue.value + 1, move.due.value);
    found.reason = sentence(move, bytes, found);
    return found;
  }

 private:
  void look_around(const std::vector<OpIndex>& of, std::uint32_t seam, bool repeats, MoveBasis& found) const {
    const auto next = std::lower_bound(of.begin(), of.end(), OpIndex{seam});
    if (next != of.end())
      found.next_use = *next;
    else if (repeats && !of.empty())
      found.next_use = of.front();
    if (next != of.begin())
      found.last_use = *std::prev(next);
    else if (repeats && !of.empty())
      found.last_use = of.back();
    if (found.last_use && found.next_use) found.gap = between(found.last_use->value + 1, found.next_use->value);
  }

  // From the begin of op `from` to the begin of op `to`, which is in the next step when it is smaller.
  Nanoseconds between(std::uint32_t from, std::uint32_t to) const {
    const Nanoseconds straight = starts_[std::min<std::size_t>(to, starts_.size() - 1)] -
                                 starts_[std::min<std::size_t>(from, starts_.size() - 1)];
    return to >= from ? straight : straight + starts_.back();
  }

  std::string sentence(const Move& move, Bytes bytes, const MoveBasis& b) const {
    const std::string how_long = b.gap ? "not used for " + in_words(*b.gap) + " (after op " +
                                             std::to_string(b.last_use->value) + ", until op " +
                                             std::to_string(b.next_use->value) + ")"
                                       : std::string();
    if (const Recomputation* const made = move.verb == Verb::drop ? made_after(move) : nullptr)
      return how_long + recomputed(*made, bytes);
    if (move.verb == Verb::drop) return b.next_use ? how_long + ", and written before it is read" : "not read again";
    if (move.verb == Verb::evict) {
      const std::string cost = "; " + readable(bytes) + " take " + in_words(b.transfer) + " to leave";
      return (b.gap        ? how_long
              : b.next_use ? "not used before op " + std::to_string(b.next_use->value)
                           : "not used again") +
             cost;
    }
    return (b.next_use ? "op " + std::to_string(b.next_use->value) + " needs it" : std::string("its home is here")) +
           "; " + readable(bytes) + " take " + in_words(b.transfer) + ", issued " + in_words(b.slack) + " ahead";
  }

  // The first recomputation of the move's dropped tensor.
  const Recomputation* made_after(const Move& drop) const {
    const Recomputation* first = nullptr;
    for (const Recomputation& each : plan_.recomputations)
      if (each.tensor == drop.extent.tensor && each.before > drop.issue && each.producer.value < producers_.size() &&
          (first == nullptr || each.before < first->before))
        first = &each;
    return first;
  }

  std::string recomputed(const Recomputation& made, Bytes bytes) const {
    const Op& producer = producers_[made.producer.value];
    std::string text = ", and recomputed before op " + std::to_string(made.before.value) + ": op " +
                       std::to_string(made.producer.value) + " '" + producer.name + "' runs again in " +
                       in_words(producer.time);
    if (machine_.tiers.size() < 2) return text;
    const Link *out = machine_.link({0}, {1}), *in = machine_.link({1}, {0});
    if (out == nullptr || in == nullptr) return text;
    const Nanoseconds trip = transfer_time(bytes, out->bytes_per_s) + transfer_time(bytes, in->bytes_per_s);
    return text + ", where " + readable(bytes) + " out and in would keep the links busy for " + in_words(trip);
  }

  const Trace& units_;
  const Machine& machine_;
  const Plan& plan_;
  const std::vector<std::vector<OpIndex>> uses_;
  std::vector<Op> producers_;  // [op], where something is recomputed
  std::vector<Nanoseconds> starts_;
};

}  // namespace

std::vector<MoveBasis> explain(const Trace& units, const Machine& machine, const Plan& plan) {
  const Explainer explainer(units, machine, plan);
  std::vector<MoveBasis> found;
  for (const Move& move : plan.moves) found.push_back(explainer.basis(move));
  return found;
}

}  // namespace vedette
