// Addresses of the arena: random births and deaths against a model that knows every byte.
#include "session/heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace vedette::heap_test {
namespace {

constexpr Bytes chunk = 64_KiB;

struct Piece {
  std::uint64_t bytes = 0;
  bool small = false, persistent = false;
};

// No two pieces share a byte; persistent and passing ones share no chunk; small ones share no chunk with others.
void expect_apart(const std::map<std::uint64_t, Piece>& pieces) {
  std::map<std::uint64_t, int> kind_of_chunk;
  std::uint64_t end = 0;
  for (const auto& [offset, piece] : pieces) {
    ASSERT_GE(offset, end);
    end = offset + piece.bytes;
    const int kind = piece.small ? 0 : piece.persistent ? 1 : 2;
    for (std::uint64_t c = offset / chunk.value; c * chunk.value < end; ++c) {
      const auto [at, fresh] = kind_of_chunk.emplace(c, kind);
      ASSERT_EQ(at->second, kind) << "chunk " << c << " is shared by different kinds";
    }
  }
}

// Of some seeds the arena is so small that free runs are cut and joined, and some allocations find no room.
TEST(Heap, NeverGivesAByteTwice) {
  int refused = 0, again = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const bool crowded = seed > 12;
    Heap heap(crowded ? 300 : 4000, chunk);
    std::map<std::uint64_t, Piece> pieces;
    std::map<std::uint64_t, bool> slab_chunks;
    std::pair<std::uint64_t, Piece> gone;  // one of those that were released
    for (int turn = 0; turn < 3000; ++turn) {
      if (gone.second.bytes > 0 && random() % 8 == 0) {
        if (!heap.allocate_at(gone.first, gone.second.bytes, gone.second.persistent)) continue;
        const auto [at, fresh] = pieces.insert(gone);
        ASSERT_TRUE(fresh);
        ++again;
      } else if (pieces.empty() || random() % 5 < 3) {
        constexpr std::uint64_t least[] = {1, 1, 1000, 4096, 60'000, 65'536, 100'000, 131'072};
        constexpr std::uint64_t spread[] = {100, 1024, 20'000, 65'536, 6'000, 1, 300'000, 1};
        const std::size_t shape = random() % 8;
        const std::uint64_t bytes = least[shape] + random() % spread[shape];
        const std::uint64_t alignment = std::uint64_t{1} << (random() % 13);
        const bool persistent = random() % 4 == 0;
        const auto place = heap.allocate(bytes, alignment, persistent);
        refused += place ? 0 : 1;
        if (crowded && !place) continue;
        ASSERT_TRUE(place);
        EXPECT_EQ(place->offset % alignment, 0u);
        EXPECT_LE(place->offset + bytes, std::uint64_t{heap.top()} * chunk.value);
        if (place->small) {
          if (place->new_slab_chunk) slab_chunks[*place->new_slab_chunk] = true;
          EXPECT_TRUE(slab_chunks.contains(place->offset / chunk.value)) << "nobody was told of this chunk";
          EXPECT_LE(bytes, heap.small_limit());
        }
        const auto [at, fresh] = pieces.emplace(place->offset, Piece{bytes, place->small, persistent});
        ASSERT_TRUE(fresh);
      } else {
        auto victim = pieces.lower_bound(random() % (std::uint64_t{heap.top()} * chunk.value));
        if (victim == pieces.end()) victim = pieces.begin();
        if (victim->second.small) {
          const auto released = heap.release_small(victim->first);
          ASSERT_TRUE(released);
          EXPECT_EQ(released->bytes, (victim->second.bytes + 63) / 64 * 64);
          EXPECT_FALSE(heap.release_small(victim->first)) << "released twice";
          const auto chunk_of = [&](std::uint64_t offset) { return offset / chunk.value; };
          const auto in_chunk = std::count_if(pieces.begin(), pieces.end(), [&](const auto& piece) {
            return chunk_of(piece.first) == chunk_of(victim->first);
          });
          EXPECT_EQ(released->emptied, in_chunk == 1);
          if (released->emptied && random() % 2 == 0) {
            slab_chunks.erase(chunk_of(victim->first));
            heap.release_slab_chunk(victim->first / chunk.value * chunk.value);
          }
        } else {
          heap.release(victim->first, victim->second.bytes, victim->second.persistent);
          if (random() % 4 == 0) gone = *victim;
        }
        pieces.erase(victim);
      }
      if (turn % 100 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_apart(pieces));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_apart(pieces));
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(again, 1000);
}

TEST(Heap, GivesAPlaceAgainWhereAllOfItIsFree) {
  Heap heap(4000, chunk);
  const std::uint64_t run = 3 * chunk.value, pages = 40'000;
  for (const auto& [bytes, persistent] : {std::pair(run, false), std::pair(pages, false), std::pair(pages, true)}) {
    const std::uint64_t first = heap.allocate(bytes, 64, persistent)->offset,
                        second = heap.allocate(bytes, 64, persistent)->offset;
    EXPECT_FALSE(heap.allocate_at(second, bytes, persistent)) << "it is taken";
    heap.release(first, bytes, persistent);
    heap.release(second, bytes, persistent);
    EXPECT_TRUE(heap.allocate_at(second, bytes, persistent));
    EXPECT_FALSE(heap.allocate_at(second, bytes, persistent));
    EXPECT_EQ(heap.allocate(bytes, 64, persistent)->offset, first) << "the other one is free still";
  }
  const std::uint64_t whole = heap.allocate(pages, 64, false)->offset;
  heap.release(whole, pages, false);
  ASSERT_TRUE(heap.allocate_at(whole + 4096, 4096, false));
  EXPECT_FALSE(heap.allocate_at(whole, pages, false)) << "a part of it is taken";
}

TEST(Heap, ReusesWhatALoopGivesBack) {
  Heap heap(4000, chunk);
  std::uint32_t after_one = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> passing, small;
    for (std::uint64_t i = 1; i < 40; ++i) {
      const std::uint64_t bytes = i * 9000;
      passing.emplace_back(heap.allocate(bytes, 64, false)->offset, bytes);
      small.emplace_back(heap.allocate(i * 20, 64, false)->offset, i * 20);
    }
    for (const auto& [offset, bytes] : passing) heap.release(offset, bytes, false);
    for (const auto& [offset, bytes] : small) heap.release_small(offset);
    if (step == 0) after_one = heap.top();
  }
  EXPECT_EQ(heap.top(), after_one);
}

TEST(Heap, KeepsZonesApartAndGivesThemOutAgain) {
  Heap heap(100, chunk);
  const auto a = heap.reserve_zone(10 * chunk.value), b = heap.reserve_zone(10 * chunk.value);
  ASSERT_TRUE(a && b);
  EXPECT_GE(*b, *a + 10 * chunk.value);
  heap.release_zone(*a, 10 * chunk.value);
  EXPECT_EQ(heap.reserve_zone(10 * chunk.value), a);
}

TEST(Heap, SaysWhenTheArenaIsUsedUp) {
  Heap heap(4, chunk);
  EXPECT_TRUE(heap.allocate(3 * chunk.value, 64, false));
  EXPECT_FALSE(heap.allocate(2 * chunk.value, 64, false));
  EXPECT_FALSE(heap.reserve_zone(2 * chunk.value));
  EXPECT_TRUE(heap.allocate(chunk.value, 64, true));
  EXPECT_FALSE(heap.allocate(10, 64, false));  // not even the slab's first chunk
}

// The sum of the sizes is many times the arena: each run that is free serves others, too.
TEST(Heap, SizesThatNeverComeAgainDoNotUseAddressesUp) {
  Heap heap(128, chunk);
  for (std::uint64_t count = 1; count <= 128; ++count) {
    const auto place = heap.allocate(count * chunk.value, 64, false);
    ASSERT_TRUE(place) << count;
    heap.release(place->offset, count * chunk.value, false);
  }
  const auto whole = heap.reserve_zone(128 * chunk.value);
  ASSERT_TRUE(whole);
  EXPECT_FALSE(heap.allocate(10, 64, false)) << "not one chunk is left";
}

TEST(Heap, WhatPassesAndLastsGivesItsWholeChunksToRuns) {
  for (const bool persistent : {false, true}) {
    Heap heap(48, chunk);
    std::vector<std::uint64_t> at;
    const std::uint64_t bytes = chunk.value * 3 / 2;
    for (int i = 0; i < 20; ++i) at.push_back(heap.allocate(bytes, 64, persistent)->offset);
    for (std::size_t i = 0; i + 1 < at.size(); ++i) heap.release(at[i], bytes, persistent);
    const auto run = heap.allocate(20 * chunk.value, 64, false);
    ASSERT_TRUE(run) << persistent;
    EXPECT_TRUE(run->offset + 20 * chunk.value <= at.back() || at.back() + bytes <= run->offset);
  }
}

TEST(Heap, LaysWhatOutlivesStepsEndToEnd) {
  Heap heap(4000, chunk);
  const std::uint64_t bytes = chunk.value * 9 / 2;  // as the moments of a layer: four chunks and a half
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto place = heap.allocate(bytes, 64, true);
    ASSERT_TRUE(place);
    if (i < 7) {
      EXPECT_EQ(place->offset, i * bytes);
    }
    heap.allocate(bytes, 64, false).value();  // what passes lies elsewhere
  }
}

TEST(Heap, JoinsAHoleWithThoseOnBothSides) {
  constexpr std::uint64_t page = 4096, bytes = 5 * page;
  for (const bool from_below : {false, true}) {
    Heap heap(64, chunk);
    std::vector<std::uint64_t> at;
    for (int i = 0; i < 3; ++i) at.push_back(heap.allocate(bytes, page, true)->offset);
    heap.release(at[from_below ? 0 : 1], bytes, true);
    heap.release(at[from_below ? 1 : 0], bytes, true);
    EXPECT_EQ(heap.allocate(2 * bytes, page, true)->offset, at[0]) << from_below;
  }
}

}  // namespace
}  // namespace vedette::heap_test
