// Memory of the machine and the limits of its cgroups: see machine_memory.h.
#include "adapter/torch/machine_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

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

std::uint32_t local_ranks() {
  constexpr std::uint32_t most = 4096;
  const char* const said = std::getenv("LOCAL_WORLD_SIZE");
  if (said == nullptr) return 1;
  const std::string_view text(said);
  std::uint32_t ranks = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  return failed == std::errc{} && end == text.data() + text.size() && ranks >= 1 && ranks <= most ? ranks : 1;
}

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
