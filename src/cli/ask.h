// Promises of a recorded run, for continuous integration: `vedette check RUN --peak 12GiB --stall 5% --planned`.
//
// Thread rule: one thread at a time.
#pragma once
#include <string>

namespace vedette::cli {

struct RunChecks {  // empty, false: not asked
  std::string peak, stall;
  bool planned = false;
  bool any() const noexcept { return !peak.empty() || !stall.empty() || planned; }
};
// Prints a line, or throws Failure (infeasible) with all that was not kept.
void check_run(const std::string& path, const RunChecks& checks);

}  // namespace vedette::cli
