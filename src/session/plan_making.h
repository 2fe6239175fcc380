// Makes the plans of buckets: at once, in time, or beside the program (plan_in_making.h); for the machine and the size
// of fast memory as they are, and anew where these change.
//
// What always holds: a plan is made for machine() with as many frames as fast memory has, less what is held. At most
// one thread makes the plan of a step of another size.
//
// Lock rule: the session's lock guards it, but for wait_for_made(), which waits, and frames(). Only the op thread calls
// it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "session/buckets.h"
#include "session/common.h"
#include "session/plan_in_making.h"
#include "session/plan_reports.h"

namespace vedette::detail {

// Logging and planning a long step takes tens of megabytes in small pieces for a while, which malloc would keep: 43 MiB
// of a step of 5,600 ops that L-BFGS made. It takes half a millisecond.
void give_back_unused(std::size_t ops);

class PlanMaking : PartOfSession {
 public:
  PlanMaking(const Common& session, BucketStore& buckets, PlanReports& reports)
      : PartOfSession(session), buckets_(buckets), reports_(reports) {}
  void start(Machine machine, std::uint32_t frames) {
    machine_ = std::move(machine);
    frames_ = frames;
  }

  const Machine& machine() const noexcept { return machine_; }  // as the latest plan was made for it
  bool uses_in_place() const noexcept { return machine_.tiers.size() > 1 && machine_.tiers[1].addressable; }

  // After a step by the bucket's plan: what uses in place cost, for plans to come. True: a plan by these is wanted.
  bool price_in_place(Bucket& ran, const StepPlan::Measured& measured) {
    return ran.plan.price_in_place(measured, machine_);
  }

  void make_plan(Bucket& bucket);        // waits for it
  void make_first_plan(Bucket& bucket);  // of all: waits as long as steps without one would lose
  void make_plan_beside(Bucket& bucket);
  void plan_for_turns();
  // Its step in other parts: steps go on by the plan before.
  void replace_by(Bucket& bucket, StepPlan cut);
  // Beside, from plans of other sizes of its step. A replay waits.
  void make_plan_by_likeness(Bucket& bucket, const std::vector<Bucket*>& alike);

  // --- made beside -----------------------------------------------------------------------------------------------
  bool makes_any() const noexcept { return !making_.empty(); }
  bool makes_one_by_likeness() const;
  std::vector<std::unique_ptr<PlanInMaking>> wait_for_made();  // by now, or soon: without the lock, between steps
  void take_plan(PlanInMaking& made);
  bool take_plan_of(const Bucket& bucket);  // where it is made
  void give_up(const Bucket& bucket);       // those that are made for it
  void clear() { making_.clear(); }         // waits

  // --- fast memory of another size -------------------------------------------------------------------------------
  std::uint32_t frames() const noexcept { return frames_.load(std::memory_order_relaxed); }
  const std::atomic<std::uint32_t>& frames_now() const noexcept { return frames_; }
  bool is_another_size(Bytes budget) const noexcept;  // than as the last step began
  void follow_size(Bytes budget);                     // another one: plans of before that suit it are followed again
  void plan_for_size();  // the same one as the step before: it gets its plans, where some were not made for it
  // So many chunks of small tensors, which stayed, may leave: they are no plan's.
  void leave_to_small_tensors(std::uint32_t chunks) noexcept { left_by_slab_ += chunks; }

 private:
  std::uint32_t frames_of(Bytes budget) const noexcept;
  void size_machine_for(Bucket& bucket);
  enum class Search { first, whole };  // in little time, where a whole one would take long; as long as it takes
  std::unique_ptr<StepPlan::Draft> draft_of(StepPlan& plan, Search search);
  void begin_plan(Bucket& bucket, PlanInMaking::Meanwhile meanwhile, Search search);
  void add(std::unique_ptr<PlanInMaking> made);
  void replace_plan(Bucket& bucket, StepPlan replacement);
  void plan_is_made(Bucket& bucket, const Result<void>& made);
  void announce_leaving(const StepPlan& plan);

  BucketStore& buckets_;
  PlanReports& reports_;
  Machine machine_;
  std::atomic<std::uint32_t> frames_ = 0;  // relaxed: for which plans are made; only steps that begin change it
  bool plans_due_ = false;                 // some bucket's plan was made for another size
  std::uint32_t left_by_slab_ = 0;         // since the size changed last
  std::vector<std::unique_ptr<PlanInMaking>> making_;
};

}  // namespace vedette::detail
