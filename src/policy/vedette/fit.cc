// A plan of two tiers, changed in three ways for sessions: tensors that are cleaned early, stays that are left out, and
// groups of tensors that no op uses again, the largest first.
#include "policy/vedette/fit.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/time_limit.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/layout.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/slow_room.h"

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

Fitted evict_after_last_use(const Trace& trace, const Uses& uses, const Setting& setting, Plan plan,
                            const PlanCost& plan_cost, std::size_t most_tries) {
  const auto before = plan_cost.simulate(plan);
  Fitted sent{.plan = std::move(plan)};
  if (!before) return sent;
  sent.stall = before->measured.stall;
  std::int64_t cost = plan_cost.cost(*before);
  std::vector<Group> groups = unused_until_death(trace, uses, setting, sent.plan);
  groups.resize(std::min(groups.size(), most_tries));
  for (const Group& group : groups) {
    if (TimeLimit::is_over()) break;
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
    const auto now = plan_cost.simulate(tried, cost);
    if (!now || plan_cost.cost(*now) >= cost) continue;
    cost = plan_cost.cost(*now);
    sent = {.plan = std::move(tried), .stall = now->measured.stall, .bytes = sent.bytes + group.bytes};
  }
  return sent;
}

namespace {

// The plan with the least cost so far, on a machine that may be exchanged.
class SessionFit {
 public:
  SessionFit(const Split& parts, const Machine& machine, const Setting& setting, const Features& features,
             FoundForParts found)
      : trace_(parts.trace),
        uses_(uses_of(trace_)),
        costs_(costs_of(trace_, uses_, setting)),
        step_(sim::flatten(trace_)),
        early_(session_of(machine, false)),
        bus_(session_of(machine, true)),
        setting_(setting),
        features_(features),
        link_cost_{.percent = link_time_percent(machine), .slow = setting.slow},
        step_ns_(time_of_ops(trace_).value),
        found_(std::move(found)) {}

  void run() {
    clean_after_last_use();
    const PlanCost plan_cost = on(machine());
    leave_stays_out(plan_cost);
    const std::size_t tries = may_fill(trace_, early_, setting_) ? 0 : most_work_of_sweeps / trace_.ops.size();
    Fitted sent = evict_after_last_use(trace_, uses_, setting_, std::move(found_.plan), plan_cost, tries);
    found_.plan = std::move(sent.plan);
    evicted_ = sent.bytes;
    stall_ = sent.stall;
    // the promise is of links with their shares, on whichever machine the plan was simulated
    if (cleans()) cost_anew(on(early_));
  }

  // Costs of parts and of whole tensors differ a little, so the fitted plan is kept only where it costs no more for
  // whole tensors as well.
  Plan whole(const Trace& whole, const Split& parts, const Plan& plain) const {
    Plan fitted = joined(whole, parts, found_.plan);
    Plan before = joined(whole, parts, plain);
    const sim::Step step = sim::flatten(whole);
    const PlanCost plan_cost(whole, step, machine(), link_cost_);
    const auto of_fitted = plan_cost.simulate(fitted), of_before = plan_cost.simulate(before);
    if (of_fitted && of_before && plan_cost.cost(*of_before) < plan_cost.cost(*of_fitted)) return before;
    return fitted;
  }
  const Knobs& knobs() const noexcept { return found_.knobs; }
  Nanoseconds stall() const noexcept { return stall_; }
  Bytes evicted_after_last_use() const noexcept { return evicted_; }

 private:
  bool cleans() const noexcept { return found_.knobs.clean_after_last_use_ns >= 0; }
  const Machine& machine() const noexcept { return cleans() ? bus_ : early_; }
  PlanCost on(const Machine& machine) const { return {trace_, step_, machine, link_cost_}; }

  // True: costs less than all before, and is kept.
  bool consider(std::vector<Stay> stays, const PlanCost& plan_cost) {
    auto laid_out = lay_out(trace_, uses_, costs_, setting_, std::move(stays));
    if (!laid_out) return false;
    std::vector<Stay> gaps = *laid_out;
    if (features_.issuing_early) fetch_early(trace_, costs_, setting_, step_ns_ / most_lead, 0, gaps);
    if (!fit_slow_tier(trace_, costs_, early_, setting_, gaps)) return false;
    Plan plan = plan_of(trace_, setting_, gaps);
    const auto replayed = plan_cost.simulate(plan, cost_);
    if (!replayed || plan_cost.cost(*replayed) >= cost_) return false;
    cost_ = plan_cost.cost(*replayed);
    stall_ = replayed->measured.stall;
    found_.stays = *std::move(laid_out);
    found_.plan = std::move(plan);
    return true;
  }

  // From here on the plan's cost is its cost on that machine.
  bool cost_anew(const PlanCost& plan_cost) {
    const auto now = plan_cost.simulate(found_.plan);
    if (!now) return false;
    cost_ = plan_cost.cost(*now);
    stall_ = now->measured.stall;
    return true;
  }

  // Gradients that went out during backward leave without a write in the optimizer, where each write would take the
  // disk from awaited reads. Links that are shares of a bus do not show that, nor do writes that never wait, so this is
  // judged on the bus, as a session runs.
  void clean_after_last_use() {
    const bool one_bus = share_a_bus(*bus_.link(setting_.slow, {0}), *bus_.link({0}, setting_.slow));
    const PlanCost plan_cost = on(bus_);
    if (!one_bus || !bus_.habits.writes_wait || !features_.cleaning || !cost_anew(plan_cost)) return;
    std::size_t tries = most_work_of_sweeps / trace_.ops.size();
    Knobs knobs = found_.knobs;
    for (const std::int64_t part : {512, 128, 32, 8}) {
      if (tries-- == 0 || TimeLimit::is_over()) return;
      knobs.clean_after_last_use_ns = step_ns_ / part;
      if (consider(sweep(trace_, uses_, costs_, setting_, knobs), plan_cost)) found_.knobs = knobs;
    }
  }

  // A session starts fetches one op early, the search does not. Try removing each stay in the slow tier in turn,
  // simulating with early fetches; keep every removal that lowers the cost.
  void leave_stays_out(const PlanCost& plan_cost) {
    if (!cost_anew(plan_cost)) return;
    std::size_t tries = most_work / trace_.ops.size();
    for (bool better = true; better;) {
      better = false;
      for (std::size_t s = 0; s < found_.stays.size() && tries > 0 && !TimeLimit::is_over(); ++s, --tries) {
        std::vector<Stay> others = found_.stays;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(s));
        better = consider(std::move(others), plan_cost) || better;
      }
    }
  }

  static constexpr std::size_t most_work_of_sweeps = 80'000;  // tries times ops: 40 tries for 2,000 ops, some 0.1 s
  static constexpr std::size_t most_work = 600'000;           // as above: 0.1 s for ResNet-18's step

  const Trace& trace_;
  const Uses uses_;
  const Costs costs_;
  const sim::Step step_;
  const Machine early_, bus_;  // with the session's fetches, one op early; on the disk's one bus, with all habits
  const Setting& setting_;
  const Features features_;
  const LinkCost link_cost_;
  const std::int64_t step_ns_;
  std::int64_t cost_ = 0;
  FoundForParts found_;
  Nanoseconds stall_;
  Bytes evicted_;
};

}  // namespace

FittedToSessions fit_to_sessions(const Trace& whole, const Split& parts, const Machine& machine, const Setting& setting,
                                 const Features& features, FoundForParts found) {
  const Plan plain = found.plan;
  SessionFit fit(parts, machine, setting, features, std::move(found));
  fit.run();
  return {.plan = fit.whole(whole, parts, plain),
          .knobs = fit.knobs(),
          .stall = fit.stall(),
          .evicted_after_last_use = fit.evicted_after_last_use()};
}

}  // namespace vedette::planning
