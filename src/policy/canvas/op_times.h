// The time of a step's ops, without waits, and how plans name times in their reasons. Pure.
#pragma once
#include <string>

#include "vedette/model.h"

namespace vedette::planning {

inline Nanoseconds time_of_ops(const Trace& trace) noexcept {
  Nanoseconds sum;
  for (const Op& op : trace.ops) sum += op.time;
  return sum;
}

// Milliseconds with one digit after the point, cut off.
inline std::string readable_ms(Nanoseconds time) {
  return std::to_string(time.value / 1'000'000) + "." + std::to_string(time.value / 100'000 % 10) + " ms";
}

}  // namespace vedette::planning
