// Differences of a counter: see energy.h.
#include "profiler/energy.h"

#include <chrono>
#include <utility>

namespace vedette {

void EnergyWatch::watch(EnergyCounter counter) {
  counter_ = std::move(counter);
  last_ = read();
}

std::optional<EnergyWatch::Reading> EnergyWatch::read() const {
  if (!counter_) return std::nullopt;
  const std::optional<std::uint64_t> millijoules = counter_();
  if (!millijoules) return std::nullopt;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return Reading{.at = {std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()},
                 .millijoules = *millijoules};
}

std::optional<StepEnergy> EnergyWatch::since_last() {
  const std::optional<Reading> now = read(), before = std::exchange(last_, now);
  if (!now || !before || now->millijoules < before->millijoules) return std::nullopt;
  return StepEnergy{.millijoules = now->millijoules - before->millijoules, .watched = now->at - before->at};
}

}  // namespace vedette
