#include "policy/vedette/order.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/time_limit.h"
#include "model/dependences.h"
#include "policy/canvas/op_times.h"
#include "policy/canvas/orders.h"
#include "vedette/replay.h"

namespace vedette::planning {
namespace {

constexpr std::size_t most_lists = 4;
constexpr std::uint64_t seed = 1;

std::optional<Nanoseconds> time_under_belady(const Trace& trace, const Machine& machine) {
  const auto replayed = replay(trace, machine, *make_policy("belady", seed));
  return replayed ? std::optional(replayed->measured.time) : std::nullopt;
}

// Those worth planning, best first: the order of a plan of SwapAdvisor's, then schedules by lists.
std::vector<Order> worth_planning(const Trace& trace, const Machine& machine) {
  Machine as_given = machine;
  as_given.can_reorder = false;
  std::vector<std::pair<Nanoseconds, Order>> lists;
  for (Order& order : Orders(trace).listed(machine.tiers[0].capacity)) {
    if (const auto time = time_under_belady(reordered(trace, order), as_given))
      lists.emplace_back(*time, std::move(order));
  }
  std::stable_sort(lists.begin(), lists.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Order> made;
  if (auto searched = make_policy("swapadvisor", seed)->prepare(trace, machine); searched && !searched->order.empty())
    made.push_back(std::move(searched->order));
  for (auto& [time, order] : lists) {
    if (made.size() <= most_lists && std::find(made.begin(), made.end(), order) == made.end())
      made.push_back(std::move(order));
  }
  return made;
}

}  // namespace

Result<Plan> plan_in_best_order(const Trace& trace, const Machine& machine,
                                const std::function<std::unique_ptr<Policy>()>& make) {
  Machine as_given = machine;
  as_given.can_reorder = false;
  const auto planned = [&](const Trace& step) { return replay(step, as_given, *make(), {.keep_plan = true}); };
  const auto traced = planned(trace);
  std::optional<Nanoseconds> least;
  Result<Plan> best = traced ? Result<Plan>(*traced->plan) : Result<Plan>(traced.error());
  if (traced) least = traced->measured.time;
  if (least == time_of_ops(trace)) return best;
  for (Order& order : worth_planning(trace, machine)) {
    if (TimeLimit::is_over()) break;
    auto got = planned(reordered(trace, order));
    if (!got || (least && got->measured.time >= *least)) continue;
    least = got->measured.time;
    best = *std::move(got->plan);
    best->order = std::move(order);
  }
  if (best && !best->order.empty())
    best->reasons.insert(best->reasons.begin(), "in another order a step takes " + readable_ms(*least) +
                                                    ", as traced " +
                                                    (traced ? readable_ms(traced->measured.time) : "no plan fits"));
  return best;
}

}  // namespace vedette::planning
