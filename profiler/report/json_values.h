// Single values as JSON. Thread rule: functions of their arguments.
#pragma once
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "vedette/model.h"
#include "vedette/units.h"

namespace vedette::report::json_values {

using Json = nlohmann::ordered_json;

inline Json of(Bytes bytes) { return bytes.value; }
inline Json of(Nanoseconds time) { return time.value; }
inline Json of(double number) { return std::isfinite(number) ? Json(std::round(number * 1e6) / 1e6) : Json(nullptr); }
inline Json of(std::uint64_t number) { return number; }
inline Json of(std::uint32_t number) { return number; }
template <class T>
Json of(const std::optional<T>& value) {
  return value ? of(*value) : Json(nullptr);
}
template <class T>
Json of(Span<T> span) {
  return Json::array({of(span.begin), of(span.end)});
}

}  // namespace vedette::report::json_values
