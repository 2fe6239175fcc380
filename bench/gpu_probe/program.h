// A program that runs groups of measurements: its command line, its JSON, its table.
//
// Each group runs in a process of its own (the program again, with --group), so that a broken context, a crash or a
// hang costs one cell: the process is started anew behind it. The device is never reset.
#pragma once
#include <vector>

#include "gpu_probe/groups.h"

namespace vedette::gpu {

int run_program(const char* title, std::vector<Group> groups, int count, char** words);  // what main() returns

}  // namespace vedette::gpu
