// A program in a memory cgroup whose memory the kernel swaps to a file: what the guard is compared with.
//
// Needs root, a memory cgroup (version 1 or 2) and swapon; where one is missing, a vedette::Failure names it. The swap
// file has a name while it is in use; it is switched off and removed at the end, also after a failure or an interrupt.
//
// Thread rule: one swap file at a time, from the main thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "machine.h"
#include "vedette/units.h"

namespace vedette::bench {

class SwapFile {
 public:
  SwapFile(const std::string& directory, Bytes bytes);
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  ~SwapFile();
};

struct LimitedRun {
  ChildRun run;
  std::uint64_t charged = 0;  // bytes, the most at once; 0 where the kernel does not tell
};
// As run_child(), in a group of its own that has at most `limit` of memory, and swap.
LimitedRun run_within(Bytes limit, std::vector<std::string> words, const std::string& log, double limit_s);

}  // namespace vedette::bench
