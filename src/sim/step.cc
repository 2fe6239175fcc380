// Flattening, from the definitions in model.h.
#include "sim/step.h"

#include <algorithm>
#include <limits>

namespace vedette::sim {

std::vector<Operand> operands_of(const Op& op) {
  std::vector<Operand> made;
  made.reserve(op.reads.size() + op.writes.size());
  auto read = op.reads.begin(), write = op.writes.begin();  // both ascend
  while (read != op.reads.end() || write != op.writes.end()) {
    const bool reads = write == op.writes.end() || (read != op.reads.end() && *read <= *write);
    const bool writes = read == op.reads.end() || (write != op.writes.end() && *write <= *read);
    made.push_back({.tensor = reads ? read->value : write->value, .read = reads, .write = writes});
    read += reads ? 1 : 0;
    write += writes ? 1 : 0;
  }
  return made;
}

Step flatten(const Trace& trace) {
  constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  const auto ops = static_cast<std::uint32_t>(trace.ops.size()),
             tensors = static_cast<std::uint32_t>(trace.tensors.size());
  Step step;
  step.operands.resize(ops);
  step.born_at.assign(tensors, none);
  std::vector<std::uint32_t> born(tensors, none), freed(tensors, none);  // as lives() has them
  std::vector<std::uint32_t> used, by;                                   // tensors, and the ops that use them
  for (std::uint32_t i = 0; i < ops; ++i) {
    step.operands[i] = operands_of(trace.ops[i]);
    for (const Operand& each : step.operands[i]) {
      used.push_back(each.tensor), by.push_back(i);
      if (each.write && born[each.tensor] == none) born[each.tensor] = i;
    }
    for (const TensorIndex t : trace.ops[i].frees) freed[t.value] = i;
  }
  const auto of = [](const std::vector<std::uint32_t>& row) { return [&](std::size_t i) { return row[i]; }; };
  step.uses = Grouped(tensors, used.size(), of(used), of(by));
  std::vector<std::uint32_t> mortal, births, deaths;
  for (std::uint32_t t = 0; t < tensors; ++t) {
    const auto uses = step.uses[t];
    if (trace.tensors[t].persistent || uses.empty()) continue;
    step.born_at[t] = uses.front();
    if (born[t] == none) continue;
    mortal.push_back(t);
    births.push_back(born[t]);
    deaths.push_back(std::max(freed[t] == none ? uses.back() : freed[t], born[t]));
  }
  step.births = Grouped(ops, mortal.size(), of(births), of(mortal));
  step.deaths = Grouped(ops, mortal.size(), of(deaths), of(mortal));
  return step;
}

std::uint64_t next_use(const Step& step, const Trace& trace, std::uint32_t tensor, std::uint32_t from) {
  const auto uses = step.uses[tensor];
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
