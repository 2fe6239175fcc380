// The member functions of model.h's values, and sums over a trace.
#include "vedette/model.h"

#include <algorithm>
#include <string>

#include "model/dependences.h"
#include "model/liveness.h"

namespace vedette {

const Link* Machine::link(TierIndex source, TierIndex target) const noexcept {
  for (const Link& each : links) {
    if (each.source == source && each.target == target) return &each;
  }
  return nullptr;
}

std::uint32_t Machine::in_place_percent(std::string_view op) const noexcept {
  const auto found = std::ranges::lower_bound(in_place_prices, op, {}, &InPlacePrice::op);
  return found != in_place_prices.end() && found->op == op ? found->percent : 100;
}

Nanoseconds Machine::time_in_place(std::string_view op, TierIndex tier, Bytes read, Bytes written) const noexcept {
  const Link *const in = link(tier, {0}), *const out = link({0}, tier);
  std::int64_t time = 0;
  if (in != nullptr) time += transfer_time(read, in->bytes_per_s).value;
  if (out != nullptr) time += transfer_time(written, out->bytes_per_s).value;
  return {time / 100 * in_place_percent(op) + time % 100 * in_place_percent(op) / 100};
}

bool replayable(const Op& op) {
  const bool in_place = std::any_of(op.writes.begin(), op.writes.end(), [&](TensorIndex t) {
    return std::binary_search(op.reads.begin(), op.reads.end(), t);
  });
  if (in_place || op.runs_again) return !in_place && *op.runs_again;
  return !has_hidden_state(op);
}

Bytes peak_bytes(const Trace& trace) {
  const std::vector<Span<OpIndex>> living = lives(trace);
  std::vector<Bytes> born(trace.ops.size() + 1), died(trace.ops.size() + 1);
  for (std::size_t t = 0; t < living.size(); ++t) {
    born[living[t].begin.value] += trace.tensors[t].bytes;
    died[living[t].end.value] += trace.tensors[t].bytes;
  }
  Bytes live, peak;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    live += born[i];
    live -= died[i];
    peak = std::max(peak, live + trace.ops[i].workspace);
  }
  return peak;
}

Trace workspaces_as_tensors(Trace trace) {
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    Op& op = trace.ops[i];
    if (op.workspace.value == 0) continue;
    op.writes.push_back({static_cast<std::uint32_t>(trace.tensors.size())});  // the largest number so far: still sorted
    trace.tensors.push_back(
        {.name = "workspace" + std::to_string(i), .bytes = op.workspace, .kind = TensorKind::workspace});
    op.workspace = {};
  }
  return trace;
}

Bytes largest_op_bytes(const Trace& trace) {
  Bytes largest;
  for (const Op& op : trace.ops) {
    Bytes sum = op.workspace;
    for (TensorIndex tensor : operands(op)) sum += trace.tensors.at(tensor.value).bytes;
    largest = std::max(largest, sum);
  }
  return largest;
}

std::vector<std::optional<Span<OpIndex>>> lifetimes(const Trace& trace) {
  const std::vector<std::vector<OpIndex>> all = uses(trace);
  std::vector<std::optional<Span<OpIndex>>> result(all.size());
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (!all[t].empty()) result[t] = Span<OpIndex>{all[t].front(), {all[t].back().value + 1}};
  }
  return result;
}

}  // namespace vedette
