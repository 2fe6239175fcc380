// A program whose clock and whose points move only when a test says so.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/assert.h"
#include "os/program.h"

namespace vedette {

class ManualProgram final : public Program {
 public:
  Point here() noexcept override {
    const std::lock_guard lock(mutex_);
    times_[++issued_] = now_;
    return {issued_};
  }
  bool passed(Point point) noexcept override {
    const std::lock_guard lock(mutex_);
    return point.number <= passed_;
  }
  // Nothing else runs in a deterministic test: waiting is what lets the point pass.
  void wait_for(Point point) noexcept override {
    const std::lock_guard lock(mutex_);
    passed_ = std::max(passed_, point.number);
  }
  Nanoseconds between(Point from, Point to) noexcept override {
    const std::lock_guard lock(mutex_);
    VEDETTE_ASSERT(from <= to && to.number <= passed_);
    return times_[to.number] - times_[from.number];
  }
  Nanoseconds now() noexcept override {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  void advance(Nanoseconds by) {
    const std::lock_guard lock(mutex_);
    now_ += by;
  }
  void pass_all() {
    const std::lock_guard lock(mutex_);
    passed_ = issued_;
  }

 private:
  std::mutex mutex_;
  Nanoseconds now_;
  std::uint64_t issued_ = 0, passed_ = 0;
  std::map<std::uint64_t, Nanoseconds> times_;  // by point
};

}  // namespace vedette
