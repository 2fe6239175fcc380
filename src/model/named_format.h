// The format that a JSON text names, judged before its keys: a file of another kind is called what it is. Thread rule:
// functions of their arguments.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace vedette {

// "is a vedette-plan-1; a vedette-trace-1 is wanted here"; none where `top` is of that format, or names no format that
// is a word: its reader says more.
template <class Json>
std::optional<std::string> another_format(const Json& top, std::string_view wanted) {
  if (!top.is_object()) return std::nullopt;
  const auto format = top.find("format");
  if (format == top.end() || !format->is_string() || *format == wanted) return std::nullopt;
  constexpr std::size_t longest_word = 40;
  const auto name = format->template get<std::string>();
  const bool is_word = !name.empty() && name.size() <= longest_word &&
                       std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
  return (is_word ? "is a " + name : "names an unknown format") + "; a " + std::string(wanted) + " is wanted here";
}

}  // namespace vedette
