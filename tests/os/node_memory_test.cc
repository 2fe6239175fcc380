// Memory of a NUMA node in pieces: it lies where it should, and a node that is full is an answer. What needs two nodes
// runs in an emulated machine (tests/guest) and on machines that have them; what fills a node, on small ones alone.
#include "os/node_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "os/chunk_memory.h"
#include "os/devices.h"
#include "support/two_nodes.h"

namespace vedette {
namespace {

using namespace testing;

constexpr NodeIndex near = near_node;

Mapping reserved(Bytes bytes) { return Mapping::reserve(bytes, node_piece).value(); }

// Page cache follows the policy of the thread that reads or writes.
bool prefer_all_of_this_thread(NodeIndex node) {
  const unsigned long mask = 1ul << node.value;
  return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 64ul) == 0;
}

TEST(NodeMemory, KnowsWhatANodeHasFreeAndWhatIsFiles) {
  const std::string root = ::testing::TempDir() + "vedette_node_room";
  const std::string folder = root + "/sys/devices/system/node/node3";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/meminfo") << "Node 3 MemTotal:       2048 kB\nNode 3 MemFree:        512 kB\n"
                                        "Node 3 Active(file):    100 kB\nNode 3 Inactive(file):  200 kB\n"
                                        "Node 3 Active(anon):    700 kB\nNode 3 Dirty:           40 kB\n"
                                        "Node 3 Writeback:       10 kB\n";
  const auto room = room_of_node({3}, root);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->total.value, 2048u * 1024);
  EXPECT_EQ(room->free.value, 512u * 1024);
  EXPECT_EQ(room->files.value, 250u * 1024) << "what is to be written first cannot be taken back at once";
  EXPECT_EQ(available(*room), room->free) << "so few files stay";
  const NodeRoom large{.total = {std::uint64_t{64} << 30}, .free = 1_GiB, .files = 5_GiB};
  EXPECT_EQ(available(large), 4_GiB) << "2 GiB stay";
  EXPECT_FALSE(room_of_node({4}, root));
  std::filesystem::remove_all(root);
}

TEST(NodeMemory, FilledMemoryLiesInItsNodeAndStaysUsable) {
  constexpr Bytes bytes = 5_MiB;  // two pieces and a half
  for (const Pages pages : {Pages::small, Pages::huge}) {
    const Mapping memory = reserved(bytes);
    if (const auto preferred = prefer_node(memory.data(), bytes, near); !preferred)
      GTEST_SKIP() << preferred.error().message;
    ::madvise(memory.data(), bytes.value, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    const Filled filled = fill_from_node(memory.data(), bytes, near, pages);
    EXPECT_EQ(filled.bytes, bytes);
    EXPECT_EQ(filled.error, 0);
    EXPECT_TRUE(placed_in_node(memory.data(), bytes, near).all);
    EXPECT_EQ(bind_to_node(memory.data(), bytes, near), 0);
    std::fill_n(memory.data(), bytes.value, std::byte{7});
    EXPECT_EQ(std::count(memory.data(), memory.data() + bytes.value, std::byte{7}),
              static_cast<std::ptrdiff_t>(bytes.value));
  }
}

TEST(NodeMemory, ANodeThatIsNotThereIsRefusedWithTheRemedy) {
  const Mapping memory = reserved(2_MiB);
  const auto refused = prefer_node(memory.data(), 2_MiB, {1023});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("asking for memory of NUMA node 1023: ")) << refused.error().message;
  EXPECT_FALSE(prefer_node(memory.data(), 2_MiB, {100'000}));
}

TEST(NodeMemory, PagesOfAnotherNodeAreNotTakenForItsOwn) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  const Mapping memory = reserved(4_MiB);
  ASSERT_TRUE(prefer_node(memory.data(), 2_MiB, *far));
  ASSERT_EQ(fill_from_node(memory.data(), 2_MiB, *far, Pages::small).bytes, 2_MiB);
  ASSERT_TRUE(prefer_node(memory.data() + (2_MiB).value, 2_MiB, near));
  ASSERT_EQ(fill_from_node(memory.data() + (2_MiB).value, 2_MiB, near, Pages::small).bytes, 2_MiB);
  EXPECT_TRUE(placed_in_node(memory.data(), 2_MiB, *far).all);
  EXPECT_FALSE(placed_in_node(memory.data(), 2_MiB, near).all);
  EXPECT_FALSE(placed_in_node(memory.data(), 4_MiB, *far).all);
}

// Of the node there is as much as it has, of the other at most what it has anyway; and the process lives.
TEST(NodeMemory, AFullNodeIsAnAnswerAndKillsNoProcess) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  for (const NodeIndex node : {*far, near}) {
    const NodeRoom room = room_of_node(node).value();
    if (!may_be_filled({node.value}))
      GTEST_SKIP() << "NUMA node " << node.value << " is large, and the test would fill it";
    const NodeIndex other = node == near ? *far : near;
    for (const Pages pages : {Pages::huge, Pages::small}) {
      EXPECT_TRUE(in_a_child([&] {
        const Bytes more{(room.total.value / node_piece.value + 16) * node_piece.value};
        const Mapping memory = reserved(more);
        if (!prefer_node(memory.data(), more, node)) return false;
        ::madvise(memory.data(), more.value, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        const Bytes before = free_of(other), had = free_of(node);
        const Filled filled = fill_from_node(memory.data(), more, node, pages);
        const Bytes after = free_of(other);
        std::printf(
            "node %u had %llu MiB free, %llu MiB were filled; the other: %llu MiB before, %llu after\n", node.value,
            static_cast<unsigned long long>(had.value >> 20), static_cast<unsigned long long>(filled.bytes.value >> 20),
            static_cast<unsigned long long>(before.value >> 20), static_cast<unsigned long long>(after.value >> 20));
        std::fflush(stdout);
        const bool placed = placed_in_node(memory.data(), filled.bytes, node).all;
        const int bound = bind_to_node(memory.data(), filled.bytes, node);
        std::printf("error %d, %s, binding it: %d\n", filled.error, placed ? "all of it there" : "not all of it there",
                    bound);
        std::fflush(stdout);
        return filled.error == 0 && filled.bytes < more && filled.bytes.value > had.value / 10 * 8 && placed &&
               after + 24_MiB > before && bound == 0;
      })) << "node "
          << node.value;
    }
  }
}

// Linux gives preferred memory from another node before it takes the cache of files back.
TEST(NodeMemory, TheCacheOfFilesMakesRoom) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  const NodeRoom room = room_of_node(*far).value();
  if (!may_be_filled({far->value}))
    GTEST_SKIP() << "NUMA node " << far->value << " is large, and the test would fill it";
  const std::string path = (std::filesystem::current_path() / "vedette_cached").string();
  // A file that is read through memory of the far node fills it with cache.
  EXPECT_TRUE(in_a_child([&] {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const Mapping block = reserved(2_MiB);
    const Bytes wanted{room.free.value / 4 * 3};
    if (file < 0 || !prefer_all_of_this_thread(*far)) return false;
    for (std::uint64_t done = 0; done < wanted.value; done += block.bytes().value)
      if (::write(file, block.data(), block.bytes().value) < 0) return false;
    ::fsync(file);
    ::close(file);
    return true;
  }));
  const NodeRoom cached = room_of_node(*far).value();
  EXPECT_GT(cached.files, 256_MiB) << "the file is not cached there";
  EXPECT_TRUE(in_a_child([&] {
    const Bytes wanted{(cached.free.value + cached.files.value / 2) / node_piece.value * node_piece.value};
    const Mapping memory = reserved(wanted);
    if (!prefer_node(memory.data(), wanted, *far)) return false;
    return fill_from_node(memory.data(), wanted, *far, Pages::huge).bytes == wanted;
  }));
  std::filesystem::remove(path);
}

using Open = Result<std::unique_ptr<ChunkMemory>> (*)(ChunkMemoryOptions);

// Frames of each way of moving, shown, hidden and made later.
TEST(NodeMemory, FramesLieInTheirNode) {
  constexpr Bytes chunk = 2_MiB;
  const NodeIndex node = far_node().value_or(near);
  int ran = 0;
  for (const Open open : {open_move_memory, open_remap_memory, open_signal_memory, open_file_memory}) {
    const Mapping arena = Mapping::reserve({8 * chunk.value}, chunk).value();
    const auto memory = open({.arena = arena.data(),
                              .chunks = 8,
                              .frames = 4,
                              .made = 2,
                              .chunk_bytes = chunk,
                              .node = node,
                              .on_fault = [](const Fault&) {}});
    if (!memory) {
      std::printf("%s\n", memory.error().message.c_str());
      continue;
    }
    ++ran;
    const bool file = open == open_file_memory;
    ASSERT_EQ((*memory)->make({2}, 2, file ? FrameKind::trackable : FrameKind::fast), 0);
    for (std::uint32_t f = 0; f < 4; ++f) {
      std::fill_n((*memory)->parked({f}), chunk.value, std::byte{1});
      EXPECT_TRUE(placed_in_node((*memory)->parked({f}), chunk, node).all) << (*memory)->mechanism() << ", frame " << f;
      (*memory)->show({f}, {f + 2});
      std::fill_n(arena.data() + (f + 2) * chunk.value, chunk.value, std::byte{2});
      EXPECT_TRUE(placed_in_node(arena.data() + (f + 2) * chunk.value, chunk, node).all) << (*memory)->mechanism();
    }
  }
  if (ran == 0) GTEST_SKIP() << "no way of moving memory works here";
}

// More frames than the node has: an errno, and the process goes on with those there are.
TEST(NodeMemory, FramesBeyondTheirNodeAreRefused) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  const NodeRoom room = room_of_node(*far).value();
  if (!may_be_filled({far->value}))
    GTEST_SKIP() << "NUMA node " << far->value << " is large, and the test would fill it";
  EXPECT_TRUE(in_a_child([&] {
    constexpr Bytes chunk = 2_MiB;
    const auto frames = static_cast<std::uint32_t>(available(room).value / chunk.value) - 8;
    const Mapping arena = Mapping::reserve({16 * chunk.value}, chunk).value();
    const auto open = [&](std::uint32_t count) {
      return open_best_memory({.arena = arena.data(),
                               .chunks = 16,
                               .frames = count,
                               .made = 8,
                               .chunk_bytes = chunk,
                               .node = *far,
                               .on_fault = [](const Fault&) {}});
    };
    const auto beyond = open(frames + 4096);
    if (beyond || beyond.error().message.find("fast memory of NUMA node ") == std::string::npos) return false;
    // Another program takes the rest of the node meanwhile.
    const auto memory = open(frames);
    const Mapping others = reserved({256 * node_piece.value});
    if (!memory || !prefer_node(others.data(), others.bytes(), *far)) return false;
    if (fill_from_node(others.data(), others.bytes(), *far, Pages::huge).bytes.value == 0) return false;
    std::uint32_t made = 8;
    while (made < frames && (*memory)->make({made}, 1, FrameKind::fast) == 0) ++made;
    std::printf("%u of %u frames were made\n", made, frames);
    std::fflush(stdout);
    return made < frames && made > 8 && placed_in_node((*memory)->parked({made - 1}), chunk, *far).all;
  }));
}

}  // namespace
}  // namespace vedette
