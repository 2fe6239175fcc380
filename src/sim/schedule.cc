// A plan by ops.
#include "sim/schedule.h"

#include <optional>
#include <string>

#include "model/producers.h"

namespace vedette::sim {
namespace {

std::optional<Error> missing(const Trace& trace, const Machine& machine, const Plan& plan) {
  for (std::uint32_t m = 0; m < plan.moves.size(); ++m) {
    const Move& move = plan.moves[m];
    const bool there = move.issue.value < trace.ops.size() && move.due.value < trace.ops.size() &&
                       move.extent.tensor.value < trace.tensors.size() && move.source.value < machine.tiers.size() &&
                       move.target.value < machine.tiers.size() &&
                       (move.verb == Verb::drop || machine.link(move.source, move.target) != nullptr);
    if (!there)
      return Error{Cause::malformed_input, "replay: move " + std::to_string(m) + " names what does not exist"};
  }
  for (const Recomputation& each : plan.recomputations) {
    if (each.before.value >= trace.ops.size() || each.producer.value >= trace.ops.size() ||
        each.tensor.value >= trace.tensors.size())
      return Error{Cause::malformed_input, "replay: a recomputation names what does not exist"};
  }
  for (TierIndex home : plan.home) {
    if (home.value >= machine.tiers.size())
      return Error{Cause::malformed_input, "replay: a home is a tier that does not exist"};
  }
  return std::nullopt;
}

}  // namespace

Result<Schedule> schedule(const Trace& trace, const Machine& machine, const Plan& plan) {
  if (!plan.recomputations.empty() && !machine.can_recompute)
    return Error{Cause::unsupported, "replay: the plan recomputes, which this machine cannot do"};
  if (!plan.home.empty() && plan.home.size() != trace.tensors.size())
    return Error{Cause::malformed_input, "replay: the plan's home does not name each tensor of the trace"};
  if (auto error = missing(trace, machine, plan)) return *error;
  const std::size_t ops = trace.ops.size();
  std::vector<InPlace> in_place;
  for (const InPlace& each : plan.in_place) {
    if (each.op.value < ops) in_place.push_back(each);
  }
  const auto number = [](std::size_t i) { return i; };
  Schedule made{
      .issued = Grouped(
          ops, plan.moves.size(), [&](std::size_t m) { return plan.moves[m].issue.value; }, number),
      .due = Grouped(
          ops, plan.moves.size(), [&](std::size_t m) { return plan.moves[m].due.value; }, number),
      .in_place = Grouped(
          ops, in_place.size(), [&](std::size_t i) { return in_place[i].op.value; },
          [&](std::size_t i) { return in_place[i].tensor.value; }),
      .recomputed = Grouped(
          ops, plan.recomputations.size(), [&](std::size_t r) { return plan.recomputations[r].before.value; }, number)};
  if (!plan.recomputations.empty()) made.producers = producers(trace);
  if (!plan.barriers.empty()) made.barrier.resize(ops);
  for (OpIndex each : plan.barriers) {
    if (each.value < ops) made.barrier[each.value] = 1;
  }
  return made;
}

TouchedPages::TouchedPages(const Trace& trace) : trace_(trace) {
  if (trace.pages.empty()) return;
  first_access_.assign(trace.ops.size() + 1, 0);
  std::uint32_t at = 0;
  for (std::uint32_t op = 0; op <= trace.ops.size(); ++op) {
    while (at < trace.pages.size() && trace.pages[at].op.value < op) ++at;
    first_access_[op] = at;
  }
}

bool TouchedPages::look_up(std::uint32_t op, std::uint32_t tensor, Span<std::uint64_t> bytes) const {
  bool tracked = false;
  for (std::uint32_t a = first_access_[op]; a < first_access_[op + 1]; ++a) {
    const PageAccess& access = trace_.pages[a];
    if (access.tensor.value != tensor) continue;
    tracked = true;
    const std::uint64_t page = trace_.page_bytes.value;
    if (access.pages.begin * page < bytes.end && bytes.begin < access.pages.end * page) return true;
  }
  return !tracked;
}

}  // namespace vedette::sim
