// AutoTM: Hildebrand, Khan, Trika, Lowe-Power, Akella, "AutoTM: Automatic Tensor Movement in Heterogeneous Memory
// Systems using Integer Linear Programming", ASPLOS'20, after the paper and its code (darchr/AutoTM).
//
// Kept: a static plan from an integer linear program. Each tensor leaves and returns at ops at most 15 from one of its
//   users, beside an op (asynchronous: the op takes the longer of its time and of the moves beside it) or between two
//   (synchronous: it blocks). Minimise the step; the tensors in fast memory during an op, with its workspace, stay
//   within the limit.
//   Where ops can use slow memory in place, a static plan, too: each tensor lies in one tier for all its life, and an
//   op takes longer by what it reads and writes in slow memory. The one whose step is shorter is the plan.
// Changed: a gap between two users is away once at most and pays both moves; the code pays a write once a tensor.
//   Weights take part across the step's seam, so the code's "in DRAM for ever" is a gap that is not taken. A program of
//   thousands of gaps is more than a free solver proves: at most 32 gaps take part, those of most bytes x time over the
//   limit first, in eight rounds, each with four places for either move where there are more than 12; the rest leaves
//   on demand. Branch and bound stops within 0.5 % or after a number of nodes, because a policy sees no clock;
//   Plan::reasons says how far from proven it stopped. The defragmentation loop is the allocator's affair.
// Partial: no profile of an op for each placement of its operands (its time is that in fast memory and that of its
//   bytes in slow memory), no program with both kinds of choices, no times of each algorithm (a trace has one an op).
//
// Cost of prepare: at most `most_rounds` programs, and 12 where ops can use slow memory in place.
#include <algorithm>
#include <optional>
#include <string>

#include "policy/autotm/one_tier.h"
#include "policy/autotm/program.h"
#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/op_times.h"
#include "policy/makers.h"
#include "vedette/check.h"
#include "vedette/replay.h"

namespace vedette {
namespace {

using namespace planning;

class AutoTm final : public LedgerPolicy {
 public:
  AutoTm() : LedgerPolicy("autotm") {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    if (!autotm::solver_present())
      return Error{
          .cause = Cause::unsupported,
          .message = "this build has no solver for integer programs; install coinor-libcbc-dev and configure it again"};
    std::vector<std::string> reasons;
    for (std::size_t round = 0; round < most_rounds && !ledger.fits(); ++round) {
      if (!improve(ledger, reasons)) break;
    }
    std::optional<Plan> moving;
    if (ledger.settle()) moving = ledger.write();
    if (moving) moving->reasons = std::move(reasons);
    if (auto plan = static_plan(ledger, moving)) return *std::move(plan);
    return moving ? *std::move(moving) : Result<Plan>(no_room(ledger));
  }

  // Where ops can use slow memory in place, and a step is shorter so than by moves.
  static std::optional<Plan> static_plan(const Ledger& ledger, const std::optional<Plan>& moving) {
    const auto chosen = autotm::one_tier(ledger.trace(), ledger.machine(), most_nodes, good_enough);
    if (!chosen) return std::nullopt;
    Plan plan = autotm::plan_of(ledger.trace(), ledger.machine(), *chosen);
    if (check(ledger.trace(), ledger.machine(), plan)) return std::nullopt;  // slow memory is too small for it
    Machine machine = ledger.machine();
    machine.interference_percent = machine.interference_percent.value_or(default_interference_percent);
    const auto there = replay(ledger.trace(), machine, plan);
    if (!there) return std::nullopt;
    if (moving) {
      const auto moved = replay(ledger.trace(), machine, *moving);
      if (moved && moved->measured.time < there->measured.time) return std::nullopt;
    }
    plan.reasons.push_back("static: " + std::to_string(std::ranges::count(chosen->far, 1)) +
                           " tensors lie in slow memory, where ops use them for " + readable_ms(chosen->in_place) +
                           (chosen->proven ? "" : "; the program was stopped at its limit of nodes"));
    return plan;
  }

  static constexpr std::size_t most_rounds = 8, most_gaps = 32, few_gaps = 12, few_places = 4;
  static constexpr int most_nodes = 20;
  static constexpr double good_enough = 0.005;  // a share of the step

  // One program on the gaps that are not away yet. The limit is asked for as far as those gaps can keep it. False: no
  // help.
  static bool improve(Ledger& ledger, std::vector<std::string>& reasons) {
    std::vector<autotm::Candidate> found = autotm::candidates(ledger, most_gaps, 0);
    if (found.size() > few_gaps) found = autotm::candidates(ledger, most_gaps, few_places);
    if (found.empty()) return false;
    auto solution = autotm::solve(ledger, found, most_nodes, good_enough);
    if (!solution || solution->chosen.empty()) {
      reasons.push_back("the program of " + std::to_string(found.size()) + " gaps has no solution within " +
                        std::to_string(most_nodes) +
                        " nodes: all of them leave as soon and return as late as they may");
      for (const autotm::Candidate& each : found)
        take(ledger, each, {.candidate = 0, .out = each.out.front(), .in = each.in.front()});
      return true;
    }
    for (const autotm::Chosen& each : solution->chosen) take(ledger, found[each.candidate], each);
    const auto tenths =
        static_cast<std::int64_t>((solution->time - solution->bound) / std::max(solution->time, 1.0) * 1000);
    reasons.push_back("a program of " + std::to_string(found.size()) + " gaps, " +
                      (solution->proven ? "solved" : "stopped at its limit of nodes") + ", " +
                      std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " % above its lower bound");
    return true;
  }

  static void take(Ledger& ledger, const autotm::Candidate& candidate, const autotm::Chosen& chosen) {
    Absence away = autotm::absence(ledger, candidate, chosen);
    const auto tier = ledger.tier_for(candidate.gap, away.leave);
    if (!tier || away.gone - away.leave >= ledger.ops()) return;
    away.tier = *tier;
    ledger.leave(candidate.gap, away);
  }
};

}  // namespace

std::unique_ptr<Policy> make_autotm(std::uint64_t) { return std::make_unique<AutoTm>(); }

}  // namespace vedette
