// Groups of tensors that no op uses again, the largest first, each added to the plan where that pays.
#include "policy/vedette/fit.h"

#include <algorithm>
#include <map>
#include <vector>

namespace vedette::planning {
namespace {

struct Group {
  Span<std::uint32_t> span;  // the last use, and the op with which they die
  std::vector<TensorIndex> tensors;
  Bytes bytes;
};

bool leaves_at(const Plan& plan, TensorIndex tensor, std::uint32_t op) {
  return std::any_of(plan.moves.begin(), plan.moves.end(), [&](const Move& move) {
    return move.verb == Verb::evict && move.extent.tensor == tensor && move.issue.value == op;
  });
}

// Groups that could be written before they die, the largest first.
std::vector<Group> unused_until_death(const Trace& trace, const Uses& uses, const Setting& setting, const Plan& plan) {
  std::map<Span<std::uint32_t>, Group> found;
  for (std::uint32_t t = 0; t < uses.tensors.size(); ++t) {
    const TensorUses& tensor = uses.tensors[t];
    if (tensor.persistent || tensor.uses.empty() || tensor.uses.back().op >= tensor.death ||
        leaves_at(plan, {t}, tensor.uses.back().op))
      continue;
    const Span<std::uint32_t> span{tensor.uses.back().op, tensor.death};
    Group& group = found[span];
    group.span = span;
    group.tensors.push_back({t});
    group.bytes += trace.tensors[t].bytes;
  }
  std::vector<Group> groups;
  for (auto& [span, group] : found) {
    Nanoseconds time;
    for (std::uint32_t op = span.begin + 1; op <= span.end; ++op) time += trace.ops[op].time;
    if (transfer_time(group.bytes, setting.write_bytes_per_s) < time) groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
  return groups;
}

}  // namespace

Fitted evict_after_last_use(const Trace& trace, const Uses& uses, const Setting& setting, Plan plan, const Trial& trial,
                            std::size_t most_tries) {
  const auto before = trial.simulate(plan);
  Fitted sent{.plan = std::move(plan), .stall = {}, .bytes = {}};
  if (!before) return sent;
  sent.stall = before->measured.stall;
  std::int64_t cost = trial.cost(*before);
  std::vector<Group> groups = unused_until_death(trace, uses, setting, sent.plan);
  groups.resize(std::min(groups.size(), most_tries));
  for (const Group& group : groups) {
    Plan tried = sent.plan;
    for (const TensorIndex tensor : group.tensors)
      tried.moves.push_back({.issue = {group.span.begin},
                             .due = {group.span.end},
                             .extent = {tensor, {}},
                             .source = {0},
                             .target = setting.slow,
                             .verb = Verb::evict});
    std::stable_sort(tried.moves.begin(), tried.moves.end(),
                     [](const Move& a, const Move& b) { return a.issue < b.issue; });
    const auto now = trial.simulate(tried);
    if (!now || trial.cost(*now) >= cost) continue;
    cost = trial.cost(*now);
    sent = {.plan = std::move(tried), .stall = now->measured.stall, .bytes = sent.bytes + group.bytes};
  }
  return sent;
}

}  // namespace vedette::planning
