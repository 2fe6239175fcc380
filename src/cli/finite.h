// A check of the command line: a finite number between two others, both included. NaN, which compares as neither less
// nor more, is none. Pure.
#pragma once
#include <fmt/core.h>

#include <CLI/Validators.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

namespace vedette::cli {

inline CLI::Validator finite_between(double least, double most) {
  const auto range = fmt::format("{} to {}", least, most);
  return {[=](const std::string& words) {
            char* end = nullptr;
            const double number = std::strtod(words.c_str(), &end);
            const bool is_one = end != words.c_str() && *end == '\0' && std::isfinite(number);
            return is_one && number >= least && number <= most ? std::string{}
                                                               : "'" + words + "' is no number from " + range;
          },
          "from " + range};
}

}  // namespace vedette::cli
