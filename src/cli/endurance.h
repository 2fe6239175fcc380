// --endurance of several verbs. Thread rule: a function of its argument.
#pragma once
#include <optional>
#include <string>

#include "base/daily.h"
#include "vedette/result.h"

namespace vedette::cli {

// nullopt: nothing was given. Throws a Failure of malformed input where it is no rating.
inline std::optional<Endurance> endurance_of(const std::string& words) {
  if (words.empty()) return std::nullopt;
  if (auto rated = read_endurance(words)) return rated;
  throw Failure({Cause::malformed_input,
                 "--endurance " + words + " is no rating of a drive; write " + std::string(endurance_usage)});
}

}  // namespace vedette::cli
