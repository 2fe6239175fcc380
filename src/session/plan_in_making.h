// A plan that is made beside the program, by a thread of its own. The draft holds all that the plan is made of, so that
// the step plan that asked for it, and its bucket, may change or go meanwhile.
//
// Thread rule: one thread; the draft is the maker's until is_made_soon() says yes.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "session/step_plan.h"

namespace vedette::detail {

class PlanInMaking {
 public:
  enum class Meanwhile { steps_without_plan, steps_by_plan_before };
  // `bucket`: the id of the one whose plan it will be. Where no thread can be started, the calling thread makes it.
  PlanInMaking(std::uint64_t bucket, std::unique_ptr<StepPlan::Draft> draft, Meanwhile meanwhile);
  ~PlanInMaking();  // waits for the plan
  PlanInMaking(const PlanInMaking&) = delete;
  PlanInMaking& operator=(const PlanInMaking&) = delete;

  std::uint64_t bucket() const noexcept { return bucket_; }
  // Whether it is there. The first time a bucket's first plan is waited for, as long as steps without one would lose.
  bool is_made_soon();
  std::unique_ptr<StepPlan::Draft> take() noexcept { return std::move(draft_); }

 private:
  void make() noexcept;

  const std::uint64_t bucket_;
  std::unique_ptr<StepPlan::Draft> draft_;
  std::mutex mutex_;
  std::condition_variable made_changed_;
  bool made_ = false;  // under mutex_
  bool patient_;
  std::thread thread_;
};

}  // namespace vedette::detail
