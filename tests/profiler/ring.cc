// The ring: order, fullness, and two threads at it.
#include "profiler/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace vedette::ring_test {
namespace {

using ::testing::ElementsAre;

std::vector<int> drained(Ring<int>& ring) {
  std::vector<int> out;
  ring.drain([&](int value) { out.push_back(value); });
  return out;
}

TEST(Ring, GivesBackWhatWasPushedInOrder) {
  Ring<int> ring(4);
  for (int value : {1, 2, 3}) EXPECT_TRUE(ring.push(value));
  EXPECT_THAT(drained(ring), ElementsAre(1, 2, 3));
  EXPECT_THAT(drained(ring), ElementsAre());
}

TEST(Ring, RefusesWhatDoesNotFitAndKeepsWhatDid) {
  Ring<int> ring(3);  // rounded up to 4
  for (int value : {1, 2, 3, 4}) EXPECT_TRUE(ring.push(value));
  EXPECT_FALSE(ring.push(5));
  EXPECT_THAT(drained(ring), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(ring.push(6));
  EXPECT_THAT(drained(ring), ElementsAre(6));
}

TEST(Ring, LosesNothingBetweenTwoThreads) {
  constexpr std::uint64_t count = 200000;
  Ring<std::uint64_t> ring(64);
  std::jthread producer([&ring] {
    for (std::uint64_t value = 0; value < count;) {
      if (ring.push(value))
        ++value;
      else
        std::this_thread::yield();
    }
  });
  std::uint64_t expected = 0;
  bool in_order = true;
  while (expected < count) {
    ring.drain([&](std::uint64_t value) { in_order = in_order && value == expected++; });
    std::this_thread::yield();
  }
  EXPECT_TRUE(in_order);
}

}  // namespace
}  // namespace vedette::ring_test
