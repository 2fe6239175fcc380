// The shape of a training step, read from its trace.
#include "policy/canvas/phases.h"

#include <algorithm>

namespace vedette::planning {

std::uint32_t first_backward_op(const Trace& trace) {
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    if (trace.ops[i].phase == Phase::backward) return i;
  }
  const Ledger ledger(trace, Machine{.tiers = {{}}});
  std::uint32_t fullest = 0;
  for (std::uint32_t i = 1; i < ledger.ops(); ++i) {
    if (ledger.load(i) > ledger.load(fullest)) fullest = i;
  }
  return fullest;
}

std::vector<std::uint32_t> saved_gaps(const Ledger& ledger, std::uint32_t border) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
    const Gap& gap = ledger.gaps()[g];
    const bool passes = !ledger.trace().tensors[gap.tensor].persistent && !gap.dead;
    if (passes && gap.after < border && gap.before >= border) found.push_back(g);
  }
  return found;
}

std::vector<std::uint32_t> layer_numbers(const Trace& trace) {
  std::vector<std::uint32_t> number(trace.ops.size());
  for (std::size_t i = 1; i < number.size(); ++i) {
    const bool same = trace.ops[i].layer == trace.ops[i - 1].layer && trace.ops[i].phase == trace.ops[i - 1].phase;
    number[i] = number[i - 1] + (same ? 0 : 1);
  }
  return number;
}

std::vector<bool> convolutions(const Trace& trace) {
  std::vector<bool> found(trace.ops.size());
  bool any = false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& name = trace.ops[i].name;
    found[i] = name.find("conv") != std::string::npos || name.find("Conv") != std::string::npos;
    any = any || found[i];
  }
  if (any) return found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<TensorIndex>& reads = trace.ops[i].reads;
    found[i] = std::any_of(reads.begin(), reads.end(),
                           [&](TensorIndex t) { return trace.tensors[t.value].kind == TensorKind::weight; });
  }
  return found;
}

}  // namespace vedette::planning
