// A plan that is made beside the program, by a thread of its own. The draft holds all that the plan is made of, so that
// the step plan that asked for it, and its bucket, may change or go meanwhile. It is the bucket's next plan, or that of
// a step plan which replaces the bucket's: the same step in sections.
//
// Thread rule: one thread; the draft is the maker's until is_made_soon() says yes.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "session/step_plan.h"

namespace vedette::detail {

class PlanInMaking {
 public:
  enum class Meanwhile { steps_without_plan, steps_by_plan_before };
  // `bucket`: the id of the one whose plan it will be. Where no thread can be started, the calling thread makes it.
  PlanInMaking(std::uint64_t bucket, std::unique_ptr<StepPlan::Draft> draft, Meanwhile meanwhile);
  // of a step whose ops are other parts than the bucket's plan has, or for another size of fast memory
  PlanInMaking(std::uint64_t bucket, StepPlan replacement, std::unique_ptr<StepPlan::Draft> draft, Meanwhile meanwhile);
  ~PlanInMaking();  // waits until the plan is made or given up
  PlanInMaking(const PlanInMaking&) = delete;
  PlanInMaking& operator=(const PlanInMaking&) = delete;

  std::uint64_t bucket() const noexcept { return bucket_; }
  // Of fast memory, for which it is made.
  void made_for(std::uint32_t frames) noexcept { frames_ = frames; }
  std::uint32_t frames() const noexcept { return frames_; }
  // Whether it is there. The first time a bucket's first plan is waited for, as long as steps without one would lose,
  // and the plan of a replacement, which comes once.
  bool is_made_soon();
  bool is_made_within(std::chrono::nanoseconds patience);
  std::unique_ptr<StepPlan::Draft> take() noexcept { return std::move(draft_); }
  std::optional<StepPlan>& replacement() noexcept { return replacement_; }
  void give_up() noexcept;  // it is no bucket's any more, and not waited for

 private:
  void start();
  void make() noexcept;

  static constexpr std::uint64_t no_bucket = ~std::uint64_t{0};

  std::uint64_t bucket_;
  std::uint32_t frames_ = 0;
  std::optional<StepPlan> replacement_;  // its policy is the draft's
  std::unique_ptr<StepPlan::Draft> draft_;
  std::atomic<bool> given_up_{false};
  std::mutex mutex_;
  std::condition_variable made_changed_;
  bool made_ = false;  // under mutex_
  bool patient_;
  std::thread thread_;
};

}  // namespace vedette::detail
