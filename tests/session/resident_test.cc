// What is resident follows what is used, and what outlives its session keeps no more than it fills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <thread>

#include "session/loop.h"
#include "support/sanitized.h"
#include "support/store_file.h"

namespace vedette::resident_test {
namespace {

using testing::Block;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Loop;
using testing::open_session;

constexpr Bytes beside = 48_MiB;  // books, threads, the log of a step; frames ahead of need

Bytes resident() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  return {pages * 4096};
}

Bytes above(Bytes before) { return resident() - std::min(resident(), before); }

TEST(Resident, FollowsWhatAProgramUses) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer keeps freed memory resident";
  constexpr Bytes budget = 1_GiB;
  const Bytes before = resident();
  std::vector<std::string> messages;
  const auto session = open_session(budget, "host", "vedette", 2_MiB, nullptr, &messages);
  EXPECT_LE(above(before), beside + 32_MiB) << "a session that nobody uses";  // 32 MiB: frames that are measured
  Loop loop(*session, 2, 1 << 20);
  for (std::uint64_t s = 0; s < 6; ++s) loop.step(s);
  EXPECT_LE(above(before), beside + 64_MiB) << "12 MiB are used";
  EXPECT_THAT(messages, ::testing::Each(::testing::StartsWith("all of a step fits")))
      << "the profiled step saw every page";
  std::vector<Block> blocks;
  for (std::uint64_t b = 0; b < 24; ++b) {
    blocks.emplace_back(*session, 32 << 20, true);
    blocks.back().fill(b);
  }
  EXPECT_GE(above(before), 768_MiB);
  EXPECT_LE(above(before), budget + beside);
  for (std::uint64_t b = 24; b < 40; ++b) {
    blocks.emplace_back(*session, 32 << 20, true);
    blocks.back().fill(b);
  }
  EXPECT_LE(above(before), budget + beside + Bytes{300_MiB}) << "1.25 GiB live, some of it in a slow tier of memory";
  EXPECT_LE(session->counters().resident_max_bytes.value, budget.value);
  for (std::uint64_t b = 0; b < blocks.size(); ++b) EXPECT_TRUE(blocks[b].holds(b)) << b;
}

// 768 MiB are needed, then 12 MiB for many steps, then 768 MiB again.
TEST(Resident, FallsWhenTheNeedFalls) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer keeps freed memory resident";
  constexpr auto most = std::chrono::seconds(60);
  constexpr Bytes all = 768_MiB;
  const Bytes before = resident();
  const auto session = open_session(1_GiB, "host", "vedette", 2_MiB);
  Loop loop(*session, 2, 1 << 20);
  std::uint64_t steps = 0;
  const auto need_much = [&] {
    std::vector<Block> blocks;
    for (std::uint64_t b = 0; b < 24; ++b) {
      blocks.emplace_back(*session, 32 << 20, true);
      blocks.back().fill(b);
    }
    EXPECT_GE(above(before), all);
    for (std::uint64_t b = 0; b < 24; ++b) EXPECT_TRUE(blocks[b].holds(b)) << b;
  };
  for (; steps < 6; ++steps) loop.step(steps);
  need_much();
  const auto began = std::chrono::steady_clock::now();
  while (above(before) > beside + 64_MiB && std::chrono::steady_clock::now() - began < most) {
    loop.step(steps++);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(above(before), beside + 64_MiB) << "12 MiB are used";
  const Counters small = session->counters();
  EXPECT_EQ(small.faults, 0u);
  EXPECT_EQ(small.bytes_in.value, 0u);
  need_much();
  loop.step(steps);
  EXPECT_EQ(session->counters().bytes_out.value, small.bytes_out.value);
  EXPECT_EQ(session->counters().faults, 0u);
}

// A guard inside the function that trains an epoch; something of every epoch is kept.
TEST(Resident, SixSessionsInTurnKeepOneBudget) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer keeps freed memory resident";
  constexpr Bytes budget = 128_MiB;
  const Bytes before = resident();
  std::vector<Block> kept;
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
    {
      const auto session = open_session(budget, "nvme:.", "vedette", 2_MiB);
      Loop loop(*session, 6, 8 << 20);
      for (std::uint64_t s = 0; s < 4; ++s) loop.step(s);
      kept.emplace_back(*session, 3 << 20, true);
      kept.back().fill(epoch);
      EXPECT_LE(above(before), budget + beside) << "in epoch " << epoch;
    }
    EXPECT_LE(above(before), beside + Bytes{(epoch + 1) << 24}) << "after epoch " << epoch;
  }
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) EXPECT_TRUE(kept[epoch].holds(epoch)) << epoch;
  kept.clear();
  EXPECT_LE(above(before), beside);
}

TEST(Resident, TensorsOfEarlierSessionsKeepHalfOfTheBudgetAtMostAndAllTheirBytes) {
  constexpr Bytes budget = 4_MiB;
  constexpr std::size_t count = 40, bytes = 150'000;  // 5.7 MiB
  std::vector<Block> kept;
  {
    const auto session = open_session(budget, "host", "vedette");
    for (std::uint64_t b = 0; b < count; ++b) {
      kept.emplace_back(*session, bytes, true);
      kept.back().fill(b);
    }
  }
  std::vector<std::string> messages;
  const auto session = open_session(budget, "host", "vedette", 64_KiB, nullptr, &messages);
  EXPECT_THAT(messages, ElementsAre(HasSubstr("keep 2.0 MiB of fast memory, so this one has 2.0 MiB of 4.0 MiB")));
  Loop loop(*session, 8, 200'000);
  for (std::uint64_t s = 0; s < 5; ++s) loop.step(s);
  EXPECT_LE(session->counters().resident_max_bytes.value, budget.value / 2);
  for (std::uint64_t b = 0; b < count; ++b) EXPECT_TRUE(kept[b].holds(b)) << b;
  for (Block& block : kept) block.fill(7);
  for (const Block& block : kept) EXPECT_TRUE(block.holds(7));
}

// Slots belong to chunks that are away, not to addresses: tensors of ever new sizes get ever new addresses.
TEST(Resident, TheFileOfTheSlowTierFollowsWhatLivesAndNotAddresses) {
  constexpr Bytes budget = 4_MiB, alive = 20_MiB, file_grows_by = 256_MiB;
  const auto session = open_session(budget, "nvme:.", "vedette");
  const auto on_disk = [] {
    struct stat file {};
    EXPECT_EQ(::fstat(testing::store_file(), &file), 0);
    return Bytes{static_cast<std::uint64_t>(file.st_blocks) * 512};
  };
  std::deque<Block> blocks;
  Bytes living, born, most;
  std::uint64_t number = 0;
  for (; born.value < 3 * file_grows_by.value; ++number) {
    const Bytes bytes{200'000 + number * 256};
    for (; living + bytes > alive; blocks.pop_front()) living -= Bytes{blocks.front().count() * 8};
    blocks.emplace_back(*session, bytes.value, true);
    blocks.back().fill(number);
    living += bytes;
    born += bytes;
    if (number % 50 == 49) most = std::max(most, on_disk());
  }
  EXPECT_GT(session->counters().bytes_out.value, born.value / 2);
  EXPECT_LE(most, file_grows_by + 1_MiB);
  for (std::size_t k = 0; k < blocks.size(); ++k) EXPECT_TRUE(blocks[k].holds(number - blocks.size() + k)) << k;
}

}  // namespace
}  // namespace vedette::resident_test
