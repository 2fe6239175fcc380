// The error of a text that should be JSON, in our words instead of the parser's. Thread rule: functions of their
// arguments.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace vedette {

// "is not JSON: line 3, column 14 cannot be read"; it follows the name of the text.
inline std::string why_not_json(std::string_view json, const nlohmann::json::exception& broken) {
  const auto* const at = dynamic_cast<const nlohmann::json::parse_error*>(&broken);
  if (at == nullptr) {
    const bool large = dynamic_cast<const nlohmann::json::out_of_range*>(&broken) != nullptr;
    return large ? "is not JSON that can be read: a number in it is too large"
                 : "is not as its format wants it: a value is of another type than its key says";
  }
  const std::string_view read = json.substr(0, at->byte > 0 ? at->byte - 1 : 0);
  if (at->byte == 0 || read.size() == json.size())
    return "is not JSON: it ends too soon, after " + std::to_string(json.size()) + " bytes; write or copy it anew";
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const std::size_t last = read.rfind('\n'), column = read.size() - (last == read.npos ? 0 : last + 1) + 1;
  return "is not JSON: line " + std::to_string(line) + ", column " + std::to_string(column) + " cannot be read";
}

}  // namespace vedette
