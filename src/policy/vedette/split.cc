// Tensors to parts, and a plan's parts back to tensors.
#include "policy/vedette/split.h"

#include <algorithm>
#include <utility>

#include "policy/canvas/uses.h"

namespace vedette::planning {

std::uint64_t part_bytes(std::uint64_t budget, std::uint64_t granule) {
  constexpr std::uint64_t parts_of_budget = 48;  // 2 to 4 MiB of 100 MiB; 24 to 96 differ little
  return rounded(std::max<std::uint64_t>(1, budget / parts_of_budget), granule);
}

Split split(const Trace& trace, std::uint64_t part_bytes) {
  Split made;
  std::vector<Span<std::uint32_t>> parts(trace.tensors.size());
  made.trace.tensors.reserve(trace.tensors.size()), made.extents.reserve(trace.tensors.size());
  made.trace.ops.reserve(trace.ops.size());
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const Tensor& tensor = trace.tensors[t];
    const std::uint64_t bytes = tensor.bytes.value;
    const bool whole = tensor.persistent || bytes <= part_bytes + part_bytes / 2;
    parts[t].begin = static_cast<std::uint32_t>(made.extents.size());
    for (std::uint64_t begin = 0; begin < bytes || begin == 0;) {
      const std::uint64_t end = whole ? bytes : std::min(bytes, begin + part_bytes);
      made.trace.tensors.push_back({.bytes = {end - begin}, .kind = tensor.kind, .persistent = tensor.persistent});
      made.extents.push_back({.tensor = {t}});
      if (!whole) made.extents.back().part = Span<Bytes>{{begin}, {end}};
      begin = end;
      if (whole) break;
    }
    parts[t].end = static_cast<std::uint32_t>(made.extents.size());
  }
  const auto all_of = [&](const std::vector<TensorIndex>& tensors) {
    std::vector<TensorIndex> all;
    all.reserve(tensors.size());
    for (TensorIndex t : tensors) {
      for (std::uint32_t p = parts[t.value].begin; p < parts[t.value].end; ++p) all.push_back({p});
    }
    return all;
  };
  for (const Op& op : trace.ops) {
    made.trace.ops.push_back({.phase = op.phase,
                              .time = op.time,
                              .workspace = op.workspace,
                              .reads = all_of(op.reads),
                              .writes = all_of(op.writes),
                              .frees = all_of(op.frees)});
  }
  return made;
}

Split split_taking_ops(Trace& trace, std::uint64_t part_bytes) {
  const bool whole = std::all_of(trace.tensors.begin(), trace.tensors.end(), [&](const Tensor& tensor) {
    return tensor.persistent || tensor.bytes.value <= part_bytes + part_bytes / 2;
  });
  if (!whole) return split(trace, part_bytes);
  Split made;
  made.trace.tensors = trace.tensors;
  made.trace.ops = std::move(trace.ops);
  made.extents.reserve(trace.tensors.size());
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) made.extents.push_back({.tensor = {t}});
  return made;
}

Plan joined(const Trace& trace, const Split& split, const Plan& plan) {
  Plan whole = plan;
  whole.home.assign(trace.tensors.size(), {0});
  for (std::size_t p = 0; p < split.extents.size(); ++p) {
    if (!split.extents[p].part) whole.home[split.extents[p].tensor.value] = plan.home[p];
  }
  for (Move& move : whole.moves) move.extent = split.extents[move.extent.tensor.value];
  return whole;
}

}  // namespace vedette::planning
