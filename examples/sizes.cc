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

}  // namespace

std::uint64_t parse_bytes(const std::string& text) {
  std::string unit;
  const double number = parse_number(text, unit);
  constexpr std::pair<std::string_view, double> units[] = {
      {"", 1},     {"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
      {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
  for (const auto& [name, factor] : units) {
    if (unit == name && number * factor >= 1 && number * factor < 1e18)
      return static_cast<std::uint64_t>(number * factor);
  }
  throw std::runtime_error("'" + text + "' is no size: write 500MiB, 2GiB or a number of bytes");
}

FastMemory parse_fast_memory(const std::string& text) {
  if (text.empty() || text.back() != '%') return {.bytes = parse_bytes(text)};
  std::string unit;
  const double percent = parse_number(text, unit);
  if (unit != "%" || percent <= 0 || percent > 1e6)
    throw std::runtime_error("'" + text + "' is no share of the peak: write 25%, for instance");
  return {.share = percent / 100};
}

}  // namespace vedette::examples
