// Numbers and units: see sizes.h.
#include "sizes.h"

#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace vedette::examples {
namespace {

double parse_number(const std::string& text, std::string& unit) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  unit = end;
  return end != text.c_str() && std::isfinite(number) && number > 0 ? number : 0;
}

// 0: it is no size.
std::uint64_t bytes_of(const std::string& text) {
  std::string unit;
  const double number = parse_number(text, unit);
  constexpr std::pair<std::string_view, double> units[] = {
      {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (const auto& [name, factor] : units) {
    if (unit == name && number * factor >= 1 && number * factor < 1e18)
      return static_cast<std::uint64_t>(number * factor);
  }
  return 0;
}

}  // namespace

std::uint64_t parse_bytes(const std::string& text) {
  if (const std::uint64_t bytes = bytes_of(text); bytes > 0) return bytes;
  throw std::runtime_error("'" + text + "' is no size: write 500MiB, 2GiB or a number of bytes");
}

FastMemory parse_fast_memory(const std::string& text) {
  if (text.empty() || text.back() != '%') {
    if (const std::uint64_t bytes = bytes_of(text); bytes > 0) return {.bytes = bytes};
    throw std::runtime_error("'" + text + "' is no budget: write 25% of the plain run's peak, 500MiB, or bytes");
  }
  std::string unit;
  const double percent = parse_number(text, unit);
  if (unit != "%" || percent <= 0 || percent > 1e6)
    throw std::runtime_error("'" + text + "' is no share of the peak: write 25%, for instance");
  return {.share = percent / 100};
}

}  // namespace vedette::examples
