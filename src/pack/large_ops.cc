// Operands that no room is planned for: see large_ops.h.
#include "pack/large_ops.h"

#include <algorithm>
#include <set>
#include <vector>

namespace vedette {
namespace {

constexpr std::uint32_t before_the_step = ~0u;

// [tensor]: the op that writes it first.
std::vector<std::uint32_t> births_of(const Trace& trace) {
  std::vector<std::uint32_t> births(trace.tensors.size(), before_the_step);
  for (std::uint32_t i = static_cast<std::uint32_t>(trace.ops.size()); i-- > 0;)
    for (const TensorIndex t : trace.ops[i].writes)
      if (!trace.tensors[t.value].persistent) births[t.value] = i;
  return births;
}

std::vector<TensorIndex> operands_of(const Op& op) {
  std::set<TensorIndex> all(op.reads.begin(), op.reads.end());
  all.insert(op.writes.begin(), op.writes.end());
  return {all.begin(), all.end()};
}

}  // namespace

std::optional<Trace> with_ops_that_fit(const Trace& units, Bytes capacity) {
  std::optional<Trace> fitting;
  std::vector<std::uint32_t> births;
  for (std::uint32_t i = 0; i < units.ops.size(); ++i) {
    std::vector<TensorIndex> operands = operands_of(units.ops[i]);
    std::uint64_t needs = units.ops[i].workspace.value;
    for (const TensorIndex t : operands) needs += units.tensors[t.value].bytes.value;
    if (needs <= capacity.value) continue;
    if (!fitting) {
      fitting = units;
      births = births_of(units);
    }
    std::stable_sort(operands.begin(), operands.end(), [&](TensorIndex a, TensorIndex b) {
      return units.tensors[a.value].bytes > units.tensors[b.value].bytes;
    });
    Op& op = fitting->ops[i];
    for (const TensorIndex t : operands) {
      if (needs <= capacity.value) break;
      if (births[t.value] == i) continue;  // it begins to live here
      needs -= units.tensors[t.value].bytes.value;
      std::erase(op.reads, t);
      std::erase(op.writes, t);
    }
    if (needs > capacity.value) return std::nullopt;
  }
  return fitting;
}

}  // namespace vedette
