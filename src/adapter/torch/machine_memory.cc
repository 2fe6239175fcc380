// Memory of the machine and the limits of its cgroups: see machine_memory.h.
#include "adapter/torch/machine_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "os/probe.h"

namespace vedette::adapter {
namespace {

Bytes meminfo(const std::string& root, const std::string& key) {  // 0 where there is no such line
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    std::istringstream rest(line.substr(key.size() + 1));
    std::uint64_t kilobytes = 0;
    rest >> kilobytes;
    return {kilobytes << 10};
  }
  return {};
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  MachineMemory memory{.total = meminfo(root, "MemTotal"), .available = meminfo(root, "MemAvailable")};
  std::ifstream file(root + "/proc/self/cgroup");
  std::stringstream membership;
  membership << file.rdbuf();
  for (const MemoryCgroup& level : memory_cgroups(membership.str(), root + "/sys/fs/cgroup")) {
    memory.total = std::min(memory.total, level.limit);
    memory.available = std::min(memory.available, level.limit - std::min(level.used, level.limit));
  }
  return memory;
}

}  // namespace vedette::adapter
