// Sentinel: Ren, Luo, Wu, Zhang, Jeon, Li, "Sentinel: Efficient Tensor Migration and Allocation on Heterogeneous Memory
// Systems for Deep Learning", HPCA'21 (arXiv 1909.05182). The text was not at hand: equations and procedure are from
// memory, so this is an interpretation, not a port.
//
// Kept: short-lived tensors (alive within one layer) are never moved, room for their peak (RS) is reserved; long-lived
//   tensors move at the granularity of intervals of MIL layers: at the start of interval k the tensors of Need(k+1) are
//   fetched in order of first use (the hotter first), and a tensor is evicted after its last use in interval k when
//   Need(k+1) does without it; MIL must leave room (Eq. 1: what is resident and fetched < S - RS), should hide the
//   transfer (Eq. 2: Tensor(MIL)/BW <= T(MIL)), and is decided by measuring a step of each candidate. Case 1 (in time)
//   costs nothing. On an addressable slow tier, case 2 (no room) uses tensors in place, and case 3 (no time) is decided
//   by test and trial: a step that waits, a step that leaves them in place.
// Changed: Eq. 1 is checked op by op in a ledger, evictions in flight included, because a plan here must never exceed
//   its capacity. RS holds workspace too. Layers cover the optimizer, and intervals run on into the next step, because
//   weights do. Candidates are tried in order of predicted time, at most `most_candidates`, because a step each for
//   hundreds of layers is too long a search; an interval that needs no move is taken at once. A slow tier that is not
//   addressable admits no case 2 and waits in case 3 (the paper's GPU variant). Where not even one layer fits, layers
//   are cut into groups of ops, and at last each op waits for its operands: the paper would use slow memory in place
//   there. Where a trace says which pages were touched, runs of pages are planned like tensors (by_pages.h); no trial
//   leaves them in place.
// Not here: co-allocation (the arena's packing), profiling (the session).
//
// Cost of prepare: O(cuts * accesses + planned cuts * (accesses + moves) log); of react: O(moves).
#include <algorithm>
#include <string>

#include "base/readable.h"
#include "policy/canvas/by_pages.h"
#include "policy/makers.h"
#include "policy/sentinel/plan.h"

namespace vedette {
namespace {

using sentinel::Cut;
using sentinel::Problem;
using sentinel::Site;

constexpr std::size_t most_candidates = 5;  // one step each: the search ends while training has hardly begun

class Sentinel final : public Policy {
 public:
  std::string_view name() const noexcept override { return "sentinel"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    if (machine.tiers.empty()) return Error{.cause = Cause::malformed_input, .message = "the machine has no tier"};
    if (trace.ops.empty()) return Plan{.home = std::vector<TierIndex>(trace.tensors.size())};
    const auto [smallest, op] = sentinel::smallest_fast_tier(trace, machine.granule);
    if (smallest > machine.tiers[0].capacity) return too_small(trace, machine, smallest, op);
    const TierIndex slow = slow_tier(trace, machine);
    sentinel::Facts facts(trace, machine, slow);
    const Problem problem{trace, machine, slow, facts};
    if (!same_program(trace, machine)) search(problem);
    if (candidates_.empty()) return no_slow_tier(trace, machine);
    std::optional<Plan> plan = sentinel::plan(problem, candidates_[current_].cut, left_);
    if (!plan) plan = sentinel::plan(problem, candidates_[current_].cut, {});
    if (!plan) {  // times changed, and with them the fit: choose anew
      search(problem);
      plan = sentinel::plan(problem, candidates_.at(current_).cut, {});
    }
    plan->reasons = reasons(*plan);
    return *plan;
  }

  Reaction react(const Event& event, const View& view) override {
    if (event.kind != Event::Kind::step_ended || !event.measured || candidates_.empty() || stage_ == Stage::settled)
      return {};
    return stage_ == Stage::trying ? tried(*event.measured, view) : left_in_place(*event.measured);
  }

 private:
  enum class Stage : std::uint8_t {
    trying,   // a step of each candidate; then: leaving, or settled
    leaving,  // test and trial: a step of the best, with late tensors left in place; then: settled
    settled,
  };
  struct Candidate {
    Cut cut;
    Nanoseconds predicted{};
    std::optional<Nanoseconds> measured{};
    std::set<Site> late{};
  };

  std::vector<std::string> reasons(const Plan& plan) const {
    if (plan.moves.empty()) return {"everything fits into the fastest tier: nothing moves"};
    const Candidate& now = candidates_[current_];
    const std::string unit = now.cut.ops_per_group > 0 ? std::to_string(now.cut.ops_per_group) + " ops"
                                                       : std::to_string(now.cut.layers_per_interval) + " layers";
    std::vector<std::string> said = {
        now.cut.on_demand && now.cut.ops_per_group == 0 ? "each op waits for its operands" : "intervals of " + unit,
        "candidate " + std::to_string(current_ + 1) + " of " + std::to_string(candidates_.size()) + ", predicted " +
            std::to_string(now.predicted.value / 1'000'000) + " ms a step"};
    if (now.measured) said.push_back("measured " + std::to_string(now.measured->value / 1'000'000) + " ms a step");
    if (!left_.empty())
      said.push_back(std::to_string(left_.size()) + " late operands are left in place (test and trial)");
    return said;
  }

  // The nearest slower tier that moves both ways and holds a whole step; the last linked one where none does; 0 where
  // there is none.
  static TierIndex slow_tier(const Trace& trace, const Machine& machine) {
    const Bytes all = peak_bytes(trace);
    TierIndex found{0};
    for (std::uint32_t k = 1; k < machine.tiers.size(); ++k) {
      if (!machine.link({0}, {k}) || !machine.link({k}, {0})) continue;
      found = {k};
      if (machine.tiers[k].capacity >= all) break;
    }
    return found;
  }

  static Error too_small(const Trace& trace, const Machine& machine, Bytes smallest, OpIndex op) {
    return {.cause = Cause::infeasible,
            .message = "op " + std::to_string(op.value) + " '" + trace.ops[op.value].name + "' needs " +
                       readable_exactly(smallest) + " at once and fast memory has " +
                       readable_exactly(machine.tiers[0].capacity) + "; the smallest workable size is " +
                       readable_exactly(smallest)};
  }
  static Error no_slow_tier(const Trace& trace, const Machine& machine) {
    return {.cause = Cause::infeasible,
            .message = "no slower tier is linked to fast memory both ways, and its " +
                       readable(machine.tiers[0].capacity) +
                       " do not hold a step; the smallest workable size without one is about " +
                       readable_exactly(peak_bytes(trace))};
  }

  // Times may be refined between two calls, and the search goes on; another sequence or machine starts it anew.
  bool same_program(const Trace& trace, const Machine& machine) {
    std::vector<std::uint64_t> facts = {machine.tiers.size(), machine.tiers[0].capacity.value, machine.granule.value};
    for (const Tensor& tensor : trace.tensors) facts.insert(facts.end(), {tensor.bytes.value, tensor.persistent});
    for (const Op& op : trace.ops) {
      facts.insert(facts.end(), {op.layer ? op.layer->value + std::uint64_t{1} : 0,
                                 static_cast<std::uint64_t>(op.phase), op.workspace.value});
      for (const auto* list : {&op.reads, &op.writes, &op.frees}) {
        facts.push_back(list->size());
        for (TensorIndex t : *list) facts.push_back(t.value);
      }
    }
    if (facts == facts_) return true;
    facts_ = std::move(facts);
    return false;
  }

  // All cuts worth a thought, the best predicted first. Most are never planned: those that cannot take less than the
  // worst of the best few, whatever room there is, would be cut off below.
  void search(const Problem& problem) {
    step_ = sim::flatten(problem.trace);
    candidates_.clear();
    left_.clear();
    current_ = 0;
    stage_ = Stage::settled;
    const std::uint32_t layers = sentinel::layer_count(problem.trace);
    const Cut whole{.layers_per_interval = layers};
    if (!sentinel::least_time(problem, whole) || !rests(problem, whole)) {
      if (problem.slow.value == 0) return;
      std::vector<Cut> cuts;
      for (std::uint32_t mil = 1; mil < layers; mil = next_length(mil)) cuts.push_back({.layers_per_interval = mil});
      choose(problem, cuts);
      if (candidates_.empty()) choose(problem, groups(problem));
      stage_ = Stage::trying;
    }
  }

  // Each of the first sixteen, then in steps of an eighth: longer intervals differ less and less.
  static std::uint32_t next_length(std::uint32_t length) { return length < 16 ? length + 1 : length + length / 8; }

  // With one interval for all, everything may stay where it is; then that is taken at once.
  bool rests(const Problem& problem, const Cut& whole) {
    const std::optional<Plan> plan = sentinel::plan(problem, whole, {});
    if (!plan || !plan->moves.empty()) return false;
    candidates_.push_back({.cut = whole, .predicted = sentinel::predicted_time(problem, step_, *plan)});
    return true;
  }

  // The few that are predicted best, of equals those named first: as if all were planned and sorted.
  void choose(const Problem& problem, const std::vector<Cut>& cuts) {
    struct Ranked {
      Nanoseconds time;
      std::size_t cut;
      auto operator<=>(const Ranked&) const = default;
    };
    std::vector<Ranked> hopes, best;  // by their least times; by their times
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      if (const auto least = sentinel::least_time(problem, cuts[c])) hopes.push_back({*least, c});
    }
    std::sort(hopes.begin(), hopes.end());
    for (const Ranked& hope : hopes) {
      const bool full = best.size() == most_candidates;
      if (full && hope > best.back()) break;
      const std::optional<Plan> plan = sentinel::plan(problem, cuts[hope.cut], {});
      if (!plan) continue;
      const Ranked ranked{sentinel::predicted_time(problem, step_, *plan), hope.cut};
      best.insert(std::upper_bound(best.begin(), best.end(), ranked), ranked);
      if (best.size() > most_candidates) best.pop_back();
    }
    for (const Ranked& each : best) candidates_.push_back({.cut = cuts[each.cut], .predicted = each.time});
  }

  static std::vector<Cut> groups(const Problem& problem) {
    std::vector<Cut> cuts = {{.on_demand = true}};
    for (std::uint32_t ops = sentinel::longest_layer(problem.trace); ops > 0; ops /= 2) {
      cuts.push_back({.ops_per_group = ops});
      cuts.push_back({.ops_per_group = ops, .on_demand = true});
    }
    return cuts;
  }

  Reaction tried(const StepMeasured& measured, const View& view) {
    Candidate& now = candidates_[current_];
    now.measured = measured.time;
    now.late = late_sites(measured, view);
    if (current_ + 1 < candidates_.size()) {
      ++current_;
      return {.replan = true};
    }
    const auto faster = [](const Candidate& a, const Candidate& b) { return *a.measured < *b.measured; };
    const auto best = std::min_element(candidates_.begin(), candidates_.end(), faster);
    const bool same = best == candidates_.begin() + static_cast<std::ptrdiff_t>(current_);
    current_ = static_cast<std::size_t>(best - candidates_.begin());
    left_ = best->late;
    stage_ = left_.empty() ? Stage::settled : Stage::leaving;
    return {.replan = !same || !left_.empty()};
  }

  Reaction left_in_place(const StepMeasured& measured) {
    stage_ = Stage::settled;
    if (measured.time < *candidates_[current_].measured) return {};
    left_.clear();
    return {.replan = true};
  }

  // The uses that late fetches were for; empty where the slow tier cannot be used in place, so that waiting is the only
  // way.
  std::set<Site> late_sites(const StepMeasured& measured, const View& view) const {
    std::set<Site> sites;
    const TierIndex slow = slow_tier(view.trace, view.machine);
    if (!view.machine.tiers[slow.value].addressable || slow.value == 0) return sites;
    sentinel::Facts facts(view.trace, view.machine, slow);
    const Problem problem{view.trace, view.machine, slow, facts};
    const std::optional<Plan> plan = sentinel::plan(problem, candidates_[current_].cut, left_);
    for (std::uint32_t m : measured.late) {
      if (!plan || m >= plan->moves.size() || plan->moves[m].verb != Verb::fetch) continue;
      sites.insert({plan->moves[m].extent.tensor, plan->moves[m].due});
    }
    return sites;
  }

  sim::Step step_;                     // of the trace that was searched last
  std::vector<std::uint64_t> facts_;   // of the program and the machine that the search is about
  std::vector<Candidate> candidates_;  // the best predicted first
  std::size_t current_ = 0;
  Stage stage_ = Stage::settled;
  std::set<Site> left_;
};

}  // namespace

std::unique_ptr<Policy> make_sentinel(std::uint64_t) { return by_pages(std::make_unique<Sentinel>()); }

}  // namespace vedette
