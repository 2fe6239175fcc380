// This program again, in processes of their own: one, or the ranks of a job on this machine, as torchrun would start
// them.
#pragma once
#include <string>
#include <vector>

namespace vedette::examples {

// Runs this program with `words` and "--result PATH" in `ranks` processes, and returns what each wrote to its PATH.
// From 2 ranks on they find each other by the environment (RANK, WORLD_SIZE, ...). When one fails the others are ended.
// Throws std::runtime_error, in whose sentence the runs are called `what`.
std::vector<std::string> run_children(const std::vector<std::string>& words, int ranks, const std::string& what);

}  // namespace vedette::examples
