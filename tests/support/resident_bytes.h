// The memory of this process that is resident, by the kernel.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>

namespace vedette::testing {

inline std::uint64_t resident_bytes() {  // 0: not told
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) << 10;
  return 0;
}

}  // namespace vedette::testing
