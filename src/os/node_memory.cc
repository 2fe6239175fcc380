#include "os/node_memory.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "os/parking.h"
#include "os/uffd.h"

namespace vedette {
namespace {

constexpr std::size_t pages_of_query = 512;

// 0 or an errno.
int set_policy(std::byte* begin, Bytes bytes, int mode, NodeIndex node, unsigned flags) noexcept {
  constexpr std::uint32_t bits = 64, most_nodes = 1024;
  if (node.value >= most_nodes) return EINVAL;
  std::array<unsigned long, most_nodes / bits> mask{};
  mask[node.value / bits] = 1ul << node.value % bits;
  const std::uint64_t length = most_nodes + 1;  // the kernel takes one bit less; an empty mask would mean any node
  return ::syscall(SYS_mbind, begin, bytes.value, mode, mask.data(), length, flags) == 0 ? 0 : errno;
}

enum class Piece { filled, elsewhere, failed };

Piece fill_piece(std::byte* begin, std::size_t bytes, NodeIndex node, int& error) noexcept {
  error = populate(begin, bytes);
  const InNode placed = error == 0 ? placed_in_node(begin, {bytes}, node) : InNode{};
  if (error == 0) error = placed.error;
  if (error == 0 && placed.all) return Piece::filled;
  clear_entries(begin, bytes);
  return error == 0 ? Piece::elsewhere : Piece::failed;
}

// Small pages where no huge one is free there. Then the kernel has to be made to take the cache of files back, which it
// does only for memory that can lie nowhere else. It ends in the OOM killer only where reclaim found nothing,
// many times in a row.
Piece fill_patiently(std::byte* begin, std::size_t bytes, NodeIndex node, Pages pages, int& error) noexcept {
  Piece piece = fill_piece(begin, bytes, node, error);
  if (piece == Piece::elsewhere && pages == Pages::huge) {
    ::madvise(begin, bytes, MADV_NOHUGEPAGE);
    piece = fill_piece(begin, bytes, node, error);
    ::madvise(begin, bytes, MADV_HUGEPAGE);  // the mapping stays one; these pages stay small
  }
  const auto room = piece == Piece::elsewhere ? room_of_node(node) : std::nullopt;
  if (room && room->files > kept_of_files(*room) && set_policy(begin, {bytes}, MPOL_BIND, node, 0) == 0) {
    piece = fill_piece(begin, bytes, node, error);
    set_policy(begin, {bytes}, MPOL_PREFERRED, node, 0);  // as the rest of the range
  }
  return piece;
}

}  // namespace

std::string of_node(const std::string& what, NodeIndex node) {
  return std::string(what).append(" of NUMA node ").append(std::to_string(node.value));
}

const char* remedy_of_node(int error) noexcept {
  if (error == EINVAL) return "this process may use no such node (its cpuset names those it may); use another one";
  if (error == ENOMEM) return "free memory, or raise the limit of the memory cgroup";
  return "allow mbind and move_pages (containers: CAP_SYS_NICE), or use other memory";
}

std::optional<NodeRoom> room_of_node(NodeIndex node, const std::string& root) {
  std::ifstream file(root + "/sys/devices/system/node/node" + std::to_string(node.value) + "/meminfo");
  NodeRoom room;
  bool known = false;
  for (std::string line; std::getline(file, line);) {  // "Node 1 MemFree:   912 kB"
    std::istringstream words(line);
    std::string word, number, name;
    std::uint64_t kib = 0;
    if (!(words >> word >> number >> name >> kib)) continue;
    const Bytes bytes{kib * 1024};
    if (name == "MemTotal:") room.total = bytes, known = true;
    if (name == "MemFree:") room.free = bytes;
    if (name == "Active(file):" || name == "Inactive(file):") room.files += bytes;
    if (name == "Dirty:" || name == "Writeback:") room.files -= std::min(room.files, bytes);
  }
  return known ? std::optional(room) : std::nullopt;
}

Result<void> prefer_node(std::byte* begin, Bytes bytes, NodeIndex node) {
  const int error = set_policy(begin, bytes, MPOL_PREFERRED, node, 0);
  if (error != 0) return system_error(of_node("asking for memory", node), error, remedy_of_node(error));
  return {};
}

InNode placed_in_node(const std::byte* begin, Bytes bytes, NodeIndex node) noexcept {
  constexpr int tries = 20;  // a page that NUMA balancing looks at is said to be none (EFAULT), for a moment
  std::array<const void*, pages_of_query> pages;
  std::array<int, pages_of_query> nodes;
  for (std::size_t done = 0; done < bytes.value;) {
    const std::size_t count = std::min(pages_of_query, (bytes.value - done) / page_size);
    for (std::size_t i = 0; i < count; ++i) pages[i] = begin + done + i * page_size;
    int unknown = 0;
    for (int left = tries; left > 0; --left) {
      if (::syscall(SYS_move_pages, 0, count, pages.data(), nullptr, nodes.data(), 0) != 0)
        return {.all = false, .error = errno};
      unknown = static_cast<int>(std::count_if(nodes.begin(), nodes.begin() + count, [](int at) { return at < 0; }));
      if (unknown == 0) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const auto here = [&](int at) { return at == static_cast<int>(node.value); };
    if (unknown > 0 || !std::all_of(nodes.begin(), nodes.begin() + count, here)) return {};
    done += count * page_size;
  }
  return {.all = true, .error = 0};
}

Filled fill_from_node(std::byte* begin, Bytes bytes, NodeIndex node, Pages pages) noexcept {
  Filled filled;
  while (filled.bytes < bytes) {
    const std::size_t some = std::min(node_piece, bytes - filled.bytes).value;
    const Piece piece = fill_patiently(begin + filled.bytes.value, some, node, pages, filled.error);
    if (piece != Piece::filled) return filled;
    filled.bytes.value += some;
  }
  return filled;
}

int bind_to_node(std::byte* begin, Bytes bytes, NodeIndex node) noexcept {
  return set_policy(begin, bytes, MPOL_BIND, node, MPOL_MF_STRICT | MPOL_MF_MOVE);
}

}  // namespace vedette
