// vedette: our own planner, for slow tiers that are reached by copying.
//
// What it stands on. Belady 1966: the victim is what is needed furthest in the future. Cao, Felten, Karlin, Li,
// SIGMETRICS'95
// ("A study of integrated prefetching and caching strategies"): with known uses, prefetch the next missing block as
// soon as something that is needed later can leave (aggressive). Or only when it replaces what demand would replace
// (conservative). The best lies between. Kimbrel et al., OSDI'96 (forestall): between them, by how far ahead one looks.
// G10, MICRO'23, section 4: stays in the slow tier as gaps between uses, fetches issued as early as room allows. Kept:
// their rules. Changed: sizes differ and a dirty victim costs a write, so evicts are placed back into the idle time of
// their link since the last use. How far ahead to look is not derived but tried, each try rehearsed against the clock
// with both links. What was changed goes out and comes back while the links idle, so that it can leave for nothing
// under pressure. Cost: O((ops + accesses) log ops) a try, about thirty tries.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/readable.h"
#include "policy/makers.h"
#include "policy/vedette/features.h"
#include "policy/vedette/fit.h"
#include "policy/vedette/knobs.h"
#include "policy/vedette/layout.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/search.h"
#include "policy/vedette/split.h"
#include "policy/vedette/sweep.h"
#include "sim/simulator.h"
#include "vedette/check.h"

namespace vedette {
namespace {

using planning::Knobs;
using planning::Setting;
using planning::Stay;
using planning::Uses;

std::int64_t largest_op(const Trace& trace, const Uses& uses, std::uint64_t granule) {
  std::int64_t largest = 0;
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    auto sum = static_cast<std::int64_t>(trace.ops[op].workspace.value);
    for (std::uint32_t t : uses.operands[op])
      sum += static_cast<std::int64_t>(planning::rounded(trace.tensors[t].bytes.value, granule));
    largest = std::max(largest, sum);
  }
  return largest;
}

// Tries plans and keeps the one that rehearses fastest.
class Search {
 public:
  Search(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting,
         const planning::Features& features)
      : trace_(trace),
        uses_(uses),
        step_(sim::flatten(trace)),
        machine_(planning::with(planning::without_interference(machine), {})),
        early_(planning::with(machine_, {.early_fetches = machine.habits.early_fetches})),
        bus_(planning::on_its_bus(planning::with(machine_, machine.habits))),
        as_live_(machine.habits.early_fetches),
        setting_(setting),
        features_(features) {
    for (const Op& op : trace.ops) step_ns_ += op.time.value;
    link_time_percent_ = std::max(least_link_time_percent,
                                  std::int64_t{machine.interference_percent.value_or(default_interference_percent)});
  }

  void run() {
    planning::try_knobs(
        step_ns_, setting_.budget, [this](const Knobs& knobs) { consider(knobs); }, [this] { return knobs_; });
    if (!found_ || !as_live_) return;
    plain_ = plan_;
    clean_after_last_use();
    fit_to_sessions();
  }

  std::vector<std::string> reasons(std::uint64_t percent) const {
    const auto ms = [](std::int64_t ns) {
      return std::to_string(ns / 1'000'000) + "." + std::to_string(ns / 100'000 % 10) + " ms";
    };
    std::vector<std::string> said = {
        "of the plans tried, the one kept waits " + ms(stall_.value) + " a step when rehearsed",
        "fetches may start " + ms(knobs_.horizon_ns) + " before demand would"};
    if (knobs_.clean_ahead_ns >= 0)
      said.push_back("what changed is written out up to " + ms(knobs_.clean_ahead_ns) + " before its room is needed");
    if (knobs_.clean_after_last_use_ns >= 0)
      said.push_back("what lives on after its last use is written out up to " + ms(knobs_.clean_after_last_use_ns) +
                     " before its room is needed, and leaves for nothing when it was used");
    if (evicted_after_last_use_.value > 0)
      said.push_back(readable_exactly(evicted_after_last_use_) +
                     " that no op uses again are written out before they die, while the links idle: what is needed "
                     "next comes into their room");
    if (percent != 100)
      said.push_back("planned for " + std::to_string(percent) +
                     " % of the promised bandwidth, because moves came late");
    return said;
  }
  bool found() const { return found_; }
  // The plan of `whole`, of which trace_ has the parts. Costs of parts and of whole tensors differ a little, so a plan
  // that was fitted to sessions is kept only where it costs no more for whole tensors as well.
  Plan plan_of_whole(const Trace& whole, const planning::Split& parts) const {
    Plan fitted = planning::joined(whole, parts, plan_);
    if (!plain_) return fitted;
    const bool cleans = knobs_.clean_after_last_use_ns >= 0;
    const Machine& machine = cleans ? bus_ : early_;
    const ReplayOptions options{.steps = 2};
    Plan plain = planning::joined(whole, parts, *plain_);
    const sim::Step step = sim::flatten(whole);
    const auto of_fitted = sim::simulate(whole, step, machine, fitted, options);
    const auto of_plain = sim::simulate(whole, step, machine, plain, options);
    if (of_fitted && of_plain && cost_of(*of_plain, machine) < cost_of(*of_fitted, machine)) return plain;
    return fitted;
  }
  Nanoseconds stall() const { return stall_; }

 private:
  void consider(Knobs knobs) {
    knobs = features_.of(knobs);
    if (found_ && ++tries_ * trace_.ops.size() > most_work) return;
    if (consider(planning::sweep(trace_, uses_, setting_, knobs), machine_)) knobs_ = knobs;
  }

  // Keeps what costs least, and says whether it was this.
  bool consider(std::vector<Stay> stays, const Machine& machine) {
    auto laid_out = planning::lay_out(trace_, uses_, setting_, std::move(stays));
    if (!laid_out) return false;
    std::vector<Stay> gaps = *laid_out;
    if (features_.issuing_early) planning::fetch_early(trace_, uses_, setting_, step_ns_ / most_lead, 0, gaps);
    Plan plan = planning::plan_of(trace_, setting_, gaps);
    const auto replayed = simulated(plan, machine);
    if (!replayed) return false;
    const std::int64_t cost = cost_of(*replayed, machine);
    if (found_ && cost >= cost_) return false;
    found_ = true;
    cost_ = cost;
    stays_ = *std::move(laid_out);
    plan_ = std::move(plan);
    stall_ = replayed->measured.stall;
    return true;
  }

  Result<Replayed> simulated(const Plan& plan, const Machine& machine) const {
    return sim::simulate(trace_, step_, machine, plan, {.steps = 2});
  }

  // From here on the plan's cost is what it costs on that machine.
  bool cost_anew(const Machine& machine) {
    const auto now = simulated(plan_, machine);
    if (!now) return false;
    cost_ = cost_of(*now, machine);
    stall_ = now->measured.stall;
    return true;
  }

  // Gradients that went out during backward leave for nothing in the optimizer, where each write would take the disk
  // from what is waited for. Links that are shares of a bus do not show that, nor do writes that never wait, so this is
  // judged on the bus, as a session runs.
  void clean_after_last_use() {
    const bool one_bus = share_a_bus(*bus_.link(setting_.slow, {0}), *bus_.link({0}, setting_.slow));
    if (!one_bus || !bus_.habits.writes_wait || !features_.cleaning || !cost_anew(bus_)) return;
    std::size_t tries = most_work / trace_.ops.size();
    Knobs knobs = knobs_;
    for (const std::int64_t part : {512, 128, 32, 8}) {
      if (tries-- == 0) return;
      knobs.clean_after_last_use_ns = step_ns_ / part;
      if (consider(planning::sweep(trace_, uses_, setting_, knobs), bus_)) knobs_ = knobs;
    }
  }

  // A session starts fetches one op early, a replay does not. With that in mind each stay in the slow tier is left out
  // once, and stays out where that costs less; then what unused may leave.
  void fit_to_sessions() {
    const bool cleans = knobs_.clean_after_last_use_ns >= 0;
    // elsewhere plans fitted to the bus wait longer live (docs/tried.md)
    const Machine& machine = cleans ? bus_ : early_;
    if (!cost_anew(machine)) return;
    std::size_t tries = most_work_for_sessions / trace_.ops.size();
    for (bool better = true; better;) {
      better = false;
      for (std::size_t s = 0; s < stays_.size() && tries > 0; ++s, --tries) {
        std::vector<Stay> others = stays_;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(s));
        better = consider(std::move(others), machine) || better;
      }
    }
    const planning::Trial trial{
        .simulate = [&](const Plan& tried) { return simulated(tried, machine); },
        .cost = [&](const Replayed& got) { return cost_of(got, machine); },
    };
    planning::Fitted sent =
        planning::evict_after_last_use(trace_, uses_, setting_, std::move(plan_), trial, most_work / trace_.ops.size());
    plan_ = std::move(sent.plan);
    evicted_after_last_use_ = sent.bytes;
    stall_ = sent.stall;
    // what is promised is of links with their shares, whoever judged the plan
    if (cleans) cost_anew(early_);
  }

  // Bytes in flight cost the program some memory bandwidth and the engine's thread: of two equal plans the one that
  // moves less.
  std::int64_t cost_of(const Replayed& simulated, const Machine& machine) const {
    const Nanoseconds links = transfer_time(simulated.bytes_in, machine.link(setting_.slow, {0})->bytes_per_s) +
                              transfer_time(simulated.bytes_out, machine.link({0}, setting_.slow)->bytes_per_s);
    return simulated.measured.stall.value + links.value / 100 * link_time_percent_;
  }

  const Trace& trace_;
  const Uses& uses_;
  const sim::Step step_;
  // As moves are issued; with the session's fetches, one op early; and on the disk's one bus, with all its habits.
  const Machine machine_, early_, bus_;
  const bool as_live_;
  const Setting& setting_;
  const planning::Features features_;
  static constexpr std::int64_t least_link_time_percent = 3;  // of two equal plans the one that moves less
  // of a step: real times deviate less, and looking further back takes long
  static constexpr std::int64_t most_lead = 8;
  static constexpr std::size_t most_work = 80'000;                // tries times ops: 40 tries for 2,000 ops, some 0.1 s
  static constexpr std::size_t most_work_for_sessions = 600'000;  // as above: 0.1 s for ResNet-18's step
  std::size_t tries_ = 0;
  std::int64_t step_ns_ = 0, cost_ = 0, link_time_percent_ = 0;
  bool found_ = false;
  Knobs knobs_;
  std::vector<Stay> stays_;  // of the plan, before fetches were issued early
  Plan plan_;
  std::optional<Plan> plain_;     // before it was fitted to sessions
  Nanoseconds stall_;             // of the step, rehearsed
  Bytes evicted_after_last_use_;  // that leave before they die
};

// What moves alone: small enough that room for some of it is found beside a large op, large enough that there are not
// too many.
std::uint64_t part_bytes(const Setting& setting) {
  constexpr std::uint64_t parts_of_budget = 48;  // 2 to 4 MiB of 100 MiB; 24 to 96 differ little
  return planning::rounded(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(setting.budget) / parts_of_budget),
                           setting.granule);
}

Plan everything_near(const Trace& trace) {
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  plan.reasons = {"everything fits into the fastest tier: nothing moves"};
  return plan;
}

Nanoseconds op_time_of(const Trace& trace) {
  Nanoseconds sum;
  for (const Op& op : trace.ops) sum += op.time;
  return sum;
}

// Plans are made from the profile's times and promised bandwidths. Times that settle elsewhere are planned for anew, a
// few times. Where the links turn out worse than promised, plans for slower ones are tried, each once, and the plan
// that was measured best stays: no way back and forth.
class Vedette final : public Policy {
 public:
  explicit Vedette(const planning::Features& features = {}) : features_(features) {}
  std::string_view name() const noexcept override { return "vedette"; }
  Result<Plan> prepare(const Trace& trace, const Machine& machine) override;
  Reaction react(const Event& event, const View& view) override;

 private:
  static constexpr std::array<std::uint64_t, 3> percents = {100, 70, 50};  // of the promised bandwidth, one trial each
  // of a trial; the step before them still has the old plan's leftovers
  static constexpr std::uint32_t measured_steps = 2;
  static constexpr std::uint32_t most_refreshes = 3;
  struct Trial {
    Plan plan;
    std::int64_t stall = 0;      // rehearsed
    std::int64_t measured = -1;  // least of the measured steps; -1: none yet
  };

  void start_anew_for_another_program(const Trace& trace, const Machine& machine);
  bool times_have_moved(const Trace& trace) const;

  planning::Features features_;
  std::vector<Trial> trials_;
  std::optional<std::size_t> settled_;
  std::uint32_t steps_ = 0;  // ended since the running trial began
  std::uint32_t refreshes_ = 0;
  Nanoseconds planned_for_;  // sum of the op times
  std::size_t ops_ = 0, tensors_ = 0;
  Machine machine_;
};

void Vedette::start_anew_for_another_program(const Trace& trace, const Machine& machine) {
  if (ops_ == trace.ops.size() && tensors_ == trace.tensors.size() && machine_ == machine) return;
  trials_.clear();
  settled_.reset();
  refreshes_ = 0;
  ops_ = trace.ops.size();
  tensors_ = trace.tensors.size();
  machine_ = machine;
}

bool Vedette::times_have_moved(const Trace& trace) const {
  const std::int64_t moved = op_time_of(trace).value - planned_for_.value;
  return (moved < 0 ? -moved : moved) > planned_for_.value / 20;  // 5 %: less changes no decision worth a replan
}

Result<Plan> Vedette::prepare(const Trace& trace, const Machine& machine) {
  if (machine.tiers.empty()) return Error{Cause::malformed_input, "the machine has no tiers"};
  if (machine.whole_tensors) features_.parts = false;
  start_anew_for_another_program(trace, machine);
  steps_ = 0;
  if (settled_) return trials_[*settled_].plan;
  planned_for_ = op_time_of(trace);
  const Uses uses = planning::uses_of(trace);
  Machine assumed = machine;
  for (Link& link : assumed.links)
    for (std::uint64_t* speed : {&link.bytes_per_s, &link.alone_bytes_per_s})
      *speed = *speed / 100 * percents[std::min(trials_.size(), percents.size() - 1)];
  const Setting setting = planning::setting_of(assumed, planning::tier_for_all(trace, assumed));
  const std::vector<std::int64_t> occupied = planning::occupied_without_moves(trace, uses, setting.granule);
  if (occupied.empty() || *std::max_element(occupied.begin(), occupied.end()) <= setting.budget)
    return everything_near(trace);
  const std::int64_t smallest = largest_op(trace, uses, setting.granule);
  if (smallest > setting.budget || setting.slow.value == 0) {
    return Error{Cause::infeasible, "the largest op needs " + readable_exactly({static_cast<std::uint64_t>(smallest)}) +
                                        " of fast memory at once, and there are " +
                                        readable_exactly({static_cast<std::uint64_t>(setting.budget)}) +
                                        "; give it that many"};
  }
  if (machine.can_recompute || machine.tiers.size() > 2) {
    auto wide =
        planning::search(trace, assumed, planning::setting_of(assumed, planning::nearest_tier(assumed)), features_);
    if (!wide) return wide.error();
    // Where tiers in between are full the wide plan may ask too much of one; then everything goes to one that holds it
    // all. The judge is naive: of many ops it is asked only where that can be.
    constexpr std::size_t many_ops = 4'000;
    if ((trace.ops.size() > many_ops && planning::first_holds_all(trace, machine)) ||
        !check(trace, machine, wide->plan)) {
      std::int64_t ideal = 0;
      for (const Op& op : trace.ops) ideal += op.time.value;
      trials_.push_back({.plan = std::move(wide->plan), .stall = wide->step.value - ideal - wide->recomputing.value});
      return trials_.back().plan;
    }
  }
  const planning::Split parts = planning::split(
      trace, !features_.parts ? planning::rounded(peak_bytes(trace).value, setting.granule) : part_bytes(setting));
  const Uses uses_of_parts = planning::uses_of(parts.trace);
  Search search(parts.trace, uses_of_parts, assumed, setting, features_);
  search.run();
  if (!search.found())
    return Error{
        Cause::infeasible,
        "no plan was found for " + readable_exactly({static_cast<std::uint64_t>(setting.budget)}) + " of fast memory"};
  const std::uint64_t percent = percents[std::min(trials_.size(), percents.size() - 1)];
  trials_.push_back({.plan = search.plan_of_whole(trace, parts), .stall = search.stall().value});
  trials_.back().plan.reasons = search.reasons(percent);
  return trials_.back().plan;
}

Reaction Vedette::react(const Event& event, const View& view) {
  if (event.kind != Event::Kind::step_ended || event.measured == nullptr || trials_.empty() || settled_) return {};
  if (++steps_ <= 1) return {};
  Trial& trial = trials_.back();
  const std::int64_t stall = event.measured->stall.value;
  trial.measured = trial.measured < 0 ? stall : std::min(trial.measured, stall);
  if (steps_ <= measured_steps) return {};
  if (refreshes_ < most_refreshes && times_have_moved(view.trace)) {
    ++refreshes_;
    trials_.pop_back();
    return {.moves = {}, .replan = true};
  }
  // As rehearsed, within an eighth and a hundredth of the step: nothing to win.
  const bool as_promised = trial.measured <= trial.stall + trial.stall / 8 + event.measured->time.value / 100;
  if (trials_.size() < percents.size() && !as_promised) return {.moves = {}, .replan = true};
  settled_ = static_cast<std::size_t>(
      std::min_element(trials_.begin(), trials_.end(),
                       [](const Trial& a, const Trial& b) { return a.measured < b.measured; }) -
      trials_.begin());
  return {.moves = {}, .replan = *settled_ + 1 != trials_.size()};
}

}  // namespace

std::unique_ptr<Policy> make_vedette(std::uint64_t) { return std::make_unique<Vedette>(); }
std::unique_ptr<Policy> planning::make_vedette_with(const Features& features) {
  return std::make_unique<Vedette>(features);
}

}  // namespace vedette
