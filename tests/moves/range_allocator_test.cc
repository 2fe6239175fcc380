// Random programs of blocks, held against a map of bytes and against a search of all windows.
#include "moves/range_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace vedette::moves::range_allocator_test {
namespace {

constexpr std::uint64_t unit = 64, units = 48;

struct Known {
  std::uint64_t offset = 0, length = 0, used = 0;  // in units
  bool pinned = false, movable = false;
};

// What the arena should be, in the plainest form. `bytes` holds for each unit the block whose bytes lie there.
struct Judge {
  std::map<std::uint32_t, Known> blocks;
  std::vector<std::uint32_t> bytes = std::vector<std::uint32_t>(units, 0);
  std::uint64_t clock = 0;

  bool free(std::uint64_t begin, std::uint64_t length) const {
    for (const auto& [index, block] : blocks) {
      if (begin < block.offset + block.length && block.offset < begin + length) return false;
    }
    return begin + length <= units;
  }
  std::optional<std::uint64_t> first_fit(std::uint64_t length) const {
    for (std::uint64_t begin = 0; begin < units; ++begin) {
      if (free(begin, length)) return begin;
    }
    return std::nullopt;
  }
  void put(std::uint32_t index, std::uint64_t offset, std::uint64_t length) {
    blocks[index] = {.offset = offset, .length = length, .used = ++clock};
    for (std::uint64_t at = offset; at < offset + length; ++at) bytes[at] = index;
  }
  // The least "most recent use" over all places at which a hole of this length could be made; nullopt: none.
  std::optional<std::uint64_t> least_recent_window(std::uint64_t length) const {
    std::optional<std::uint64_t> best;
    for (std::uint64_t begin = 0; begin + length <= units; ++begin) {
      std::uint64_t used = 0;
      bool possible = true;
      for (const auto& [index, block] : blocks) {
        if (begin >= block.offset + block.length || block.offset >= begin + length) continue;
        possible = possible && !block.pinned && block.movable;
        used = std::max(used, block.used);
      }
      if (possible && (!best || used < *best)) best = used;
    }
    return best;
  }
};

class Blocks : public ::testing::Test {
 protected:
  void check_same(unsigned seed) {
    std::uint64_t in_use = 0;
    for (const auto& [index, block] : judge.blocks) {
      ASSERT_EQ(arena.offset({index}), block.offset * unit) << "seed " << seed;
      in_use += block.length * unit;
      // The bytes of a block are its own: nobody was placed over it.
      for (std::uint64_t at = block.offset; at < block.offset + block.length; ++at)
        ASSERT_EQ(judge.bytes[at], index) << "seed " << seed;
    }
    ASSERT_EQ(arena.in_use().value, in_use) << "seed " << seed;
    ASSERT_LE(in_use, units * unit);
  }
  void make_room(std::uint64_t length, unsigned seed) {
    const auto wanted = judge.least_recent_window(length);
    const auto victims = arena.victims({length * unit});
    ASSERT_EQ(victims.has_value(), wanted.has_value()) << "seed " << seed;
    if (!victims) return;
    std::uint64_t used = 0;
    for (const BlockIndex victim : *victims) {
      const Known& block = judge.blocks.at(victim.value);
      ASSERT_TRUE(!block.pinned && block.movable) << "seed " << seed;
      used = std::max(used, block.used);
      judge.blocks.erase(victim.value);
      arena.remove(victim);
    }
    ASSERT_EQ(used, *wanted) << "seed " << seed << ": another window was used less recently";
    ASSERT_TRUE(judge.first_fit(length)) << "seed " << seed;
  }
  void place(std::uint32_t index, std::uint64_t length, unsigned seed) {
    const auto expected = judge.first_fit(length);
    const auto offset = arena.place({index}, {length * unit - 1});
    ASSERT_EQ(offset.has_value(), expected.has_value()) << "seed " << seed;
    if (!offset) return;
    ASSERT_EQ(*offset, *expected * unit) << "seed " << seed;
    judge.put(index, *expected, length);
  }
  void look_at_the_movable(unsigned seed) {
    std::uint64_t longest = 0, first = 0;
    for (std::uint64_t begin = 0; begin < units; ++begin) {
      std::uint64_t end = begin;
      while (end < units && std::none_of(judge.blocks.begin(), judge.blocks.end(), [&](const auto& each) {
               const Known& block = each.second;
               return !block.movable && block.offset <= end && end < block.offset + block.length;
             }))
        ++end;
      if (end - begin <= longest) continue;
      longest = end - begin;
      first = begin;
    }
    const RangeAllocator::Stretch movable = arena.longest_movable();
    ASSERT_EQ(movable.bytes.value, longest * unit) << "seed " << seed;
    ASSERT_EQ(movable.first, first * unit) << "seed " << seed;
  }

  RangeAllocator arena{{units * unit}, {unit}};
  Judge judge;
};

TEST_F(Blocks, LieWhereFirstFitPutsThemAndLeaveLeastRecentlyUsed) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    arena.~RangeAllocator();
    new (&arena) RangeAllocator({units * unit}, {unit});
    judge = {};
    std::uint32_t next = 1;
    for (int i = 0; i < 200; ++i) {
      const auto any = judge.blocks.empty() ? judge.blocks.end()
                                            : std::next(judge.blocks.begin(),
                                                        static_cast<std::ptrdiff_t>(random() % judge.blocks.size()));
      const std::uint64_t length = 1 + random() % 12;
      const unsigned what = any == judge.blocks.end() ? 0 : static_cast<unsigned>(random() % 9);
      if (what <= 2) {
        make_room(length, seed);
        place(next++, length, seed);
      } else if (what == 3) {
        arena.remove({any->first});
        judge.blocks.erase(any);
      } else if (what == 4) {
        any->second.pinned ? arena.unpin({any->first}) : arena.pin({any->first});
        any->second.pinned = !any->second.pinned;
      } else if (what <= 6) {
        arena.allow_moves({any->first});
        any->second.movable = true;
      } else if (what == 7) {
        arena.use({any->first});
        any->second.used = ++judge.clock;
      } else {
        look_at_the_movable(seed);
      }
      check_same(seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RangeAllocator, APlannedPlaceIsTakenOrRefused) {
  RangeAllocator arena({4096}, {512});
  EXPECT_TRUE(arena.place_at({1}, {1000}, 1024));
  EXPECT_FALSE(arena.place_at({2}, {1}, 1536)) << "inside the first";
  EXPECT_FALSE(arena.place_at({2}, {1025}, 0)) << "reaches into the first";
  EXPECT_FALSE(arena.place_at({2}, {512}, 4096)) << "behind the end";
  EXPECT_FALSE(arena.place_at({2}, {512}, 100)) << "not aligned";
  EXPECT_FALSE(arena.place_at({2}, {8192}, 0)) << "larger than all";
  EXPECT_TRUE(arena.place_at({2}, {1024}, 0));
  EXPECT_EQ(arena.in_use().value, 2048u);
}

TEST(RangeAllocator, WhatReachesIntoAPlannedPlaceLiesThere) {
  RangeAllocator arena({4096}, {512});
  ASSERT_TRUE(arena.place_at({1}, {1024}, 0));
  ASSERT_TRUE(arena.place_at({2}, {512}, 1024));
  ASSERT_TRUE(arena.place_at({3}, {1024}, 2048));
  for (const std::uint32_t b : {1u, 2u, 3u}) arena.allow_moves({b});
  EXPECT_EQ(arena.occupants(512, {512}), std::vector<BlockIndex>{{1}});
  EXPECT_EQ(arena.occupants(512, {2048}), (std::vector<BlockIndex>{{1}, {2}, {3}}));
  EXPECT_EQ(arena.occupants(1024, {512}), std::vector<BlockIndex>{{2}}) << "its neighbour ends where it begins";
  EXPECT_EQ(arena.occupants(1536, {512}), std::vector<BlockIndex>{});
  EXPECT_EQ(arena.occupants(2560, {512}), std::vector<BlockIndex>{{3}});
  arena.pin({1});
  EXPECT_EQ(arena.occupants(512, {512}), std::nullopt);
}

TEST(RangeAllocator, WhatIsPinnedOrNeverSeenIsNoVictim) {
  RangeAllocator arena({1024}, {512});
  ASSERT_TRUE(arena.place({1}, {512}));
  ASSERT_TRUE(arena.place({2}, {512}));
  EXPECT_FALSE(arena.victims({512})) << "no storage was seen";
  arena.allow_moves({1});
  arena.pin({1});
  EXPECT_FALSE(arena.victims({512}));
  arena.unpin({1});
  EXPECT_EQ(arena.victims({512}), std::vector<BlockIndex>{{1}});
  EXPECT_FALSE(arena.victims({1024})) << "the second stays";
}

TEST(RangeAllocator, WhatIsUsedBeforeAllLeavesFirstTheLatestOfItBeforeTheOthers) {
  RangeAllocator arena({4 * unit}, {unit});
  for (std::uint32_t block = 0; block < 4; ++block) {
    arena.place({block}, {unit});
    arena.allow_moves({block});
    if (block % 2 == 1) arena.use_before_all({block});
  }
  for (const std::uint32_t next : {3u, 1u, 0u, 2u}) {
    const auto leaving = arena.victims({unit});
    ASSERT_EQ(leaving, std::vector<BlockIndex>{{next}});
    arena.remove({next});
    arena.place({next}, {unit});
    arena.pin({next});
  }
}

}  // namespace
}  // namespace vedette::moves::range_allocator_test
