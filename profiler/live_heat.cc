// Ages of tensors at a few places of a step that repeats: a tensor that outlives the step was used last in the step
// before.
#include "profiler/live_heat.h"

#include <algorithm>

#include "model/liveness.h"

namespace vedette {

LiveHeat::LiveHeat(const Trace& step) : ops_(step.ops.size()) {
  if (ops_ == 0) return;
  const auto alive = lives(step);
  const auto used = uses(step);
  std::vector<std::int64_t> began(ops_ + 1);
  for (std::size_t i = 0; i < ops_; ++i) began[i + 1] = began[i] + step.ops[i].time.value;
  const std::int64_t all = std::max<std::int64_t>(began.back(), 1);
  for (std::size_t place = 0; place < places; ++place) {
    const auto op = static_cast<std::uint32_t>(std::min(ops_ - 1, (place * ops_ + places - 1) / places));  // its first
    for (std::size_t t = 0; t < step.tensors.size(); ++t) {
      if (op < alive[t].begin.value || op >= alive[t].end.value) continue;
      const auto next = std::upper_bound(used[t].begin(), used[t].end(), OpIndex{op});
      std::int64_t age = all;  // no op uses it
      if (next != used[t].begin()) {
        age = std::max<std::int64_t>(0, began[op] - began[std::prev(next)->value + 1]);
      } else if (!used[t].empty()) {
        age = began[op] + all - began[used[t].back().value + 1];
      }
      std::size_t bin = heat_bins - 1;
      while (bin > 0 && age <= all >> (heat_bins - bin)) --bin;
      bytes_[place][bin] += step.tensors[t].bytes.value;
    }
  }
}

}  // namespace vedette
