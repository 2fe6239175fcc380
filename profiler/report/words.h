// Times as people read them. Thread rule: functions of their arguments.
#pragma once
#include <fmt/core.h>

#include <cmath>
#include <optional>
#include <string>

#include "base/readable.h"
#include "vedette/units.h"

namespace vedette::report {

using vedette::readable;

inline std::string readable(Nanoseconds time) {
  if (std::abs(time.value) >= 10'000'000'000) return fmt::format("{:.2f} s", static_cast<double>(time.value) / 1e9);
  if (time.value != 0 && std::abs(time.value) < 50'000)
    return fmt::format("{:.1f} us", static_cast<double>(time.value) / 1e3);
  return fmt::format("{:.1f} ms", static_cast<double>(time.value) / 1e6);
}

template <class T>
std::string readable(const std::optional<T>& value) {
  return value ? readable(*value) : "-";
}

}  // namespace vedette::report
