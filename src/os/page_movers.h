// Features of this kernel that move pages between NUMA nodes without being asked by the program.
#pragma once
#include <cstdint>
#include <string>

namespace vedette {

struct PageMovers {
  // kernel.numa_balancing: 1 moves pages towards the processors that touch them, 2 hot ones to faster nodes. Memory
  // with a policy of its own is left alone.
  int balancing = 0;
  bool demotion = false;      // under pressure pages go to a slower node, whatever they are bound to
  std::uint32_t schemes = 0;  // of DAMON that run and migrate pages
};

PageMovers find_page_movers(const std::string& root = "");  // `root` is before /proc and /sys, for tests

}  // namespace vedette
