// A program whose clock moves only when a test says so.
#pragma once
#include <mutex>

#include "os/program.h"

namespace vedette {

class ManualProgram final : public Program {
 public:
  Nanoseconds now() noexcept override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void advance(Nanoseconds by) {
    const std::lock_guard lock(mutex_);
    now_ += by;
  }

 private:
  std::mutex mutex_;
  Nanoseconds now_;
};

}  // namespace vedette
