// When each tensor is used, born and dead.
#include "policy/canvas/uses.h"

#include <algorithm>

namespace vedette::planning {
namespace {

void add_use(TensorUses& tensor, std::uint32_t op, bool write) {
  if (!tensor.uses.empty() && tensor.uses.back().op == op) {
    tensor.uses.back().write |= write;
  } else {
    tensor.uses.push_back({op, write});
  }
}

// The operands of all ops in a row, each with the next use of its tensor.
void line_up(const Trace& trace, Uses& all) {
  std::vector<std::uint32_t> first(trace.tensors.size(), Uses::never), last(trace.tensors.size(), Uses::never);
  std::size_t operands = 0;
  for (const std::vector<std::uint32_t>& each : all.operands) operands += each.size();
  for (std::vector<std::uint32_t>* row : {&all.op_of, &all.tensor_of, &all.next}) row->reserve(operands);
  all.changes.reserve(operands), all.first_operand.reserve(trace.ops.size() + 1);
  all.first_operand.push_back(0);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const auto& writes = trace.ops[i].writes;
    for (const std::uint32_t t : all.operands[i]) {
      const auto here = static_cast<std::uint32_t>(all.op_of.size());
      all.op_of.push_back(i);
      all.tensor_of.push_back(t);
      all.next.push_back(Uses::never);
      all.changes.push_back(std::find(writes.begin(), writes.end(), TensorIndex{t}) != writes.end());
      if (last[t] == Uses::never) {
        first[t] = here;
      } else {
        all.next[last[t]] = here;
      }
      last[t] = here;
    }
    all.first_operand.push_back(static_cast<std::uint32_t>(all.op_of.size()));
  }
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    if (trace.tensors[t].persistent && last[t] != Uses::never)
      all.next[last[t]] = static_cast<std::uint32_t>(all.op_of.size()) + first[t];
  }
}

}  // namespace

Uses uses_of(const Trace& trace) {
  Uses all;
  all.tensors.resize(trace.tensors.size());
  all.operands.resize(trace.ops.size());
  all.births.resize(trace.ops.size());
  all.deaths.resize(trace.ops.size());
  std::vector<std::uint32_t> freed(trace.tensors.size(), 0);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    for (TensorIndex t : op.reads) add_use(all.tensors[t.value], i, false);
    for (TensorIndex t : op.writes) add_use(all.tensors[t.value], i, true);
    for (TensorIndex t : op.frees) freed[t.value] = i;
    std::vector<std::uint32_t>& operands = all.operands[i];
    operands.reserve(op.reads.size() + op.writes.size());
    for (TensorIndex t : op.reads) operands.push_back(t.value);
    for (TensorIndex t : op.writes) operands.push_back(t.value);
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  }
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    TensorUses& tensor = all.tensors[t];
    tensor.persistent = trace.tensors[t].persistent;
    if (tensor.persistent || tensor.uses.empty()) continue;
    tensor.birth = tensor.uses.front().op;
    tensor.death = tensor.uses.back().op;
    // A free after the last access keeps dead bytes until then.
    if (freed[t] > tensor.death) tensor.death = freed[t];
    all.births[tensor.birth].push_back(t);
    all.deaths[tensor.death].push_back(t);
  }
  line_up(trace, all);
  return all;
}

}  // namespace vedette::planning
