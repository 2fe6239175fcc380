// Temporaries get addresses at which nobody is in anybody's way, and lives that differ do not share chunks where it
// costs.
#include "pack/coallocate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace vedette::coallocate_test {
namespace {

constexpr Bytes chunk = 64_KiB;

// Lives in order of birth, with unique event numbers, as the session makes them.
std::vector<Lifetime> random_lives(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<Lifetime> lives;
  std::vector<std::size_t> alive;
  std::uint32_t event = 0;
  const std::uint64_t most_alive = 1 + random() % 40;
  while (lives.size() < count || !alive.empty()) {
    const bool birth = lives.size() < count && (alive.empty() || (alive.size() < most_alive && random() % 2 == 0));
    ++event;
    if (birth) {
      const std::uint64_t bytes =
          random() % 3 == 0 ? chunk.value * (1 + random() % 5) : 1025 + random() % (chunk.value * 2);
      alive.push_back(lives.size());
      lives.push_back({.bytes = {bytes}, .life = {event, 0}});
    } else {
      const std::size_t pick = random() % 2 == 0 ? alive.size() - 1 : random() % alive.size();
      lives[alive[pick]].life.end = event;
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(pick));
    }
  }
  return lives;
}

bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

void expect_sound(const std::vector<Lifetime>& lives, const Placement& placement) {
  ASSERT_EQ(placement.offset.size(), lives.size());
  EXPECT_EQ(placement.zone_bytes % chunk.value, 0u);
  for (std::size_t i = 0; i < lives.size(); ++i) {
    EXPECT_EQ(placement.offset[i] % 4096, 0u);
    EXPECT_LE(placement.offset[i] + lives[i].bytes.value, placement.zone_bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = lives[i].life.begin < lives[j].life.end && lives[j].life.begin < lives[i].life.end;
      if (!together) continue;
      ASSERT_FALSE(overlap(placement.offset[i], lives[i].bytes.value, placement.offset[j], lives[j].bytes.value))
          << "tensors " << j << " and " << i << " live at once at the same place";
    }
  }
}

// Chunk-time: chunks times how long somebody lives in them, and the same if each tensor had chunks of its own.
std::pair<std::uint64_t, std::uint64_t> chunk_time(const std::vector<Lifetime>& lives, const Placement& placement) {
  std::uint64_t alone = 0, events = 0;
  for (const Lifetime& l : lives) {
    alone += (l.bytes.value + chunk.value - 1) / chunk.value * (l.life.end - l.life.begin);
    events = std::max<std::uint64_t>(events, l.life.end);
  }
  std::uint64_t packed = 0;
  for (std::uint32_t t = 0; t < events; ++t) {
    std::vector<bool> used(placement.zone_bytes / chunk.value);
    for (std::size_t i = 0; i < lives.size(); ++i)
      if (lives[i].life.begin <= t && t < lives[i].life.end)
        for (std::uint64_t c = placement.offset[i] / chunk.value;
             c * chunk.value < placement.offset[i] + lives[i].bytes.value; ++c)
          used[c] = true;
    packed += static_cast<std::uint64_t>(std::count(used.begin(), used.end(), true));
  }
  return {packed, alone};
}

TEST(Coallocate, PlacesNothingInNoRoom) {
  const Placement none = coallocate({}, chunk);
  EXPECT_TRUE(none.offset.empty());
  EXPECT_EQ(none.zone_bytes, 0u);
}

TEST(Coallocate, BearsATensorWhereOneOfItsSizeHasJustDied) {
  const std::vector<Lifetime> lives{{128_KiB, {1, 2}}, {64_KiB, {3, 4}}, {128_KiB, {5, 6}}};
  const Placement placement = coallocate(lives, chunk);
  EXPECT_EQ(placement.offset[2], placement.offset[0]);
  EXPECT_EQ(placement.zone_bytes, (128_KiB + 64_KiB).value);
}

TEST(Coallocate, PacksSmallOnesThatLiveTogetherIntoOneChunk) {
  const std::vector<Lifetime> lives{{16_KiB, {1, 9}}, {16_KiB, {2, 10}}, {16_KiB, {3, 11}}, {16_KiB, {4, 12}}};
  EXPECT_EQ(coallocate(lives, chunk).zone_bytes, chunk.value);
}

TEST(Coallocate, KeepsLivesThatDoNotMeetApart) {
  // Sharing would keep the chunk while nobody lives in it.
  const std::vector<Lifetime> lives{{40_KiB, {1, 100}}, {20_KiB, {300, 400}}};
  const Placement placement = coallocate(lives, chunk);
  EXPECT_EQ(placement.offset[1] % chunk.value, 0u);  // a chunk of its own, at the place that the first one has left
  EXPECT_EQ(placement.zone_bytes, chunk.value);
}

TEST(Coallocate, LeavesRoomBesideWhatLivesLongToWhatLivesAsLong) {
  // Backward: each op makes scratch as large as the gradient that it then leaves to the optimizer, four chunks and a
  // half.
  constexpr Bytes size{9 * chunk.value / 2};
  std::vector<Lifetime> lives;
  for (std::uint32_t op = 0; op < 4; ++op) {
    lives.push_back({size, {10 * op + 1, 10 * op + 3}});
    lives.push_back({size, {10 * op + 2, 100 + op}});
  }
  const Placement placement = coallocate(lives, chunk);
  expect_sound(lives, placement);
  std::set<std::uint64_t> at_the_end;  // chunks
  for (std::size_t i = 1; i < lives.size(); i += 2)
    for (std::uint64_t c = placement.offset[i] / chunk.value; c * chunk.value < placement.offset[i] + size.value; ++c)
      at_the_end.insert(c);
  EXPECT_EQ(at_the_end.size(), 18U) << "gradients lie end to end";
}

TEST(Coallocate, NeverPutsTwoLivingTensorsAtOnePlace) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const auto lives = random_lives(seed, 200);
    expect_sound(lives, coallocate(lives, chunk));
  }
}

TEST(Coallocate, WastesLessThanChunksOfTheirOwn) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto lives = random_lives(seed, 200);
    const auto [packed, alone] = chunk_time(lives, coallocate(lives, chunk));
    EXPECT_LE(packed, alone) << seed;
  }
}

TEST(Coallocate, IsDeterministic) {
  const auto lives = random_lives(7, 300);
  const Placement first = coallocate(lives, chunk), second = coallocate(lives, chunk);
  EXPECT_EQ(first.offset, second.offset);
}

}  // namespace
}  // namespace vedette::coallocate_test
