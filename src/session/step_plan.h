// The plan of one sequence of ops, as it runs: the step in units, the policy that planned it, and its moves by op. Ops
// that are planned in sections count as several; parts are ops or sections.
//
// What always holds: moves_at() has an entry for each part of units().trace. least_times() has, for each part, the
// smallest time over the steps so far, or a guess until its sections have run as such once.
//
// Lock rule: not thread safe; the session's lock guards it. Only the op thread changes it, so that thread reads
// without.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/grouped.h"
#include "moves/executor.h"
#include "moves/move_table.h"
#include "pack/op_sections.h"
#include "pack/packed_trace.h"
#include "pack/tensor_units.h"
#include "pack/units.h"
#include "session/in_place_trials.h"
#include "vedette/policy.h"

namespace vedette::detail {

// Sets Op::runs_again of units; `ops`: of the log. A birth in a chunk in which another tensor lives is to policies a
// change in place, since both are recomputed or none.
void tell_what_runs_again(Units& units, const StepLog& log, const std::vector<char>& ops, Bytes chunk);

// Of one that persists, as the policy (nullptr: none) wants it. At least 1, ~0u where tensors stay whole.
std::uint32_t most_chunks_of_a_unit(const Policy* policy, Bytes fast_memory, Bytes chunk) noexcept;

class StepPlan {
 public:
  struct Options {
    Bytes chunk;
    std::string_view policy;  // outlives the plan
    std::uint64_t seed = 1;
    std::optional<Bytes> range = {};  // as Executor::range(): tensors move whole, and get places
    Bytes fast_memory = {};           // that a policy cuts large weights for; without a range
  };
  StepPlan(const StepLog& log, Options options);
  // The same step with other large ops in sections; it has no plan yet.
  StepPlan in_sections(SectionedLog log) const;

  // The same step in fast memory of another size; it has no plan yet. `range`: as Options has it.
  StepPlan in_memory(Bytes fast_memory, std::optional<Bytes> range) const;

  // Of each op, whether it can run again: policies may plan that from now on.
  void can_recompute(const StepLog& log, std::vector<char> ops);

  // Asks the policy for a plan; `machine` says how much room there is. Error: the policy has none, or the executor
  // cannot follow it; then the step runs as one without a plan does.
  Result<void> prepare(const Machine& machine, const Executor& executor);

  // The same in three parts: the plan before runs on while any thread makes the next. Until finish() the policy is the
  // draft's, and asks for no other plan.
  struct Draft {
    const Options options;
    const Executor* executor;  // outlives the draft
    Units units;
    Machine machine;
    std::unique_ptr<Policy> policy;
    struct Places {  // with a range
      Moments moments;
      Executor::Stretch range;
      std::uint32_t room_percent = 100;
      bool choose_room = false;                 // of a step's first plan: rooms that are a little smaller are tried
      std::optional<PlannedPlaces> found = {};  // those of the plan, and its moves to them
      MoveTable moves{};
    };
    std::optional<Places> places = {};
    std::optional<Trace> fitting = {};
    struct OfOtherSize {
      Trace trace;
      Plan plan;
    };
    std::vector<OfOtherSize> alike = {};  // the plan is made from these; without a range only
    Result<Plan> plan = Plan{};
    // Of the units' wishes. Where it is not chosen yet: hints, if the step takes no longer so, and rules, if there is a
    // plan that keeps them.
    std::optional<Heeded> heeded = {};
    std::chrono::nanoseconds search_time{};  // of a processor, for each question to the policy; 0: as it likes
    bool cut_short = false;                  // it might have found a better plan in more time

    void make() noexcept;  // takes long
    const Trace& planned_trace() const noexcept { return fitting ? *fitting : units.trace; }
    bool suits_memory() const noexcept;  // the stretch for places is what it was when the draft began

   private:
    void make_heeding();
    Nanoseconds step_time() const;       // of its plan, replayed; there is one
    Draft another() const;               // of the same step, by a policy of its own
    void take(Draft&& better) noexcept;  // its plan
    Result<Plan> ask_policy(const Trace& trace, const Machine& assumed);
    Result<Plan> ask_in_time(const Trace& trace, const Machine& assumed);
    Result<Plan> plan_like_others() const;
    void make_in_places();
    bool make_in_room(std::uint32_t percent);  // false: its plan has no places
    void look_at_places();                     // of the plan: its step's waits, and what its copies wait for
  };
  std::unique_ptr<Draft> begin(const Machine& machine, const Executor& executor);
  Draft::OfOtherSize for_other_sizes() const { return {planned_trace(), plan_}; }
  Result<void> finish(std::unique_ptr<Draft> draft);
  void take_back_policy(Draft& draft) noexcept;  // of a draft that is to be forgotten: the plan before stays
  void forget_draft();  // of a policy that is the draft's: a new one takes its place, and the plan stays
  // prepare() will make no plan: it takes one from before, whose steps took less time.
  bool goes_back() const noexcept { return back_to_best_; }

  // After a whole step by the plan: times and stalls of all parts. True: the policy wants to plan anew.
  struct Measured {
    Nanoseconds time, stall, recomputing;  // of the step
    std::span<const Nanoseconds> times, stalls;
    std::span<const Nanoseconds> for_room = {};  // of the stalls; empty: it is not known
    std::span<const InPlaceUse> in_place = {};   // by ops of the program
  };
  bool measure(const Measured& measured, const Machine& machine);
  // After measure(): the machine gets the prices that steps by this plan have shown, once. True: they are others than
  // before, so that the plan is to be made anew.
  bool price_in_place(const Measured& measured, Machine& machine);

  const Units& units() const noexcept { return units_; }
  // As it was planned: units().trace, but for operands of ops that need more than fast memory has.
  const Trace& planned_trace() const noexcept { return fitting_ ? *fitting_ : units_.trace; }
  const Plan& plan() const noexcept { return plan_; }
  bool has_failed() const noexcept { return latest_.failed; }  // the policy was asked, and there is no plan
  // The program has rules for which there is no plan. True once.
  bool breaks_rules() noexcept { return std::exchange(latest_.breaks_rules, false); }
  // The times of the log are none: the first measured ones have another plan made.
  void was_not_measured() noexcept { times_are_guesses_ = not_measured_ = true; }
  bool has_policy() const noexcept { return policy_ != nullptr || in_draft_; }
  bool is_in_draft() const noexcept { return in_draft_; }
  std::uint32_t first_part(std::uint32_t op) const { return first_[op]; }
  std::span<const std::uint32_t> first_parts() const noexcept { return first_; }  // one more at the end: all parts
  // The plan recomputes a tensor that the op writes.
  bool recomputes_of(std::uint32_t op) const {
    return first_[op] < makes_recomputed_.size() && makes_recomputed_[first_[op]];
  }
  OpMoves moves_at(std::uint32_t part) const { return moves_[part]; }
  const StepStart& start() const noexcept { return start_; }                              // without a range
  const PlannedPlaces* places() const noexcept { return places_ ? &*places_ : nullptr; }  // with a range, and a plan
  std::span<const std::uint32_t> frames_to_come(std::uint32_t part) const { return frames_to_come_[part]; }
  std::span<const Nanoseconds> least_times() const noexcept { return least_times_; }
  Nanoseconds least_time_of(std::uint32_t op) const;
  // in the program's tensors; nullopt: no op has sections
  const std::optional<PackedTrace>& program_in_sections() const noexcept { return program_in_sections_; }

 private:
  explicit StepPlan(Options options) : options_(options) {}
  void form(const StepLog& log, const std::vector<char>& runs_again);  // [part]; empty: none does
  std::unique_ptr<Draft> drafted(Units units, Moments moments, const Machine& machine, const Executor& executor);
  Error without_plan(const Error& cause, const Draft& draft) const;
  void forget_plan();
  void tabulate_plan();
  void keep_if_best();
  bool was_better_before() const;
  bool take_best();  // false: there is none, or it was made for other memory

  // Fast memory, and the stretch of it in which places are: a plan for another room is none. One for steps that follow
  // each other was measured without those that come between now.
  struct Room {
    Bytes capacity;
    Executor::Stretch places;
    bool in_turns = false;
    bool operator==(const Room&) const = default;
  };
  // A plan with places, and how it went. Policies estimate waits for room, and how places cut it, only roughly, so that
  // a later plan may take longer: the one whose steps took the least time stays.
  struct Placed {
    Plan plan;
    PlannedPlaces places;
    MoveTable moves;
    Nanoseconds least;  // of its whole steps
    Room room;
  };

  Options options_;
  Units units_;  // without frames_to_come
  std::optional<Trace> fitting_;
  Grouped<std::uint32_t> frames_to_come_;
  std::vector<std::uint32_t> first_;
  Moments moments_;  // with a range
  Plan plan_;
  std::optional<PlannedPlaces> places_;
  std::uint32_t room_percent_ = 100;  // with a range: the part of it for which the policy plans
  Room room_;                         // when plan_ was made
  Nanoseconds least_;                 // of whole steps by plan_; 0: none yet
  std::uint32_t steps_ = 0;           // that were measured by plan_
  std::optional<Placed> best_;        // of the plans before plan_
  bool back_to_best_ = false;
  struct {  // the plan that the policy was asked for last
    bool failed = false, breaks_rules = false;
    std::optional<Heeded> heeded;  // of the wishes, since the first plan
  } latest_;
  std::unique_ptr<Policy> policy_;
  bool in_draft_ = false;  // the policy is
  MoveTable moves_;
  StepStart start_;
  std::vector<bool> makes_recomputed_;  // [part]
  std::vector<Nanoseconds> least_times_;
  InPlaceTrials in_place_;
  bool times_are_guesses_ = false, not_measured_ = false;
  std::vector<char> runs_again_;  // [op], whatever its sections are; empty: none does
  std::optional<PackedTrace> program_in_sections_;
};

}  // namespace vedette::detail
