// Flattening, from the definitions in model.h.
#include "sim/step.h"

#include <algorithm>
#include <limits>

#include "model/liveness.h"

namespace vedette::sim {

std::vector<Operand> operands_of(const Op& op) {
  std::vector<Operand> made;
  for (const TensorIndex t : operands(op))
    made.push_back({.tensor = t.value,
                    .read = std::binary_search(op.reads.begin(), op.reads.end(), t),
                    .write = std::binary_search(op.writes.begin(), op.writes.end(), t)});
  return made;
}

Step flatten(const Trace& trace) {
  Step step;
  step.operands.resize(trace.ops.size());
  step.births.resize(trace.ops.size());
  step.deaths.resize(trace.ops.size());
  step.uses.resize(trace.tensors.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    step.operands[i] = operands_of(trace.ops[i]);
    for (const Operand& each : step.operands[i]) step.uses[each.tensor].push_back(i);
  }
  const std::vector<Span<OpIndex>> living = lives(trace);
  for (std::uint32_t t = 0; t < living.size(); ++t) {
    if (trace.tensors[t].persistent || living[t].begin == living[t].end) continue;
    step.births[living[t].begin.value].push_back(t);
    step.deaths[living[t].end.value - 1].push_back(t);
  }
  return step;
}

std::uint64_t next_use(const Step& step, const Trace& trace, std::uint32_t tensor, std::uint32_t from) {
  const std::vector<std::uint32_t>& uses = step.uses[tensor];
  const auto next = std::lower_bound(uses.begin(), uses.end(), from);
  if (next != uses.end()) return *next;
  if (uses.empty() || !trace.tensors[tensor].persistent) return std::numeric_limits<std::uint64_t>::max();
  return uses.front() + trace.ops.size();
}

std::int64_t noisy_time(const Op& op, std::uint32_t index, std::uint64_t step_number, const ReplayOptions& options) {
  const std::int64_t time = op.time.value;
  if (options.noise_percent == 0) return time;
  std::uint64_t x = options.seed * 0x9E3779B97F4A7C15U + step_number * 0xBF58476D1CE4E5B9U + index;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  x ^= x >> 31;
  const auto draw = static_cast<std::int64_t>(x % 2001) - 1000;  // thousandths of the noise
  return std::max<std::int64_t>(0, time + time / 100 * static_cast<std::int64_t>(options.noise_percent) / 1000 * draw);
}

}  // namespace vedette::sim
