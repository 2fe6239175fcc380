// Shares of gaps, carried over and laid out: see likeness.h.
#include "policy/vedette/likeness.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/liveness.h"
#include "policy/canvas/op_times.h"
#include "policy/canvas/room.h"
#include "policy/canvas/uses.h"
#include "policy/vedette/cover.h"
#include "policy/vedette/knobs.h"
#include "policy/vedette/layout.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/plan_cost.h"
#include "policy/vedette/seam.h"
#include "policy/vedette/split.h"
#include "policy/vedette/sweep.h"
#include "sim/step.h"
#include "vedette/check.h"

namespace vedette::planning {
namespace {

// By its ops. The next use is counted on into the next step; of a tensor that no op uses again, one past its death.
struct UseGap {
  std::uint32_t last = 0, next = 0;
  bool returns = true;
  std::uint64_t key() const noexcept {
    return std::uint64_t{last} << 33 | std::uint64_t{next} << 1 | (returns ? 1 : 0);
  }
};

template <class Take>
void for_each_gap(const TensorUses& tensor, std::uint32_t ops, Take take) {
  for (std::size_t k = 0; k < tensor.uses.size(); ++k) {
    const std::uint32_t last = tensor.uses[k].op;
    if (k + 1 < tensor.uses.size()) {
      take(UseGap{.last = last, .next = tensor.uses[k + 1].op});
    } else if (tensor.persistent) {
      take(UseGap{.last = last, .next = tensor.uses[0].op + ops});
    } else if (tensor.death > last) {
      take(UseGap{.last = last, .next = tensor.death + 1, .returns = false});
    }
  }
}

// The gap in which an eviction lies that is issued after op `op`.
std::optional<UseGap> gap_around(const TensorUses& tensor, std::uint32_t ops, std::uint32_t op) {
  std::optional<UseGap> found;
  for_each_gap(tensor, ops, [&](const UseGap& gap) {
    if ((gap.last <= op && op < gap.next) || (gap.last <= op + ops && op + ops < gap.next)) found = gap;
  });
  return found;
}

// Bytes in use, with all tensors near, summed over the ops: which of two steps of the same ops is larger.
double size_of(const std::vector<std::int64_t>& occupied) {
  double sum = 0;
  for (const std::int64_t each : occupied) sum += double(each);
  return sum;
}

// How a planned step spends the gaps of its tensors, summed over those with the same ops at both ends.
class Spent {
 public:
  struct Kind {
    double bytes = 0, away = 0;        // away: of them, in the slow tier
    double leaving = 0, away_ops = 0;  // ops from the last use until their room is free, or is taken again; by bytes
  };

  explicit Spent(const PlannedStep& step) : trace_(*step.trace), uses_(uses_of(trace_)) {
    for (std::uint32_t t = 0; t < uses_.tensors.size(); ++t)
      for_each_gap(uses_.tensors[t], ops(),
                   [&](const UseGap& gap) { kinds_[gap.key()].bytes += double(trace_.tensors[t].bytes.value); });
    std::vector<std::vector<const Move*>> fetches(trace_.tensors.size());
    for (const Move& move : step.plan->moves)
      if (move.verb == Verb::fetch) fetches[move.extent.tensor.value].push_back(&move);
    for (const Move& move : step.plan->moves)
      if (move.verb == Verb::evict && move.source.value == 0) count(move, fetches[move.extent.tensor.value]);
  }
  const Kind* of(const UseGap& gap) const {
    const auto found = kinds_.find(gap.key());
    return found == kinds_.end() ? nullptr : &found->second;
  }
  double size() const { return size_of(occupied_without_moves(trace_, uses_, 1)); }

 private:
  std::uint32_t ops() const noexcept { return static_cast<std::uint32_t>(trace_.ops.size()); }

  void count(const Move& evict, const std::vector<const Move*>& fetches) {
    const auto gap = gap_around(uses_.tensors[evict.extent.tensor.value], ops(), evict.issue.value);
    if (!gap) return;
    const std::uint32_t length = gap->next - gap->last;
    const auto since = [&](std::uint32_t op) {
      return double(std::min(length, op > gap->last ? op - gap->last : op + ops() - gap->last));
    };
    double back = length;
    for (const Move* const fetch : fetches)
      if (gap->returns && fetch->extent == evict.extent && fetch->due.value == gap->next % ops())
        back = since(fetch->issue.value);
    Kind& kind = kinds_[gap->key()];
    const auto bytes = double(bytes_of(evict.extent, trace_).value);
    kind.away += bytes;
    kind.leaving += bytes * since(evict.due.value);
    kind.away_ops += bytes * back;
  }

  const Trace& trace_;
  const Uses uses_;
  std::unordered_map<std::uint64_t, Kind> kinds_;
};

struct Weighted {
  const Spent* step = nullptr;
  double weight = 1;
};

struct Wanted {                           // of a kind of gap
  double share = 0, gone = 1, fetch = 0;  // ops from the last use on
};

Wanted wanted(std::span<const Weighted> steps, const UseGap& gap) {
  Wanted sum;
  double weight = 0, away = 0, gone = 0, fetch = 0;
  for (const Weighted& each : steps) {
    const Spent::Kind* const kind = each.step->of(gap);
    if (kind == nullptr || kind->bytes <= 0) continue;
    weight += each.weight;
    sum.share += each.weight * std::min(1.0, kind->away / kind->bytes);
    if (kind->away <= 0) continue;
    away += each.weight;
    gone += each.weight * kind->leaving / kind->away;
    fetch += each.weight * kind->away_ops / kind->away;
  }
  if (weight > 0) sum.share /= weight;
  if (away > 0) sum.gone = gone / away, sum.fetch = fetch / away;
  return sum;
}

// The tries, and the one with which the step costs least.
class Tries {
 public:
  Tries(const Trace& whole, const Machine& machine, const Setting& setting)
      : whole_(whole),
        parts_(split(whole, machine.whole_tensors
                                ? std::numeric_limits<std::uint64_t>::max() / 4
                                : part_bytes(static_cast<std::uint64_t>(setting.budget), setting.granule))),
        uses_(uses_of(parts_.trace)),
        setting_(setting),
        costs_(costs_of(parts_.trace, uses_, setting)),
        ops_(static_cast<std::uint32_t>(whole.ops.size())),
        step_ns_(time_of_ops(whole).value),
        step_(sim::flatten(whole)),
        cost_(whole, step_, session_of(machine, true), {.percent = link_time_percent(machine), .slow = setting.slow}) {}

  // As the other sizes have it; and without what this one can do without.
  void carry_over(std::span<const Weighted> steps) {
    std::vector<Stay> stays = stays_of(steps), fewer = stays;
    leave_out(fewer);
    consider(std::move(fewer));
    consider(std::move(stays));
  }
  void sweep_with(const Knobs& knobs) { consider(sweep(parts_.trace, uses_, costs_, setting_, knobs)); }
  void cover_with(const LinkPrices& prices) { consider(cover(parts_.trace, uses_, costs_, setting_, prices)); }
  std::int64_t step_ns() const noexcept { return step_ns_; }
  std::optional<Plan> take() { return std::move(best_); }

 private:
  struct Asked {
    Stay stay;
    double share = 0;
  };
  // In order of the last use.
  std::vector<Asked> asked(std::span<const Weighted> steps) const {
    std::vector<Asked> all;
    for (std::uint32_t t = 0; t < uses_.tensors.size(); ++t)
      for_each_gap(uses_.tensors[t], ops_, [&](const UseGap& gap) {
        const Wanted want = wanted(steps, gap);
        if (want.share <= 0 || gap.next <= gap.last + 1) return;
        const auto after = [&](double ops) {
          return gap.last + std::clamp(static_cast<std::uint32_t>(ops + 0.5), 1U, gap.next - gap.last);
        };
        all.push_back({.stay = {.tensor = t,
                                .last_use = gap.last,
                                .gone = after(want.gone),
                                .fetch = gap.returns ? after(want.fetch) : gap.next,
                                .next_use = gap.next,
                                .returns = gap.returns},
                       .share = want.share});
      });
    std::stable_sort(all.begin(), all.end(),
                     [](const Asked& a, const Asked& b) { return a.stay.last_use < b.stay.last_use; });
    return all;
  }

  // A tensor is away or not, so a share is kept by sums along the step: one leaves once half of it is owed.
  std::vector<Stay> stays_of(std::span<const Weighted> steps) const {
    constexpr double all_of_it = 0.999;
    std::vector<Stay> stays;
    double owed = 0;
    for (const Asked& each : asked(steps)) {
      const auto bytes = double(costs_.room[each.stay.tensor]);
      if (each.share < all_of_it) {
        owed += each.share * bytes;
        if (owed < bytes / 2) continue;
        owed -= bytes;
      }
      stays.push_back(each.stay);
    }
    return stays;
  }

  // Stays whose room nothing needs, the shortest first.
  void leave_out(std::vector<Stay>& stays) const {
    std::vector<std::int64_t> bytes(std::size_t{2} * ops_);
    for (std::uint32_t op = 0; op < bytes.size(); ++op) bytes[op] = costs_.occupied[op % ops_];
    Room room(bytes);
    const auto add = [&](const Stay& stay, std::int64_t change) {
      room.add(stay.gone, stay.fetch, change);
      if (stay.fetch > ops_) room.add(stay.gone > ops_ ? stay.gone - ops_ : 0, stay.fetch - ops_, change);
      if (stay.gone < ops_) room.add(stay.gone + ops_, stay.fetch + ops_, change);
    };
    for (const Stay& stay : stays) add(stay, -costs_.room[stay.tensor]);
    std::vector<std::uint32_t> order(stays.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto length = [&](std::uint32_t s) { return stays[s].fetch - std::min(stays[s].fetch, stays[s].gone); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return length(a) < length(b); });
    for (const std::uint32_t s : order) {
      Stay& stay = stays[s];
      const std::int64_t bytes_back = costs_.room[stay.tensor];
      if (stay.fetch > stay.gone && room.most(stay.gone, stay.fetch) + bytes_back > setting_.budget) continue;
      if (stay.fetch > stay.gone) add(stay, bytes_back);
      stay.tensor = none;
    }
    std::erase_if(stays, [](const Stay& stay) { return stay.tensor == none; });
  }

  void consider(std::vector<Stay> stays) {
    if (best_ && cost_of_best_ <= step_ns_ + step_ns_ / good_enough) return;
    auto laid_out = lay_out(parts_.trace, uses_, costs_, setting_, std::move(stays));
    if (!laid_out) return;
    fetch_early(parts_.trace, costs_, setting_, step_ns_ / most_lead, 0, *laid_out);
    Plan plan = joined(whole_, parts_, plan_of(parts_.trace, setting_, *laid_out));
    const auto simulated = cost_.simulate(plan);
    if (!simulated || (best_ && cost_.cost(*simulated) >= cost_of_best_)) return;
    cost_of_best_ = cost_.cost(*simulated);
    best_ = std::move(plan);
  }

  static constexpr std::uint32_t none = ~0u;
  static constexpr std::int64_t good_enough = 1'000;  // a thousandth above the ops' own time

  const Trace& whole_;
  const Split parts_;
  const Uses uses_;
  const Setting setting_;
  const Costs costs_;
  const std::uint32_t ops_;
  const std::int64_t step_ns_;
  const sim::Step step_;
  const PlanCost cost_;
  std::int64_t cost_of_best_ = 0;
  std::optional<Plan> best_;
};

// Gaps as the nearest steps on both sides spend them, and each of the two; then knobs that are far apart, and covers.
void try_all(Tries& tries, const std::vector<Spent>& steps, double size) {
  const Spent *below = nullptr, *above = nullptr;
  double least = 0, most = 0;
  for (const Spent& each : steps) {
    const double there = each.size();
    if (there <= size && (below == nullptr || there > least)) below = &each, least = there;
    if (there >= size && (above == nullptr || there < most)) above = &each, most = there;
  }
  if (below != nullptr && above != nullptr && below != above) {
    const double weight = most > least ? (size - least) / (most - least) : 0;
    tries.carry_over(std::array{Weighted{below, 1 - weight}, Weighted{above, weight}});
  }
  for (const Spent* const each : {below, above})
    if (each != nullptr) tries.carry_over(std::array{Weighted{each, 1}});
  for (const std::size_t k : {0U, 1U, 2U}) tries.sweep_with(knobs_apart(tries.step_ns())[k]);
  tries.cover_with({});
  LinkPrices dear_at_last;  // in the optimizer no op hides a transfer
  for (std::size_t k = LinkPrices::stretches - 2; k < LinkPrices::stretches; ++k) dear_at_last.of[k] = 4;
  tries.cover_with(dear_at_last);
}

bool same_ops(const Trace& a, const Trace& b) {
  return std::equal(a.ops.begin(), a.ops.end(), b.ops.begin(), b.ops.end(),
                    [](const Op& one, const Op& other) { return one.name == other.name; });
}

}  // namespace

Result<Plan> plan_by_likeness(std::span<const PlannedStep> planned, const Trace& trace, const Machine& machine) {
  if (planned.empty()) return Error{Cause::malformed_input, "no step of other sizes was planned"};
  for (const PlannedStep& each : planned)
    if (!same_ops(*each.trace, trace))
      return Error{Cause::malformed_input, "a planned step of other ops is not like this one"};
  const Setting setting = setting_of(machine, tier_for_all(trace, machine));
  const Uses uses = uses_of(trace);
  const std::vector<std::int64_t> occupied = occupied_without_moves(trace, uses, setting.granule);
  if (occupied.empty() || *std::max_element(occupied.begin(), occupied.end()) <= setting.budget) {
    Plan near;
    near.home.assign(trace.tensors.size(), {0});
    near.reasons = {"everything fits into the fastest tier: nothing moves"};
    return near;
  }
  const std::vector<Spent> steps(planned.begin(), planned.end());
  Tries tries(trace, machine, setting);
  try_all(tries, steps, size_of(occupied_without_moves(trace, uses, 1)));
  std::optional<Plan> plan = tries.take();
  if (!plan) return Error{Cause::infeasible, "no plan was found for these sizes"};
  if (machine.habits.plans_in_turns) plan = leave_after_the_seam(trace, uses, machine, *std::move(plan));
  if (auto broken = check(trace, machine, *plan)) return Error{Cause::infeasible, broken->message};
  plan->reasons = {"carried over from plans for other sizes of the same ops"};
  return *std::move(plan);
}

}  // namespace vedette::planning
