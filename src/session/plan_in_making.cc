#include "session/plan_in_making.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/given_up.h"
#include "base/quiet_thread.h"

namespace vedette::detail {

PlanInMaking::PlanInMaking(std::uint64_t bucket, std::unique_ptr<StepPlan::Draft> draft, Meanwhile meanwhile)
    : bucket_(bucket), draft_(std::move(draft)), patient_(meanwhile == Meanwhile::steps_without_plan) {
  start();
}

PlanInMaking::PlanInMaking(std::uint64_t bucket, StepPlan replacement, std::unique_ptr<StepPlan::Draft> draft,
                           Meanwhile meanwhile)
    : bucket_(bucket),
      replacement_(std::move(replacement)),
      draft_(std::move(draft)),
      patient_(meanwhile == Meanwhile::steps_without_plan) {
  start();
}

void PlanInMaking::start() {
  try {
    thread_ = start_quiet_thread([this] { make(); });
  } catch (const std::system_error&) {
    make();
  }
}

void PlanInMaking::give_up() noexcept {
  bucket_ = no_bucket;
  patient_ = false;
  given_up_.store(true, std::memory_order_relaxed);
}

PlanInMaking::~PlanInMaking() {
  given_up_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

void PlanInMaking::make() noexcept {
  const MayBeGivenUp here(given_up_);
  draft_->make();
  const std::lock_guard lock(mutex_);
  made_ = true;
  made_changed_.notify_all();
}

bool PlanInMaking::is_made_soon() {
  constexpr std::chrono::milliseconds patience{200};
  return is_made_within(std::exchange(patient_, false) ? patience : std::chrono::milliseconds{0});
}

bool PlanInMaking::is_made_within(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  return made_changed_.wait_for(lock, patience, [&] { return made_; });
}

}  // namespace vedette::detail
