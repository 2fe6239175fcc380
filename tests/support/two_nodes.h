// For tests on machines with several NUMA nodes: which one is far, and where pages and what is free lie, by the kernel.
#pragma once
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "os/devices.h"
#include "os/node_memory.h"

namespace vedette::testing {

constexpr NodeIndex near_node{0};

// A node without processors, or the last; nullopt: the machine has one.
inline std::optional<NodeIndex> far_node() {
  const std::vector<NumaNode> nodes = find_numa_nodes();
  if (nodes.size() < 2) return std::nullopt;
  for (const NumaNode& node : nodes)
    if (node.processors == 0) return NodeIndex{node.number};
  return NodeIndex{nodes.back().number};
}

inline Bytes free_of(NodeIndex node) { return room_of_node(node).value_or(NodeRoom{}).free; }

// A test may fill a node only where that is soon done and no other program's loss.
inline bool may_be_filled(NodeIndex node) {
  constexpr Bytes small{std::uint64_t{4} << 30};
  const auto room = room_of_node(node);
  return room && room->total <= small;
}

// How many pages lie in each node, page by page; -1: not present, or not told.
inline std::map<int, std::size_t> pages_by_node(const std::byte* begin, Bytes bytes) {
  constexpr std::size_t page = 4096;
  std::map<int, std::size_t> count;
  for (std::size_t i = 0; i < bytes.value; i += page) {
    const void* at = begin + i;
    int node = -1;
    const long rc = ::syscall(SYS_move_pages, 0, 1ul, &at, nullptr, &node, 0);
    ++count[rc == 0 && node >= 0 ? node : -1];
  }
  return count;
}

// Pages of all mappings of this process that have this policy ("bind:1", "prefer:0"), by node.
inline std::map<int, std::size_t> pages_with_policy(const std::string& policy) {
  std::map<int, std::size_t> count;
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string address, of, word;
    words >> address >> of;
    std::size_t kib = 4;
    std::map<int, std::size_t> here;
    while (words >> word) {
      int node = 0;
      std::size_t pages = 0;
      if (std::sscanf(word.c_str(), "N%d=%zu", &node, &pages) == 2) here[node] += pages;
      if (std::sscanf(word.c_str(), "kernelpagesize_kB=%zu", &kib) == 1) continue;
    }
    if (!of.starts_with(policy)) continue;
    for (const auto& [node, pages] : here) count[node] += pages * kib / 4;
  }
  return count;
}

// In a child that the kernel would rather kill than others. True: it ended well, which a killed one does not.
inline bool in_a_child(const std::function<bool()>& run) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream("/proc/self/oom_score_adj") << "1000" << std::flush;
    ::_exit(run() ? 0 : 1);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return false;
  if (WIFSIGNALED(status)) std::printf("the child ended by signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Holds memory of a node for as long as it lives: all that the node has, but for `leaves`.
class Hog {
 public:
  Hog(NodeIndex node, Bytes leaves) {
    const NodeRoom room = room_of_node(node).value_or(NodeRoom{});
    memory_ = Mapping::reserve({(room.total.value / node_piece.value + 1) * node_piece.value}, node_piece).value();
    if (!prefer_node(memory_.data(), memory_.bytes(), node)) return;
    held_ = fill_from_node(memory_.data(), memory_.bytes(), node, Pages::small).bytes;
    const Bytes kept{(held_.value - std::min(held_.value, leaves.value)) / node_piece.value * node_piece.value};
    ::madvise(memory_.data() + kept.value, (held_ - kept).value, MADV_DONTNEED);
    held_ = kept;
  }
  Bytes held() const { return held_; }

 private:
  Mapping memory_;
  Bytes held_;
};

}  // namespace vedette::testing
