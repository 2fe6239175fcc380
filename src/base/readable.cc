// Integer arithmetic: no locale changes the decimal sign, and every size is exact.
#include "base/readable.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

namespace vedette {

std::string readable(Bytes bytes) {
  constexpr std::array units{" B", " KiB", " MiB", " GiB", " TiB"};
  if (bytes.value < 1024) return std::to_string(bytes.value).append(units[0]);
  std::size_t unit = 1;
  while (unit + 1 < units.size() && (bytes.value >> (10 * (unit + 1))) > 0) ++unit;
  const auto tenths_of = [&](std::size_t u) {
    const std::uint64_t whole = bytes.value >> (10 * u), rest = bytes.value - (whole << (10 * u));
    const std::uint64_t half = std::uint64_t{1} << (10 * u - 1);
    return whole * 10 + ((rest * 10 + half) >> (10 * u));
  };
  std::uint64_t tenths = tenths_of(unit);
  if (tenths == 10240 && unit + 1 < units.size()) tenths = tenths_of(++unit);  // 1023.96 KiB are 1.0 MiB
  return std::to_string(tenths / 10).append(".").append(std::to_string(tenths % 10)).append(units[unit]);
}

std::string readable_exactly(Bytes bytes) {
  const std::string number = std::to_string(bytes.value).append(" bytes");
  return bytes.value < 1024 ? number : readable(bytes).append(" (").append(number).append(")");
}

std::optional<Bytes> read_size(std::string_view text) {
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  const auto unit = text.empty() ? units.begin() : std::find(units.begin(), units.end(), text);
  const auto shift = 10 * (unit - units.begin());
  if (unit == units.end() || number > most >> shift) return std::nullopt;
  return Bytes{number << shift};
}

namespace {

// "0.5" of a unit of `scale`, exactly; nullopt: no number, more than nine digits, or below a million.
std::optional<std::uint64_t> decimal(std::string_view text, std::uint64_t scale) {
  constexpr std::uint64_t least = 1'000'000;
  constexpr std::size_t most_digits = 9;
  std::uint64_t number = 0;
  bool fraction = false;
  if (text.empty() || text.size() > most_digits || text.front() == '.' || text.back() == '.') return std::nullopt;
  for (const char c : text) {
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (c >= '0' && c <= '9' && (!fraction || scale > 1)) {
      number = number * 10 + static_cast<std::uint64_t>(c - '0');
      if (fraction) scale /= 10;
    } else {
      return std::nullopt;
    }
  }
  return number * scale < least ? std::nullopt : std::optional(number * scale);
}

constexpr std::uint64_t mega = 1'000'000, giga = 1'000'000'000, tera = 1'000'000'000'000;

}  // namespace

std::optional<std::uint64_t> read_speed(std::string_view text) {
  if (text.ends_with("MB/s")) return decimal(text.substr(0, text.size() - 4), mega);
  if (text.ends_with("GB/s")) return decimal(text.substr(0, text.size() - 4), giga);
  return std::nullopt;
}

std::optional<std::uint64_t> read_daily(std::string_view text) {
  for (const auto& [unit, scale] :
       {std::pair<std::string_view, std::uint64_t>{"MB/day", mega}, {"GB/day", giga}, {"TB/day", tera}})
    if (text.ends_with(unit)) return decimal(text.substr(0, text.size() - unit.size()), scale);
  return std::nullopt;
}

}  // namespace vedette
