// Lives and accesses of tensors, from the definitions in model.h.
#include "model/liveness.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/assert.h"

namespace vedette {

std::vector<TensorIndex> operands(const Op& op) {
  std::vector<TensorIndex> all;
  all.reserve(op.reads.size() + op.writes.size());
  std::set_union(op.reads.begin(), op.reads.end(), op.writes.begin(), op.writes.end(), std::back_inserter(all));
  return all;
}

std::vector<std::vector<OpIndex>> uses(const Trace& trace) {
  std::vector<std::vector<OpIndex>> found(trace.tensors.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (TensorIndex tensor : operands(trace.ops[i])) {
      VEDETTE_ASSERT(tensor.value < found.size());
      found[tensor.value].push_back({i});
    }
  }
  return found;
}

std::vector<Span<OpIndex>> lives(const Trace& trace) {
  const auto op_count = static_cast<std::uint32_t>(trace.ops.size());
  std::vector<std::optional<OpIndex>> birth(trace.tensors.size()), freed(trace.tensors.size());
  std::vector<OpIndex> last(trace.tensors.size());
  for (std::uint32_t i = 0; i < op_count; ++i) {
    for (TensorIndex tensor : operands(trace.ops[i])) last.at(tensor.value) = {i};
    for (TensorIndex tensor : trace.ops[i].writes) {
      if (!birth[tensor.value]) birth[tensor.value] = OpIndex{i};
    }
    for (TensorIndex tensor : trace.ops[i].frees) freed.at(tensor.value) = OpIndex{i};
  }
  std::vector<Span<OpIndex>> result(trace.tensors.size());
  for (std::size_t t = 0; t < result.size(); ++t) {
    if (trace.tensors[t].persistent) {
      result[t] = {{0}, {op_count}};
    } else if (birth[t]) {
      const OpIndex death = freed[t].value_or(last[t]);
      result[t] = {*birth[t], {std::max(death, *birth[t]).value + 1}};
    }
  }
  return result;
}

}  // namespace vedette
