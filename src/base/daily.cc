// Ratings read, and days in words.
#include "base/daily.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/readable.h"

namespace vedette {

namespace {

constexpr double gigabyte = 1e9, terabyte = 1e12, petabyte = 1e15, days_a_year = 365;

// The number that `text` begins with, which is taken off; nullopt: none, or none above 0.
std::optional<double> take_number(std::string_view& text) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  const std::string digits(text.substr(0, end));
  char* rest = nullptr;
  const double value = std::strtod(digits.c_str(), &rest);
  if (digits.empty() || *rest != '\0' || !(value > 0) || value > 1e9) return std::nullopt;
  text.remove_prefix(digits.size());
  return value;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string words_of(double bytes) {
  std::array<char, 48> text{};
  const bool large = bytes >= petabyte;
  std::snprintf(text.data(), text.size(), "%.4g %s", bytes / (large ? petabyte : terabyte), large ? "PBW" : "TBW");
  return text.data();
}

}  // namespace

std::optional<Endurance> read_endurance(std::string_view text) {
  const auto first = take_number(text);
  if (!first) return std::nullopt;
  double bytes = 0;
  if (take(text, "TBW")) {
    bytes = *first * terabyte;
  } else if (take(text, "PBW")) {
    bytes = *first * petabyte;
  } else if (take(text, "DWPD:")) {
    constexpr double usual_years = 5;
    const auto size = take_number(text);
    const double unit = take(text, "GB") ? gigabyte : take(text, "TB") ? terabyte : 0;
    if (!size || unit == 0) return std::nullopt;
    std::optional<double> years = usual_years;
    if (take(text, ":")) {
      years = take_number(text);
      if (!years || !take(text, "y")) return std::nullopt;
    }
    bytes = *first * *size * unit * days_a_year * *years;
  }
  if (bytes < gigabyte || !text.empty()) return std::nullopt;
  return Endurance{.bytes = bytes, .words = words_of(bytes)};
}

std::optional<MaxWrites> read_max_writes(std::string_view text) {
  constexpr std::string_view of = " of ";
  MaxWrites writes;
  const std::size_t at = text.find(of);
  if (at != text.npos) {
    writes = {.a_day = read_daily(text.substr(0, at)), .rated = read_endurance(text.substr(at + of.size()))};
    return writes.a_day && writes.rated ? std::optional(writes) : std::nullopt;
  }
  writes = {.a_day = read_daily(text), .rated = read_endurance(text)};
  return writes.a_day || writes.rated ? std::optional(writes) : std::nullopt;
}

std::optional<Endurance> rated_endurance(std::string_view max_writes) {
  const auto writes = read_max_writes(max_writes);
  return writes ? writes->rated : std::nullopt;
}

double bytes_a_day(Bytes bytes, Nanoseconds time) {
  constexpr double nanoseconds_a_day = 86'400e9;
  if (time.value <= 0) return 0;
  return static_cast<double>(bytes.value) / static_cast<double>(time.value) * nanoseconds_a_day;
}

double endurance_a_day(Bytes bytes, Nanoseconds time, const std::optional<Endurance>& rated) {
  return rated ? bytes_a_day(bytes, time) / rated->bytes : 0;
}

std::string readable_wear(Bytes bytes, Nanoseconds time, const std::optional<Endurance>& rated) {
  const double a_day = bytes_a_day(bytes, time);
  if (!rated || a_day < gigabyte) return {};
  std::array<char, 160> text{};
  const double days = rated->bytes / a_day;
  const bool years = days >= 2 * days_a_year;
  std::snprintf(text.data(), text.size(), ", %.2g %% of its %s: %.*f %s", 100 / days, rated->words.c_str(),
                years && days < 10 * days_a_year ? 1 : 0, years ? days / days_a_year : std::floor(days),
                years ? "years" : "days");
  return text.data();
}

std::string readable_daily(Bytes bytes, Nanoseconds time, const std::optional<Endurance>& rated) {
  const double a_day = bytes_a_day(bytes, time);
  if (a_day < gigabyte) return {};
  std::array<char, 48> text{};
  const bool large = a_day >= terabyte;
  std::snprintf(text.data(), text.size(), large ? "%.1f TB a day" : "%.0f GB a day",
                a_day / (large ? terabyte : gigabyte));
  return text.data() + readable_wear(bytes, time, rated);
}

}  // namespace vedette
