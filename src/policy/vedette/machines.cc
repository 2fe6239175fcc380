#include "policy/vedette/machines.h"

#include <algorithm>
#include <vector>

#include "vedette/machine.h"

namespace vedette::planning {
// The slower tiers that links join with the fastest both ways, fastest first.
std::vector<TierIndex> slower_tiers(const Machine& machine) {
  std::vector<TierIndex> tiers;
  for (std::uint32_t k = 1; k < machine.tiers.size(); ++k)
    if (machine.link({k}, {0}) != nullptr && machine.link({0}, {k}) != nullptr) tiers.push_back({k});
  return tiers;
}

// Evictions go to the tier `slow`; 0: there is none.
Setting setting_of(const Machine& machine, TierIndex slow) {
  Setting setting;
  setting.budget = static_cast<std::int64_t>(machine.tiers[0].capacity.value);
  setting.granule = std::max<std::uint64_t>(1, machine.granule.value);
  if (slow.value == 0) return setting;
  const Link &in = *machine.link(slow, {0}), &out = *machine.link({0}, slow);
  setting.slow = slow;
  setting.read_bytes_per_s = in.bytes_per_s;
  setting.write_bytes_per_s = out.bytes_per_s;
  setting.read_latency = in.latency;
  setting.write_latency = out.latency;
  setting.shared = share_a_bus(in, out);
  return setting;
}

std::uint64_t bytes_of_all(const Trace& trace) {
  std::uint64_t all = 0;
  for (const Tensor& tensor : trace.tensors) all += tensor.bytes.value;
  return all;
}

// The tier to evict to: the fastest slower one that holds everything, else the last; 0: none.
TierIndex tier_for_all(const Trace& trace, const Machine& machine) {
  const std::uint64_t all = bytes_of_all(trace);
  TierIndex chosen;
  for (const TierIndex tier : slower_tiers(machine)) {
    chosen = tier;
    if (machine.tiers[tier.value].capacity.value >= all) break;
  }
  return chosen;
}

// Where there are several, most evictions go to the fastest of the slower tiers; 0: none.
TierIndex nearest_tier(const Machine& machine) {
  const std::vector<TierIndex> tiers = slower_tiers(machine);
  return tiers.empty() ? TierIndex{} : tiers.front();
}

// Whether the tier below the fastest has room for all tensors at once.
bool first_holds_all(const Trace& trace, const Machine& machine) {
  return nearest_tier(machine).value == 1 && machine.tiers[1].capacity.value >= bytes_of_all(trace);
}

// Transfers beside ops count in the cost of a plan, by the time that links are busy; they do not move its stalls.
Machine without_interference(Machine machine) {
  machine.interference_percent = 0;
  return machine;
}

std::int64_t link_time_percent(const Machine& machine) {
  constexpr std::int64_t least = 3;
  return std::max(least, std::int64_t{machine.interference_percent.value_or(default_interference_percent)});
}

Machine with(Machine machine, const Habits& habits) {
  machine.habits = habits;
  return machine;
}

// The machine on which plans for a session are compared: its links with their shares, because plans fitted to the bus
// wait longer live (docs/tried.md). A write that spares a later one shows on the bus alone.
Machine session_of(const Machine& machine, bool on_bus) {
  if (on_bus) return on_its_bus(with(without_interference(machine), machine.habits));
  return with(without_interference(machine), {.early_fetches = machine.habits.early_fetches});
}

}  // namespace vedette::planning
