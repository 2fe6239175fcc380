// Memory of the machine and its cgroup limits: see machine_memory.h.
#include "adapter/torch/machine_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace vedette::adapter {
namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {  // "max" is no number, and no limit
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::uint64_t meminfo(const std::string& root, const std::string& key) {  // bytes; 0 when there is no such line
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(key + ":", 0) != 0) continue;
    std::istringstream rest(line.substr(key.size() + 1));
    std::uint64_t kilobytes = 0;
    rest >> kilobytes;
    return kilobytes << 10;
  }
  return 0;
}

// The directories of the cgroup we are in, and of those above it, that may hold a memory limit.
struct Cgroup {
  std::string folder, path;  // path below folder, "" or "/a/b"
  const char *limit, *usage;
};
std::optional<Cgroup> memory_cgroup(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "0::/path" (version 2) or "4:memory:/path" (version 1)
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == "memory") {
      return Cgroup{root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"};
    }
    if (controllers.empty()) return Cgroup{root + "/sys/fs/cgroup", path, "memory.max", "memory.current"};
  }
  return std::nullopt;
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  std::uint64_t total = meminfo(root, "MemTotal"), available = meminfo(root, "MemAvailable");
  if (auto cgroup = memory_cgroup(root)) {
    while (true) {
      const std::string here = cgroup->folder + cgroup->path + "/";
      if (const auto limit = number_in(here + cgroup->limit)) {
        total = std::min(total, *limit);
        const std::uint64_t used = number_in(here + cgroup->usage).value_or(0);
        available = std::min(available, *limit - std::min(used, *limit));
      }
      if (cgroup->path.empty()) break;
      cgroup->path.resize(cgroup->path.rfind('/'));
    }
  }
  return {{total}, {available}};
}

}  // namespace vedette::adapter
