// Sequences of ops, and the plan that the running step follows. Each sequence has a bucket with its plan (buckets.h).
// Of a step without one, earlier steps predict the next ops (foresight.h), or it gets a plan made from those of other
// sizes. PlanMaking makes plans, and PlanReports says what becomes of them.
//
// A step begins with the likeliest bucket. Each op says by follow() what it is; the step's end, whether it ran whole,
// and what is learned of it.
//
// What always holds: current() is the bucket whose ops are the running step's so far, or nullptr. The addresses of a
// bucket's zone are given back when the bucket goes.
//
// Lock rule: the session's lock guards it. Only the op thread changes what current() is, so that thread reads it
// without.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/buckets.h"
#include "session/common.h"
#include "session/foresight.h"
#include "session/plan_making.h"
#include "session/recomputer.h"
#include "session/row_log.h"

namespace vedette::detail {

class Plans : PartOfSession {
 public:
  explicit Plans(const Common& session)
      : PartOfSession(session), foresight_(session.arena), reports_(session), making_(session, buckets_, reports_) {}
  void start(Machine machine, std::uint32_t frames);
  bool makes_any() const noexcept { return making_.makes_any(); }  // beside
  void forget_buckets() { buckets_.clear(); }                      // no op runs
  void forget();

  PlanMaking& making() noexcept { return making_; }  // fast memory of another size
  const Machine& machine() const noexcept { return making_.machine(); }
  std::uint32_t frames() const noexcept { return making_.frames(); }  // of fast memory, for which plans are made

  // --- a step ------------------------------------------------------------------------------------------------------
  void begin_step();
  void leave() { buckets_.leave(); }  // the step follows no plan any more
  struct RanStep {                    // as it ended
    StepPlan::Measured measured;
    std::span<const ObservedOp> seen;
    RowLog& rows;
    Recomputer* recomputer;  // nullptr: nothing is dropped
    const Counters& so_far;
  };
  void end_step(const RanStep& ran);

  // --- an op -------------------------------------------------------------------------------------------------------
  void follow(std::uint32_t op);  // of the log, as it begins: another bucket, or none, may be current from now on
  Bucket* current() const noexcept { return buckets_.current(); }
  // A bucket whose policy has no plan tells the step apart and has its addresses; moves are an earlier step's.
  bool follows_plan() const noexcept { return current() != nullptr && !current()->plan.has_failed(); }
  bool runs_whole() const noexcept { return current() != nullptr && current()->ops() == logger_.log().ops.size(); }
  bool takes_over() { return buckets_.takes_over(logger_.step()); }
  const AddressPlan* addresses() const noexcept { return buckets_.addresses(); }
  bool retire_idle_bucket();  // that no step has needed for the longest time: for its addresses. False: there is none
  bool may_be_learned() const { return buckets_.may_be_learned(logger_.hashes()); }
  bool knows_any() const noexcept { return buckets_.latest() != nullptr; }
  // The op that begins, in a step without a plan; nullptr: nothing is predicted, or a plan is there after all.
  const Ahead* predict();
  bool is_foreseen() const noexcept { return foresight_.ops_told() * 2 > logger_.next_op(); }  // most of the step

  const Trace* trace() const noexcept;
  std::vector<PlannedStep> planned_steps() const;

 private:
  bool foresees() const noexcept { return executor_->traits().predicts && options_.policy != "on-demand"; }
  StepPlan::Options plan_options(std::optional<Bytes> range) const;
  void learn(const RanStep& ran);
  bool replace_times(StepLog& log);
  std::optional<Executor::StepTimes> take_times(bool wait);
  void finish_planned_step(Bucket& of, const RanStep& ran);
  void measure_later(Bucket& ran);
  void cut_into_sections_of(Bucket& ran, std::span<const ObservedOp> seen);
  void retire_buckets();

  // --- other sizes of planned steps (plans_likeness.cc)
  bool may_plan_by_likeness() const noexcept;
  std::optional<StepLog> rest_of_step(const std::vector<Bucket*>& alike);
  bool find_addresses(StepLog& foretold) const;
  bool plan_by_likeness();  // true: the running op is the first that follows its plan
  bool begin_by_likeness(StepLog foretold, const std::vector<Bucket*>& alike);
  void take_plan_in_step();
  void end_foretold_step();

  bool recomputes_ = false;
  BucketStore buckets_;
  Foresight foresight_;  // of steps without a plan
  PlanReports reports_;
  PlanMaking making_;
};

}  // namespace vedette::detail
