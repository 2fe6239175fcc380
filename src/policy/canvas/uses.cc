// When each tensor is used, born and dead.
#include "policy/canvas/uses.h"

#include <algorithm>

namespace vedette::planning {
namespace {

// The operands of all ops in a row, each with the next use of its tensor.
void line_up(const Trace& trace, Uses& all) {
  std::size_t operands = 0;
  for (const Op& op : trace.ops) operands += op.reads.size() + op.writes.size();
  for (std::vector<std::uint32_t>* row : {&all.op_of, &all.tensor_of, &all.next}) row->reserve(operands);
  all.changes.reserve(operands), all.first_operand.reserve(trace.ops.size() + 1);
  all.first_operand.push_back(0);
  std::vector<std::uint32_t> first(trace.tensors.size(), Uses::never), last(trace.tensors.size(), Uses::never);
  std::vector<std::uint32_t>& row = all.tensor_of;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const auto& writes = trace.ops[i].writes;
    const std::size_t begin = row.size();
    for (const TensorIndex t : trace.ops[i].reads) row.push_back(t.value);
    for (const TensorIndex t : writes) row.push_back(t.value);
    std::sort(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end());
    row.erase(std::unique(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end()), row.end());
    for (std::size_t k = begin; k < row.size(); ++k) {
      const std::uint32_t t = row[k], here = static_cast<std::uint32_t>(k);
      all.op_of.push_back(i);
      all.next.push_back(Uses::never);
      all.changes.push_back(std::find(writes.begin(), writes.end(), TensorIndex{t}) != writes.end());
      if (last[t] == Uses::never) {
        first[t] = here;
      } else {
        all.next[last[t]] = here;
      }
      last[t] = here;
    }
    all.first_operand.push_back(static_cast<std::uint32_t>(row.size()));
  }
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    if (trace.tensors[t].persistent && last[t] != Uses::never)
      all.next[last[t]] = static_cast<std::uint32_t>(row.size()) + first[t];
  }
  all.operands = sim::Grouped(all.first_operand, row);
}

}  // namespace

Uses uses_of(const Trace& trace) {
  Uses all;
  line_up(trace, all);
  all.tensors.resize(trace.tensors.size());
  std::vector<std::uint32_t> count(trace.tensors.size()), freed(trace.tensors.size());
  for (const std::uint32_t t : all.tensor_of) ++count[t];
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) all.tensors[t].uses.reserve(count[t]);
  for (std::size_t k = 0; k < all.tensor_of.size(); ++k)
    all.tensors[all.tensor_of[k]].uses.push_back({all.op_of[k], all.changes[k] != 0});
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const TensorIndex t : trace.ops[i].frees) freed[t.value] = i;
  }
  std::vector<std::uint32_t> mortal;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    TensorUses& tensor = all.tensors[t];
    tensor.persistent = trace.tensors[t].persistent;
    if (tensor.persistent || tensor.uses.empty()) continue;
    tensor.birth = tensor.uses.front().op;
    // A free after the last access keeps dead bytes until then.
    tensor.death = std::max(tensor.uses.back().op, freed[t]);
    mortal.push_back(t);
  }
  const auto tensor = [&](std::size_t i) { return mortal[i]; };
  all.births = sim::Grouped(
      trace.ops.size(), mortal.size(), [&](std::size_t i) { return all.tensors[mortal[i]].birth; }, tensor);
  all.deaths = sim::Grouped(
      trace.ops.size(), mortal.size(), [&](std::size_t i) { return all.tensors[mortal[i]].death; }, tensor);
  return all;
}

}  // namespace vedette::planning
