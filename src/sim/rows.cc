// Tables by their chunks, as a session treats them (src/session, src/engine). The plan leaves them alone and leaves
// them room. Their next use is unknown, so that the chunk touched longest ago leaves before anything planned. A chunk
// that leaves is written, because it may have changed.
#include "sim/rows.h"

#include <algorithm>
#include <string>

namespace vedette::sim {

InRows in_rows(const Trace& trace, const Rows& rows, Bytes fast_memory) {
  InRows made{.planned = trace, .run = trace};
  const std::uint64_t held = rows.held.value,
                      free = (fast_memory.value - std::min(fast_memory.value, held)) / rows.chunk.value;
  Tensor& near = made.planned.tensors[rows.always_near.value];
  near.bytes = {held + room_for_rows(free, (near.bytes.value - held) / rows.chunk.value) * rows.chunk.value};
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
          operands[access.op.value].push_back({.tensor = first + c, .read = true, .write = true});
      }
    }
  }
  return made;
}

Result<Plan> AsLive::prepare(const Trace& run, const Machine& machine) {
  auto plan = policy_.prepare(rows_.planned, machine);
  if (plan && !plan->home.empty()) plan->home.resize(run.tensors.size());  // near, as far as there is room
  return plan;
}

Reaction AsLive::react(const Event& event, const View& view) {
  if (event.kind != Event::Kind::step_ended) return {};
  return policy_.react(event, {.trace = rows_.planned, .machine = view.machine});
}

}  // namespace vedette::sim
