// A time by which the calling thread's work has to come to an end, with the best that it has by then. Work that may end
// sooner asks; other work takes no notice.
//
// Thread rule: of the calling thread alone.
#pragma once
#include <chrono>

namespace vedette {

class [[nodiscard]] TimeLimit {  // of the calling thread's work while it lives; they do not nest
 public:
  using Clock = std::chrono::steady_clock;

  explicit TimeLimit(Clock::time_point end) noexcept : end_(end) { limit_here = &end_; }
  ~TimeLimit() { limit_here = nullptr; }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  static bool is_over() noexcept { return limit_here != nullptr && Clock::now() >= *limit_here; }

 private:
  Clock::time_point end_;
  static inline thread_local const Clock::time_point* limit_here = nullptr;
};

}  // namespace vedette
