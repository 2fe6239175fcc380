// Addresses of tensors: places that are taken, filled, and given back.
#include "session/arena.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "session/address_plan.h"

namespace vedette::detail::arena_test {
namespace {

constexpr Bytes chunk = {64 << 10};

Arena an_arena(std::uint64_t chunks = 256) {
  return Arena(Mapping::reserve({chunks * chunk.value}, chunk).value(), chunk);
}

Arena::Place add(Arena& arena, std::uint64_t bytes, const std::string& name = {}) {
  const Arena::Place place = arena.take({.bytes = bytes}).value();
  Live live;
  live.name = name;
  arena.add(place, std::move(live));
  return place;
}

TEST(Arena, FindsTheTensorThatHoldsAnAddress) {
  Arena arena = an_arena();
  const Arena::Place place = add(arena, 100'000);
  const auto at = [&](std::uint64_t offset) { return arena.holding(arena.base() + offset); };
  ASSERT_NE(at(place.offset), arena.tensors().end());
  EXPECT_EQ(at(place.offset + 99'999)->first, place.offset);
  EXPECT_EQ(at(place.offset + 100'000), arena.tensors().end());
}

TEST(Arena, ChunksOfAnExtentAreHalfOpen) {
  const Arena arena = an_arena();
  EXPECT_EQ(arena.chunks_of(0, 1), (ChunkRange{{0}, {1}}));
  EXPECT_EQ(arena.chunks_of(0, 0), (ChunkRange{{0}, {1}}));
  EXPECT_EQ(arena.chunks_of(chunk.value - 1, 2), (ChunkRange{{0}, {2}}));
  EXPECT_EQ(arena.chunks_of(chunk.value, chunk.value), (ChunkRange{{1}, {2}}));
}

TEST(Arena, AnAddressIsFreeOnlyWhenItsPlaceIs) {
  Arena arena = an_arena();
  const Arena::Place first = add(arena, 3 * chunk.value);
  const auto dead = arena.remove(first.offset);
  ASSERT_TRUE(dead);
  EXPECT_NE(add(arena, 3 * chunk.value).offset, first.offset) << "given out before its chunks were dead";
  arena.free_place(first.offset, *dead);
  EXPECT_EQ(add(arena, 3 * chunk.value).offset, first.offset);
  EXPECT_FALSE(arena.remove(first.offset + 64)) << "not the beginning of a tensor";
}

TEST(Arena, APlannedPlaceNeedsRoomAndIsNotTheHeaps) {
  Arena arena = an_arena();
  const std::uint64_t zone = arena.reserve_zone(4 * chunk.value).value();
  EXPECT_TRUE(arena.room_at(zone, 4 * chunk.value));
  const Arena::Place place = arena.take({.bytes = 1000, .planned = zone + 5000}).value();
  arena.add(place, {});
  EXPECT_FALSE(arena.room_at(zone, 5001));
  EXPECT_TRUE(arena.room_at(zone, 5000));
  EXPECT_FALSE(arena.room_at(zone + 5999, 10));
  EXPECT_TRUE(arena.room_at(zone + 6000, 10));
}

TEST(Arena, AZoneIsGivenBackWithItsLastTensor) {
  Arena arena = an_arena(12);
  const std::uint64_t bytes = 4 * chunk.value, zone = arena.reserve_zone(bytes).value();
  std::vector<Arena::Place> places;
  for (const std::uint64_t offset : {0, 5000}) {
    places.push_back(arena.take({.bytes = 1000, .planned = zone + offset}).value());
    arena.add(places.back(), {});
  }
  arena.release_zone(zone, bytes);
  for (const Arena::Place& place : places) {
    EXPECT_NE(arena.reserve_zone(bytes).value(), zone) << "a tensor lives there";
    arena.free_place(place.offset, arena.remove(place.offset).value());
  }
  EXPECT_EQ(arena.reserve_zone(bytes), zone);
}

// The heap knows nothing of a place in a zone, and would give this one to another tensor.
TEST(AddressPlan, WhatWasBornBeforeItLivesInNoZone) {
  Arena arena = an_arena();
  const Arena::Place before = add(arena, 3 * chunk.value);
  StepLog log;
  log.tensors.push_back({.bytes = {before.bytes}, .offset = before.offset, .birth = 1, .death = 4});
  log.tensors.push_back({.bytes = chunk, .birth = 3, .death = 4});
  const AddressPlan plan(log, 5, arena, chunk, Heap::Chunks::shared, 2);
  ASSERT_TRUE(plan.nth(before.bytes, 0) && plan.nth(chunk.value, 0));
  EXPECT_FALSE(plan.nth(before.bytes, 0)->in_zone);
  EXPECT_EQ(plan.nth(before.bytes, 0)->offset, before.offset);
  EXPECT_TRUE(plan.nth(chunk.value, 0)->in_zone);
  EXPECT_EQ(plan.nth(chunk.value, 0)->offset, plan.zone());
}

TEST(Arena, ASlabChunkIsUnbornUntilItIsSaidToBeThere) {
  Arena arena = an_arena();
  const Arena::Place place = arena.take({.bytes = 64}).value();
  ASSERT_TRUE(place.slab);
  const ChunkIndex chunk_of_it = place.chunks.first();
  EXPECT_TRUE(arena.slab_is_unborn(chunk_of_it));
  arena.slab_is_born(chunk_of_it, true);
  EXPECT_FALSE(arena.slab_is_unborn(chunk_of_it));
  arena.add_small(place);
  EXPECT_EQ(arena.live_bytes(), 64u);
  EXPECT_EQ(arena.slab_chunk_that_may_leave(arena.base() + place.offset), std::nullopt);
  const auto removed = arena.remove_small(place.offset);
  ASSERT_TRUE(removed);
  EXPECT_FALSE(removed->last) << "it stays, whatever lives there";
  EXPECT_FALSE(arena.remove_small(place.offset));
  EXPECT_TRUE(arena.empty());
}

TEST(Arena, ASlabChunkThatMayLeaveIsGivenBackWithItsLastTensor) {
  Arena arena = an_arena();
  const Arena::Place first = arena.take({.bytes = 64}).value();
  arena.slab_is_born(first.chunks.first(), false);
  arena.add_small(first);
  const Arena::Place second = arena.take({.bytes = 1000}).value();
  arena.add_small(second);
  EXPECT_EQ(arena.slab_chunks_that_may_leave(), 1u);
  EXPECT_EQ(arena.slab_chunk_that_may_leave(arena.base() + second.offset + 500), first.chunks.first());
  EXPECT_FALSE(arena.remove_small(first.offset)->last);
  EXPECT_TRUE(arena.remove_small(second.offset)->last);
  const Arena::Place other = add(arena, chunk.value);
  EXPECT_NE(other.chunks.first(), first.chunks.first()) << "given out before it was dead";
  arena.free_slab_chunk(first.chunks.first());
  EXPECT_EQ(arena.slab_chunks_that_may_leave(), 0u);
  EXPECT_EQ(add(arena, chunk.value).chunks.first(), first.chunks.first());
}

TEST(Arena, ASlabChunkThatCouldNotBeBornIsNoSlabChunk) {
  Arena arena = an_arena();
  const Arena::Place place = arena.take({.bytes = 64}).value();
  arena.give_back(place);
  EXPECT_EQ(add(arena, chunk.value).chunks.first(), place.chunks.first());
  EXPECT_TRUE(arena.slab_is_unborn(arena.take({.bytes = 64}).value().chunks.first()));
}

TEST(Arena, NamesWhatLiesInAChunk) {
  Arena arena = an_arena();
  const Arena::Place place = add(arena, 3 * chunk.value, "conv1.weight");
  EXPECT_EQ(arena.names_in({place.chunks.first().value + 1}, 3), ", tensor 'conv1.weight' of 192.0 KiB");
  EXPECT_EQ(arena.names_in({200}, 3), "");
}

// Tensors of all kinds come and go at random: they never overlap, and the count of bytes is theirs.
TEST(Arena, KeepsLivingTensorsApart) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Arena arena = an_arena(4096);
    std::vector<Arena::Place> live;
    for (int step = 0; step < 3000; ++step) {
      if (live.empty() || random() % 5 < 3) {
        const std::uint64_t bytes = 1 + random() % (random() % 3 == 0 ? 500'000 : 5'000);
        const bool small = arena.is_small(bytes, 64);
        const auto place =
            arena.take({.bytes = bytes, .lasting = random() % 4 == 0, .alone = small && random() % 2 == 0});
        ASSERT_TRUE(place);
        if (place->slab) {
          const ChunkIndex c = place->chunks.first();
          if (arena.slab_is_unborn(c)) arena.slab_is_born(c, random() % 2 == 0);
          arena.add_small(*place);
        } else {
          ASSERT_TRUE(arena.room_at(place->offset, bytes));
          arena.add(*place, {});
        }
        live.push_back(*place);
      } else {
        std::swap(live[random() % live.size()], live.back());
        if (live.back().slab) {
          const auto small = arena.remove_small(live.back().offset);
          ASSERT_TRUE(small);
          if (small->last) arena.free_slab_chunk(small->chunk);
        } else {
          const auto dead = arena.remove(live.back().offset);
          ASSERT_TRUE(dead);
          arena.free_place(live.back().offset, *dead);
        }
        live.pop_back();
      }
      std::uint64_t sum = 0;
      for (const Arena::Place& place : live) sum += (place.bytes + 63) / 64 * 64;
      ASSERT_EQ(arena.live_bytes(), sum);
    }
    std::sort(live.begin(), live.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < live.size(); ++i) ASSERT_LE(live[i - 1].offset + live[i - 1].bytes, live[i].offset);
  }
}

}  // namespace
}  // namespace vedette::detail::arena_test
