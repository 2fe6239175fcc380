// Cutting.
#include "sim/blocks.h"

#include <algorithm>

namespace vedette::sim {
namespace {

constexpr std::uint32_t no_op = ~0U;

void cut(Blocks& blocks, std::uint64_t bytes, std::uint64_t block) {
  const auto tensor = static_cast<std::uint32_t>(blocks.of_tensor.size());
  blocks.of_tensor.push_back({static_cast<std::uint32_t>(blocks.all.size()), 0});
  for (std::uint64_t at = 0; at < bytes; at += block)
    blocks.all.push_back({.tensor = tensor, .bytes = {at, std::min(bytes, at + block)}});
  blocks.of_tensor.back().end = static_cast<std::uint32_t>(blocks.all.size());
}

// The blocks that hold the op's tracked pages of the tensor, from the access `first` on; all of them where it has none.
void add_runs(Blocks& blocks, const Trace& trace, std::uint32_t op, std::uint32_t tensor, std::size_t first,
              std::uint64_t block) {
  const Blocks::Run of_tensor = blocks.of_tensor[tensor];
  bool tracked = false;
  std::uint32_t from = of_tensor.begin;
  for (std::size_t a = first; a < trace.pages.size() && trace.pages[a].op.value == op; ++a) {
    if (trace.pages[a].tensor.value != tensor) continue;
    tracked = true;
    const std::uint64_t page = trace.page_bytes.value;
    const auto begin = static_cast<std::uint32_t>(trace.pages[a].pages.begin * page / block),
               end = static_cast<std::uint32_t>((trace.pages[a].pages.end * page + block - 1) / block);
    const Blocks::Run run{std::max(from, of_tensor.begin + begin), std::min(of_tensor.end, of_tensor.begin + end)};
    if (run.begin >= run.end) continue;
    blocks.runs[op].push_back(run);
    from = run.end;
  }
  if (!tracked) blocks.runs[op].push_back(of_tensor);
}

}  // namespace

Blocks cut_blocks(const Trace& trace, const Step& step, Bytes block) {
  Blocks made;
  for (const Tensor& tensor : trace.tensors) cut(made, tensor.bytes.value, block.value);
  made.born.assign(trace.tensors.size(), 0);
  made.dies.assign(trace.tensors.size(), no_op);
  made.runs.resize(trace.ops.size());
  std::size_t first = 0;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const std::uint32_t t : step.births[i]) made.born[t] = i;
    for (const std::uint32_t t : step.deaths[i]) made.dies[t] = i;
    while (first < trace.pages.size() && trace.pages[first].op.value < i) ++first;
    for (const bool read : {true, false}) {
      for (const Operand& each : step.operands[i]) {
        if (each.read == read) add_runs(made, trace, i, each.tensor, first, block.value);
      }
    }
    made.workspace.push_back(no_op);
    if (trace.ops[i].workspace.value == 0) continue;
    made.workspace.back() = static_cast<std::uint32_t>(made.of_tensor.size());
    cut(made, trace.ops[i].workspace.value, block.value);
    made.runs[i].push_back(made.of_tensor.back());
    made.born.push_back(i);
    made.dies.push_back(i);
  }
  return made;
}

}  // namespace vedette::sim
