// Ticks in a row that change nothing but the place where the next victim is looked for. When the place is one of
// before, all that follows is what followed then, and such ticks are passed over by whole periods. So a replay takes as
// long as blocks move, however long an op or a transfer is. Brent's algorithm finds the period. Pure.
#pragma once
#include <cstdint>

namespace vedette::sim {

class IdleTicks {
 public:
  void begin(std::uint32_t place) {
    place_ = place;
    ticks_ = 0;
    most_ = 1;
  }
  // After another tick that changed nothing else. 0: not known yet.
  std::int64_t period(std::uint32_t place) {
    ++ticks_;
    if (place == place_) return ticks_;
    if (ticks_ < most_) return 0;
    place_ = place;
    ticks_ = 0;
    most_ *= 2;
    return 0;
  }

 private:
  std::uint32_t place_ = 0;
  std::int64_t ticks_ = 0, most_ = 1;
};

}  // namespace vedette::sim
