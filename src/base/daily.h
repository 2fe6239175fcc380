// Bytes a day and the endurance of a drive, for what wears a disk out: one way for messages, reports and the command
// line.
//
// Thread rule: functions of their arguments.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "vedette/units.h"

namespace vedette {

struct Endurance {    // a drive's rating
  double bytes = 0;   // that may be written in all
  std::string words;  // "600 TBW"
};

// "600TBW", "1.2PBW": terabytes or petabytes written. "1DWPD:2TB": one drive write a day of so large a drive, for five
// years; "1DWPD:2TB:3y" for three. nullopt: something else.
std::optional<Endurance> read_endurance(std::string_view text);
inline constexpr std::string_view endurance_usage = "600TBW, or 1DWPD:2TB for one drive write a day of 2 TB";

struct MaxWrites {                     // as SessionOptions::max_writes
  std::optional<std::uint64_t> a_day;  // bytes
  std::optional<Endurance> rated;
};
// "500GB/day", "600TBW", "500GB/day of 600TBW". nullopt: something else.
std::optional<MaxWrites> read_max_writes(std::string_view text);

std::optional<Endurance> rated_endurance(std::string_view max_writes);  // its rating, where it has one

// Bytes a day, of `bytes` in `time`; 0: no time.
double bytes_a_day(Bytes bytes, Nanoseconds time);
// The share of a drive's endurance that a day takes; 0 where none is rated.
double endurance_a_day(Bytes bytes, Nanoseconds time, const std::optional<Endurance>& rated);

// ", 0.058 % of its 600 TBW: 4.7 years", behind what is written in a day. Empty: less than 1 GB a day, or not rated.
std::string readable_wear(Bytes bytes, Nanoseconds time, const std::optional<Endurance>& rated);
// "1.4 TB a day", "350 GB a day", in units of 1000: `bytes` in `time`. With a rating, "350 GB a day, 0.058 % of its 600
// TBW: 4.7 years". Empty: less than 1 GB, or no time.
std::string readable_daily(Bytes bytes, Nanoseconds time, const std::optional<Endurance>& rated = {});

}  // namespace vedette
