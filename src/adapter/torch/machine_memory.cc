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

namespace {

// The value of an environment variable where that is a number from `least` to `most`.
std::optional<std::uint32_t> number_in(const char* variable, std::uint32_t least, std::uint32_t most) {
  const char* const said = ::secure_getenv(variable);
  if (said == nullptr) return std::nullopt;
  const std::string_view text(said);
  std::uint32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size() || number < least || number > most) return std::nullopt;
  return number;
}

constexpr std::uint32_t most_ranks = 1 << 20;

}  // namespace

std::uint32_t local_ranks() {
  constexpr std::uint32_t most = 4096;
  return number_in("LOCAL_WORLD_SIZE", 1, most).value_or(1);
}

std::optional<std::uint32_t> rank_of_a_job() {
  if (number_in("WORLD_SIZE", 1, most_ranks).value_or(1) == 1) return std::nullopt;
  return number_in("RANK", 0, most_ranks);
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
