// A time by which the calling thread's work has to come to an end, with the best that it has by then. Work that may end
// sooner asks; other work takes no notice. A limit of processor time makes the work the same on a busy machine.
//
// Thread rule: of the calling thread alone.
#pragma once
#include <time.h>

#include <algorithm>
#include <chrono>

namespace vedette {

// Of the calling thread's work while it lives. Of two that nest the inner one ends first.
class [[nodiscard]] TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TimeLimit(Clock::time_point end) noexcept : end_(end) { limit_here = this; }
  // Whichever comes first: `end`, or so much time of a processor.
  TimeLimit(Clock::time_point end, std::chrono::nanoseconds work) noexcept : end_(end), worked_(worked() + work) {
    limit_here = this;
  }
  ~TimeLimit() { limit_here = around_; }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  static bool exists() noexcept { return limit_here != nullptr; }
  static bool is_over() noexcept {
    if (limit_here == nullptr) return false;
    return Clock::now() >= limit_here->end_ || (limit_here->worked_.count() > 0 && worked() >= limit_here->worked_);
  }
  // So many hundredths of what is left of the one that exists.
  static TimeLimit part_of_rest(int percent) noexcept {
    const auto now = Clock::now();
    const auto part = [percent](auto rest) { return std::max(rest, decltype(rest)::zero()) / 100 * percent; };
    const TimeLimit& all = *limit_here;
    if (all.worked_.count() == 0) return TimeLimit(now + part(all.end_ - now));
    return {now + part(all.end_ - now), part(all.worked_ - worked())};
  }

  // Of a processor, by the calling thread since it began.
  static std::chrono::nanoseconds worked() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

 private:
  static inline thread_local const TimeLimit* limit_here = nullptr;

  Clock::time_point end_;
  std::chrono::nanoseconds worked_{};  // of the thread since it began; 0: no limit
  const TimeLimit* const around_ = limit_here;
};

}  // namespace vedette
