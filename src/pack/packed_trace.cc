#include "pack/packed_trace.h"

#include <unordered_map>
#include <utility>

namespace vedette {

PackedTrace::PackedTrace(Trace trace) {
  const std::vector<Op> ops = std::exchange(trace.ops, {});
  rest_ = std::move(trace);
  std::unordered_map<std::string, std::uint32_t> numbers;
  std::size_t operands = 0;
  for (const Op& op : ops) operands += op.reads.size() + op.writes.size() + op.frees.size();
  operands_.reserve(operands);
  ops_.reserve(ops.size());
  const auto add = [&](const std::vector<TensorIndex>& list) {
    operands_.insert(operands_.end(), list.begin(), list.end());
    return static_cast<std::uint32_t>(operands_.size());
  };
  for (const Op& op : ops) {
    const auto [name, fresh] = numbers.try_emplace(op.name, static_cast<std::uint32_t>(names_.size()));
    if (fresh) names_.push_back(op.name);
    PackedOp packed{.name = name->second,
                    .layer = op.layer ? op.layer->value + 1 : 0,
                    .phase = op.phase,
                    .time = op.time,
                    .workspace = op.workspace};
    packed.reads_end = add(op.reads);
    packed.writes_end = add(op.writes);
    packed.frees_end = add(op.frees);
    ops_.push_back(packed);
  }
}

Trace PackedTrace::unpack() const {
  Trace trace = rest_;
  trace.ops.reserve(ops_.size());
  std::uint32_t begin = 0;
  const auto take = [&](std::uint32_t end) {
    return std::vector<TensorIndex>(operands_.begin() + std::exchange(begin, end), operands_.begin() + end);
  };
  for (const PackedOp& packed : ops_) {
    Op& op = trace.ops.emplace_back();
    op.name = names_[packed.name];
    if (packed.layer > 0) op.layer = LayerIndex{packed.layer - 1};
    op.phase = packed.phase;
    op.time = packed.time;
    op.workspace = packed.workspace;
    op.reads = take(packed.reads_end);
    op.writes = take(packed.writes_end);
    op.frees = take(packed.frees_end);
  }
  return trace;
}

}  // namespace vedette
