// vedette: our own planner.
#include <algorithm>
#include <array>
#include <string>

#include "policy/makers.h"
#include "policy/vedette_layout.h"
#include "policy/vedette_rehearse.h"
#include "policy/vedette_sweep.h"

namespace vedette {
namespace {

using namespace planning;

Result<Setting> setting_of(const Trace& trace, const Machine& machine) {
  std::uint64_t all = 0;
  for (const Tensor& tensor : trace.tensors) all += tensor.bytes.value;
  Setting setting;
  setting.budget = static_cast<std::int64_t>(machine.tiers[0].capacity.value);
  setting.granule = std::max<std::uint64_t>(1, machine.granule.value);
  for (std::uint32_t k = 1; k < machine.tiers.size(); ++k) {
    const Link* in = machine.link({k}, {0});
    const Link* out = machine.link({0}, {k});
    if (in == nullptr || out == nullptr) continue;
    setting.slow = {k};
    setting.read_bytes_per_s = in->bytes_per_s;
    setting.write_bytes_per_s = out->bytes_per_s;
    setting.read_latency = in->latency;
    setting.write_latency = out->latency;
    setting.shared = in->shared && in->shared == out->shared;
    if (machine.tiers[k].capacity.value >= all) break;
  }
  return setting;
}

std::int64_t largest_op(const Trace& trace, const Uses& uses, std::uint64_t granule) {
  std::int64_t largest = 0;
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    auto sum = static_cast<std::int64_t>(trace.ops[op].workspace.value);
    for (std::uint32_t t : uses.operands[op]) sum += static_cast<std::int64_t>(rounded(trace.tensors[t].bytes.value, granule));
    largest = std::max(largest, sum);
  }
  return largest;
}

class Vedette final : public Policy {
 public:
  std::string_view name() const noexcept override { return "vedette"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    const Uses uses = uses_of(trace);
    auto found = setting_of(trace, machine);
    if (!found) return found.error();
    const Setting setting = *found;
    const std::vector<std::int64_t> occupied = occupied_without_moves(trace, uses, setting.granule);
    if (occupied.empty() || *std::max_element(occupied.begin(), occupied.end()) <= setting.budget) {
      Plan plan;
      plan.home.assign(trace.tensors.size(), {0});
      return plan;
    }
    const std::int64_t smallest = largest_op(trace, uses, setting.granule);
    if (smallest > setting.budget || setting.slow.value == 0) {
      return Error{Cause::infeasible, "vedette: the largest op needs " + std::to_string(smallest) + " bytes of fast memory, there are " +
                                          std::to_string(setting.budget)};
    }
    return best(trace, uses, machine, setting);
  }

 private:
  Result<Plan> best(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting) {
    std::optional<Plan> best;
    std::int64_t best_time = 0;
    std::int64_t step = 0;
    for (const Op& op : trace.ops) step += op.time.value;
    for (std::int64_t horizon : {std::int64_t{0}, step / 64, step / 16, step / 4, step * 4}) {
      for (std::uint32_t distance : {100U, 150U, 300U}) {
        Knobs knobs{.horizon_ns = horizon, .distance_percent = distance};
        auto gaps = lay_out(trace, uses, setting, sweep(trace, uses, setting, knobs));
        if (!gaps) continue;
        fetch_early(trace, uses, setting, step, 0, *gaps);
        Plan plan = plan_of(trace, setting, *gaps);
        auto replayed = rehearse(trace, uses, machine, plan, {.steps = 2});
        if (!replayed) continue;
        if (!best || replayed->measured.time.value < best_time) best = std::move(plan), best_time = replayed->measured.time.value;
        if (horizon == 0) break;
      }
    }
    if (!best) return Error{Cause::infeasible, "vedette: no plan fits"};
    return *best;
  }
};

}  // namespace

std::unique_ptr<Policy> make_vedette(std::uint64_t) { return std::make_unique<Vedette>(); }

}  // namespace vedette
