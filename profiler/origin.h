// The provenance of a run, for a reader on another machine or a year later: keys and values of `meta`
// (profiler/FORMAT.md). Thread rule: any thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace vedette {

std::vector<std::pair<std::string, std::string>> facts_of_this_run();

// With its arguments, quoted for a shell; empty where /proc does not say.
std::string command_of_this_process();

}  // namespace vedette
