// Tables by their chunks, as a session treats them (src/session, src/engine). The plan leaves them alone and leaves
// them room. Their next use is unknown, so that the chunk touched longest ago leaves before anything planned. A chunk
// that leaves is written, because it may have changed. Where ops can use slower memory in place, those that few steps
// touch lie there.
#include "sim/rows.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace vedette::sim {

InRows in_rows(const Trace& trace, const Rows& rows, Bytes fast_memory) {
  InRows made{.planned = trace, .run = trace};
  const std::uint64_t held = rows.held.value,
                      free = (fast_memory.value - std::min(fast_memory.value, held)) / rows.chunk.value;
  Tensor& near = made.planned.tensors[rows.always_near.value];
  made.room = room_for_rows(free, (near.bytes.value - held) / rows.chunk.value);
  near.bytes = {held + made.room * rows.chunk.value};
  made.run.tensors[rows.always_near.value].bytes = rows.held;
  const auto first = static_cast<std::uint32_t>(trace.tensors.size());
  for (std::uint32_t c = 0; c < rows.chunks; ++c) {
    Tensor& chunk = made.run.tensors.emplace_back();
    chunk.name = "chunk " + std::to_string(c);
    chunk.bytes = rows.chunk;
    chunk.kind = TensorKind::weight;
    chunk.persistent = true;
  }
  const Operands alike = flatten(trace).operands;
  for (const std::vector<RowAccess>& step : rows.steps) {
    Operands& operands = made.in_turn.emplace_back(alike);
    for (const RowAccess& access : step) {
      for (const auto [begin, end] : access.chunks) {
        for (std::uint32_t c = begin; c < end; ++c)
          operands[access.op.value].push_back({.tensor = first + c, .read = true, .write = true, .used = rows.touched});
      }
    }
  }
  return made;
}

// Chunks that few steps touch lie in slower memory for good, and ops use them there.
void AsLive::leave_cold_ones(Plan& plan, const Trace& run) const {
  constexpr TierIndex there{1};
  const std::size_t first = rows_.planned.tensors.size();
  plan.home.resize(run.tensors.size());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> steps;
  for (std::size_t t = first; t < run.tensors.size(); ++t) steps.emplace_back(static_cast<std::uint32_t>(t), 0);
  std::set<std::pair<std::uint32_t, std::uint32_t>> uses;  // op, tensor
  for (const Operands& step : rows_.in_turn) {
    std::set<std::uint32_t> touched;
    for (std::uint32_t op = 0; op < step.size(); ++op)
      for (const Operand& each : step[op])
        if (each.tensor >= first) touched.insert(each.tensor), uses.emplace(op, each.tensor);
    for (const std::uint32_t t : touched) ++steps[t - first].second;
  }
  const std::vector<std::uint32_t> hot = hot_chunks(steps, rows_.room);
  const auto is_hot = [&](std::uint32_t t) { return std::ranges::binary_search(hot, t); };
  for (const auto& [t, count] : steps)
    if (!is_hot(t)) plan.home[t] = there;
  for (const auto& [op, t] : uses)
    if (!is_hot(t)) plan.in_place.push_back({.op = {op}, .tensor = {t}, .tier = there});
  std::ranges::sort(plan.in_place, {}, [](const InPlace& each) { return std::pair(each.op, each.tensor); });
}

Result<Plan> AsLive::prepare(const Trace& run, const Machine& machine) {
  auto plan = policy_.prepare(rows_.planned, machine);
  if (plan && !plan->home.empty()) plan->home.resize(run.tensors.size());  // near, as far as there is room
  if (plan && machine.tiers.size() > 1 && machine.tiers[1].addressable) leave_cold_ones(*plan, run);
  return plan;
}

Reaction AsLive::react(const Event& event, const View& view) {
  if (event.kind != Event::Kind::step_ended) return {};
  return policy_.react(event, {.trace = rows_.planned, .machine = view.machine});
}

}  // namespace vedette::sim
