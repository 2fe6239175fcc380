// Runs groups of measurements as processes and gathers their rows.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "gpu_probe/groups.h"

namespace vedette::gpu {

struct RunOptions {
  std::vector<Group> groups;
  std::string program;             // that knows --group NAME --rows FILE --skip N
  std::vector<std::string> words;  // its other arguments
  std::vector<std::string> only;   // groups; empty: all
  double budget_s = 900;           // for all groups together
  double cell_limit_s = 40;        // that the program keeps itself
  bool quick = false;
  std::function<void()> after_each = [] {};
};

// Adds to document["rows"], and for each group to document["groups"]: name, point, seconds, processes. Throws
// vedette::Failure when no process can be made.
void run_groups(const RunOptions& options, Json& document);

}  // namespace vedette::gpu
