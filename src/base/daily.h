// Bytes a day, for what wears a disk out: one way for messages, reports and the command line.
//
// Thread rule: functions of their arguments.
#pragma once
#include <array>
#include <cstdio>
#include <string>

#include "vedette/units.h"

namespace vedette {

// "1.4 TB a day", "350 GB a day", in units of 1000: `bytes` in `time`. Empty: less than 1 GB, or no time.
inline std::string readable_daily(Bytes bytes, Nanoseconds time) {
  if (time.value <= 0) return {};
  constexpr double nanoseconds_a_day = 86'400e9, giga = 1e9, tera = 1e12;
  const double a_day = static_cast<double>(bytes.value) / static_cast<double>(time.value) * nanoseconds_a_day;
  if (a_day < giga) return {};
  std::array<char, 48> text{};
  const bool large = a_day >= tera;
  std::snprintf(text.data(), text.size(), large ? "%.1f TB a day" : "%.0f GB a day", a_day / (large ? tera : giga));
  return text.data();
}

}  // namespace vedette
