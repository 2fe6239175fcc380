// Memory of one NUMA node, taken in pieces. A node that is full is an answer here. Memory that is bound first and
// touched afterwards ends in the kernel's OOM killer, which may take a bystander on another node (Linux 6.1, 6.12). So
// pages are only preferred to lie in the node, each piece is filled, the kernel is asked where its pages lie, and a
// piece that lies elsewhere is given back.
//
// What always holds: at most one piece at a time lies elsewhere, for as long as asking takes. Memory that was filled is
// of the node. The kernel may move it later: demotion and processes with CAP_SYS_NICE ask no policy.
//
// Thread rule: any thread, for different ranges.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

using NodeIndex = Index<struct NodeTag>;  // of a NUMA node, as the kernel counts

// "WHAT of NUMA node 1", and what to do about an errno of mbind or move_pages: for sentences.
std::string of_node(const std::string& what, NodeIndex node);
const char* remedy_of_node(int error) noexcept;

constexpr Bytes node_piece = {std::uint64_t{2} << 20};

struct NodeRoom {
  Bytes total, free;
  Bytes files;  // the cache of files that lies there, which the kernel takes back for memory that is bound to the node
};
// nullopt: the kernel tells none of this node. `root` is before /sys, for tests.
std::optional<NodeRoom> room_of_node(NodeIndex node, const std::string& root = "");
// So much of the files stays: with none that it can take back, the kernel kills processes for a page of its own.
constexpr Bytes kept_of_files(const NodeRoom& room) noexcept { return std::max(128_MiB, Bytes{room.total.value / 32}); }
// Memory that could be taken there now.
constexpr Bytes available(const NodeRoom& room) noexcept {
  return room.free + (room.files - std::min(room.files, kept_of_files(room)));
}

// Pages that these addresses get from now on are of the node as long as it has some, and NUMA balancing leaves them
// there. For memory of a memfd the policy is the file's. Error: the kernel refuses (seccomp, a cpuset).
Result<void> prefer_node(std::byte* begin, Bytes bytes, NodeIndex node);

// Fills a range that prefers the node and holds nothing. Returns the bytes, from `begin` on, that are filled: less than
// all where the node has no more. The rest holds nothing. `pages`: what the range was advised to have; where the node
// has no huge page free it gets small ones.
struct Filled {
  Bytes bytes;
  int error = 0;  // of the system call that ended it; 0: the node is full, or all is filled
};
enum class Pages : std::uint8_t { small, huge };
Filled fill_from_node(std::byte* begin, Bytes bytes, NodeIndex node, Pages pages) noexcept;

// Whether every page of a range that is present lies in the node; an errno where the kernel does not say.
struct InNode {
  bool all = false;
  int error = 0;
};
InNode placed_in_node(const std::byte* begin, Bytes bytes, NodeIndex node) noexcept;

// Keeps filled memory in its node: what is swapped out comes back there. 0 or an errno.
int bind_to_node(std::byte* begin, Bytes bytes, NodeIndex node) noexcept;

}  // namespace vedette
