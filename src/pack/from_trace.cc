#include "pack/from_trace.h"

#include <algorithm>

namespace vedette::pack {

TraceLives lives_of(const Trace& trace) {
  TraceLives lives;
  const auto last = static_cast<Time>(trace.ops.size());
  std::vector<std::optional<Time>> freed(trace.tensors.size());
  for (std::size_t i = 0; i < trace.ops.size(); ++i)
    for (const TensorIndex t : trace.ops[i].frees) freed[t.value] = static_cast<Time>(i) + 1;
  const auto touched = lifetimes(trace);
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    const Tensor& tensor = trace.tensors[t];
    if (!tensor.persistent && !touched[t]) continue;
    Span<Time> life{0, last};
    if (!tensor.persistent) {
      life = {touched[t]->begin.value, touched[t]->end.value};
      if (freed[t]) life.end = std::max(life.end, *freed[t]);
    }
    lives.problem.buffers.push_back({.life = life, .bytes = tensor.bytes});
    lives.id.push_back(tensor.name.empty() ? "tensor " + std::to_string(t) : tensor.name);
  }
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const auto at = static_cast<Time>(i);
    if (trace.ops[i].workspace.value == 0) continue;
    lives.problem.buffers.push_back({.life = {at, at + 1}, .bytes = trace.ops[i].workspace});
    lives.id.push_back("workspace of op " + std::to_string(i));
  }
  return lives;
}

}  // namespace vedette::pack
