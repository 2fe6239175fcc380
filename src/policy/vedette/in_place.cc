// Operands in place: see in_place.h. Stretches are tried in groups, those first that cost the least beside their moves,
// then some one by one, those first whose op waits longest.
#include "policy/vedette/in_place.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/readable.h"
#include "base/time_limit.h"
#include "model/liveness.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/rehearsal.h"

namespace vedette::planning {
namespace {

struct Stretch {  // of a tensor or a part, near, from a fetch to the eviction after it, or to the tensor's end
  TensorIndex tensor;
  TierIndex tier;
  std::uint32_t fetch = 0;               // move
  std::optional<std::uint32_t> evict{};  // move
  bool over_the_seam = false;            // the step begins in it
  std::vector<OpIndex> uses{};
  std::int64_t moves_ns = 0, in_place_ns = 0;
};

class InPlacePlans {
 public:
  InPlacePlans(const Trace& trace, const Uses& uses, const Machine& machine, const Plan& plan)
      : trace_(trace), uses_(uses), machine_(machine), plan_(plan), n_(static_cast<std::uint32_t>(trace.ops.size())) {}

  std::vector<Stretch> stretches() const;
  Plan without(const std::vector<Stretch>& left) const;

 private:
  std::optional<Stretch> stretch_of(std::uint32_t fetch, const std::vector<std::uint32_t>& moves) const;
  std::int64_t time(const Extent& extent, TierIndex source, TierIndex target) const {
    const Link* const link = machine_.link(source, target);
    return link == nullptr ? 0 : transfer_time(bytes_of(extent, trace_), link->bytes_per_s).value;
  }
  std::uint32_t after(std::uint32_t op, OpIndex from) const { return (op + n_ - from.value) % n_; }

  const Trace& trace_;
  const Uses& uses_;
  const Machine& machine_;
  const Plan& plan_;
  const std::uint32_t n_;
};

std::optional<Stretch> InPlacePlans::stretch_of(std::uint32_t fetch, const std::vector<std::uint32_t>& moves) const {
  const Move& comes = plan_.moves[fetch];
  const std::uint32_t t = comes.extent.tensor.value;
  Stretch found{.tensor = comes.extent.tensor, .tier = comes.source, .fetch = fetch};
  std::uint32_t length = n_;  // ops from the one that waits for it
  for (const std::uint32_t m : moves) {
    const Move& move = plan_.moves[m];
    if (move.verb == Verb::drop || move.source.value * move.target.value != 0) return std::nullopt;
    if (move.verb != Verb::evict || after(move.issue.value, comes.due) + 1 > length) continue;
    length = after(move.issue.value, comes.due) + 1;
    found.evict = m;
  }
  if (found.evict && plan_.moves[*found.evict].target != found.tier) return std::nullopt;
  if (!found.evict) {
    if (uses_.tensors[t].persistent) return std::nullopt;
    length = n_ - comes.due.value;
  }
  found.moves_ns = time(comes.extent, found.tier, {0});
  for (const Use& use : uses_.tensors[t].uses) {
    if (after(use.op, comes.due) >= length) continue;
    const Op& op = trace_.ops[use.op];
    const Bytes bytes = bytes_of(comes.extent, trace_);
    const Bytes read = std::ranges::binary_search(op.reads, found.tensor) ? bytes : Bytes{};
    found.in_place_ns += machine_.time_in_place(op.name, found.tier, read, use.write ? bytes : Bytes{}).value;
    found.uses.push_back({use.op});
    if (use.write && found.evict)
      found.moves_ns = time(comes.extent, found.tier, {0}) + time(comes.extent, {0}, found.tier);
  }
  const bool leaves_later = found.evict && plan_.moves[*found.evict].due <= plan_.moves[*found.evict].issue;
  found.over_the_seam = comes.due.value + length > n_ || comes.issue > comes.due || leaves_later;
  const bool has_home = uses_.tensors[t].persistent && !comes.extent.part;  // a tensor has one for all of its parts
  if (found.over_the_seam && !has_home) return std::nullopt;
  return found;
}

std::vector<Stretch> InPlacePlans::stretches() const {
  using Part = std::pair<TensorIndex, std::uint64_t>;
  const auto part_of = [&](const Move& move) {
    return Part(move.extent.tensor, move.extent.part ? move.extent.part->begin.value + 1 : 0);
  };
  std::map<Part, std::vector<std::uint32_t>> moves;
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) moves[part_of(plan_.moves[m])].push_back(m);
  std::vector<Stretch> found;
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) {
    const Move& move = plan_.moves[m];
    if (move.verb != Verb::fetch || !machine_.tiers[move.source.value].addressable) continue;
    if (auto stretch = stretch_of(m, moves[part_of(move)])) found.push_back(*std::move(stretch));
  }
  std::ranges::stable_sort(found, {}, [](const Stretch& each) {
    return static_cast<double>(each.in_place_ns) / static_cast<double>(std::max<std::int64_t>(each.moves_ns, 1));
  });
  return found;
}

Plan InPlacePlans::without(const std::vector<Stretch>& left) const {
  Plan plan = plan_;
  std::vector<char> gone(plan.moves.size());
  for (const Stretch& each : left) {
    gone[each.fetch] = 1;
    if (each.evict) gone[*each.evict] = 1;
    if (each.over_the_seam) plan.home[each.tensor.value] = each.tier;
    for (const OpIndex op : each.uses) plan.in_place.push_back({.op = op, .tensor = each.tensor, .tier = each.tier});
  }
  std::uint32_t m = 0;
  std::erase_if(plan.moves, [&](const Move&) { return gone[m++] != 0; });
  const auto order = [](const InPlace& each) { return std::pair(each.op, each.tensor); };
  std::ranges::sort(plan.in_place, {}, order);
  const auto again = std::ranges::unique(plan.in_place, {}, order);  // parts of one tensor
  plan.in_place.erase(again.begin(), again.end());
  return plan;
}

// The stretches that are worth it; none where all fetches are.
std::vector<Stretch> chosen(const InPlacePlans& plans, const std::vector<Stretch>& all, const Rehearsal& rehearsal,
                            std::int64_t least) {
  constexpr std::size_t most_singles = 12;
  std::vector<Stretch> best;
  const auto consider = [&](std::vector<Stretch> some) {
    const auto cost = rehearsal.of(plans.without(some));
    if (!cost || cost->cost.value >= least) return;
    least = cost->cost.value;
    best = std::move(some);
  };
  for (std::size_t few = all.size(); few > 0 && !TimeLimit::is_over(); few /= 2)
    consider({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(few)});
  for (std::size_t i = 0; i < std::min(all.size(), most_singles) && !TimeLimit::is_over(); ++i) {
    std::vector<Stretch> other = best;
    const auto same = [&](const Stretch& each) { return each.fetch == all[i].fetch; };
    if (std::erase_if(other, same) == 0) other.push_back(all[i]);
    consider(std::move(other));
  }
  return best;
}

}  // namespace

Plan leave_in_place(const Trace& trace, const Uses& uses, const Machine& machine, Plan plan) {
  const bool can =
      std::any_of(machine.tiers.begin() + 1, machine.tiers.end(), [](const Tier& t) { return t.addressable; });
  if (!can || !plan.recomputations.empty() || !plan.order.empty()) return plan;
  const InPlacePlans plans(trace, uses, machine, plan);
  const std::vector<Stretch> all = plans.stretches();
  const Rehearsal rehearsal(trace, machine);
  const auto moving = rehearsal.of(plan);
  if (!moving || all.empty()) return plan;
  const std::vector<Stretch> left = chosen(plans, all, rehearsal, moving->cost.value);
  if (left.empty()) return plan;
  Plan better = plans.without(left);
  const auto rehearsed = rehearsal.of(better);
  better.reasons.push_back(std::to_string(better.in_place.size()) +
                           " uses of operands are where these lie, in slower memory: so the step waits " +
                           readable_ms(rehearsed->waits) + " when rehearsed, and " + readable_ms(moving->waits) +
                           " where all of them are moved");
  return better;
}

}  // namespace vedette::planning
