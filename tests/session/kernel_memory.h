// A process's resident memory as the kernel counts it.
#pragma once
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace vedette::testing {

// A line of a file in /proc, in bytes; 0 where there is none.
inline std::uint64_t kernel_figure(pid_t process, const char* file_name, const char* line_format) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/%s", process, file_name);
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  std::uint64_t kib = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, line_format, &kib) != 1) kib = 0;
  std::fclose(file);
  return kib << 10;
}

// Anonymous memory by the kernel's counter: a walk over the mappings would meet a chunk twice that moves meanwhile.
// Shared memory by its proportional share, which counts a page once however often the process maps it (no child shares
// it). The two are read one after the other, and while a step begins to be profiled frames become of the other kind:
// the lesser figure of anonymous memory before and after counts no frame twice.
inline std::uint64_t resident_bytes(pid_t process) {
  const std::uint64_t before = kernel_figure(process, "status", "RssAnon: %lu");
  const std::uint64_t shared = kernel_figure(process, "smaps_rollup", "Pss_Shmem: %lu");
  return std::min(before, kernel_figure(process, "status", "RssAnon: %lu")) + shared;
}

}  // namespace vedette::testing
