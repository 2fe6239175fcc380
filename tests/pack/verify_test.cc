// The validator finds each kind of fault, told by plans that have only that one.
#include "pack/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pack/online_pool.h"

namespace vedette::pack::verify_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

const Problem two{.buffers = {{.life = {0, 4}, .bytes = {8}}, {.life = {3, 6}, .bytes = {8}}}, .away = {}};

TEST(Verify, AcceptsWhatTouchesButDoesNotMeet) {
  EXPECT_EQ(find_fault(two, {0, 8}, Bytes{16}), std::nullopt);
  Problem apart = two;
  apart.buffers[1].life = {4, 6};
  EXPECT_EQ(find_fault(apart, {0, 0}, Bytes{8}), std::nullopt);
}

TEST(Verify, FindsBuffersThatMeet) {
  EXPECT_THAT(find_fault(two, {0, 7}), Optional(HasSubstr("meets")));
  EXPECT_THAT(find_fault(two, {7, 0}), Optional(HasSubstr("meets")));
  EXPECT_THAT(find_fault(two, {0, 0}), Optional(HasSubstr("meets")));
}

TEST(Verify, FindsWhatIsNotAligned) {
  Problem aligned = two;
  aligned.buffers[1].alignment = 16;
  EXPECT_THAT(find_fault(aligned, {0, 8}), Optional(HasSubstr("aligned")));
}

TEST(Verify, FindsWhatTouchesTooManyChunks) {
  Problem chunked = two;
  chunked.chunk = 12;
  EXPECT_THAT(find_fault(chunked, {0, 8}), Optional(HasSubstr("chunks")));
  EXPECT_EQ(find_fault(chunked, {0, 12}), std::nullopt);
}

TEST(Verify, FindsWhatEndsAboveTheCapacity) {
  EXPECT_THAT(find_fault(two, {0, 8}, Bytes{15}), Optional(HasSubstr("capacity")));
}

TEST(Verify, FindsThatOffsetsAreMissing) { EXPECT_THAT(find_fault(two, {0}), Optional(HasSubstr("as many"))); }

TEST(Verify, LetsOthersInWhileABufferIsAwayAndNoLonger) {
  Problem away{.buffers = {{.life = {0, 10}, .bytes = {8}}, {.life = {3, 6}, .bytes = {8}}}, .away = {{0, {2, 6}}}};
  EXPECT_EQ(find_fault(away, {0, 0}), std::nullopt);
  away.buffers[1].life = {3, 7};
  EXPECT_THAT(find_fault(away, {0, 0}), Optional(HasSubstr("meets")));
}

TEST(OnlinePool, SplitsTheSmallestHoleThatIsWideEnoughAndJoinsNeighbours) {
  BestFitPool pool;
  EXPECT_EQ(pool.take(10), 0u);
  EXPECT_EQ(pool.take(4), 10u);
  EXPECT_EQ(pool.take(6), 14u);
  EXPECT_EQ(pool.take(2), 20u);
  pool.give(0, 10);
  pool.give(14, 6);
  EXPECT_EQ(pool.take(5), 14u);
  pool.give(14, 5);
  pool.give(10, 4);
  EXPECT_EQ(pool.take(20), 0u);
  EXPECT_EQ(pool.end(), 22u);
}

TEST(OnlinePool, RoundsTo512BytesAndGrowsWhereNoHoleIsWideEnough) {
  const Problem problem{
      .buffers = {{.life = {0, 2}, .bytes = {100}}, {.life = {1, 5}, .bytes = {512}}, {.life = {3, 5}, .bytes = {513}}},
      .away = {}};
  EXPECT_EQ(online_pool_peak(problem).value, 2048u);
}

}  // namespace
}  // namespace vedette::pack::verify_test
