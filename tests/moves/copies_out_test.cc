// Which copies give up their places early: the oldest, and only where there is no room for all.
#include "moves/copies_out.h"

#include <gtest/gtest.h>

#include <random>

namespace vedette::detail::copies_out_test {
namespace {

using Ends = std::vector<std::uint32_t>;

TEST(CopiesOut, KeepTheirPlacesToTheEndWhereThereIsRoom) {
  const std::vector<CopyOut> copies = {{{2, 5}, {10}}, {{3, 6}, {10}}};
  const std::vector<Bytes> resident(8, Bytes{70});
  EXPECT_EQ(ends_within(copies, resident, {90}), (Ends{5, 6}));
}

TEST(CopiesOut, TheOldestGivesUpItsPlaceWhereThereIsNoRoom) {
  const std::vector<CopyOut> copies = {{{2, 6}, {10}}, {{3, 7}, {10}}};
  std::vector<Bytes> resident(8, Bytes{70});
  EXPECT_EQ(ends_within(copies, resident, {80}), (Ends{3, 7})) << "one has room";
  resident[5] = {81};
  EXPECT_EQ(ends_within(copies, resident, {80}), (Ends{3, 5})) << "none has";
}

TEST(CopiesOut, ACopyThatEndsInTheNextStepTakesRoomAtItsBeginning) {
  std::vector<CopyOut> copies = {{{6, 2}, {10}}, {{0, 3}, {10}}};
  std::vector<Bytes> resident(8, Bytes{70});
  EXPECT_EQ(ends_within(copies, resident, {90}), (Ends{2, 3}));
  EXPECT_EQ(ends_within(copies, resident, {80}), (Ends{0, 3})) << "the older one, as the next step begins";
  resident[7] = {75};
  EXPECT_EQ(ends_within(copies, resident, {80}), (Ends{7, 3})) << "before the step has ended";
}

TEST(CopiesOut, NeverTakeMoreThanTheRoomThatThereIs) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto moments = static_cast<std::uint32_t>(5 + random() % 40);
    std::vector<Bytes> resident;
    for (std::uint32_t m = 0; m < moments; ++m) resident.push_back({random() % 120});
    std::vector<CopyOut> copies;
    for (auto c = random() % 12; c > 0; --c) {
      const auto begin = static_cast<std::uint32_t>(random() % moments);
      const auto end = static_cast<std::uint32_t>((begin + 1 + random() % (moments - 1)) % moments);
      copies.push_back({{begin, end}, {1 + random() % 30}});
    }
    const Ends ends = ends_within(copies, resident, {100});
    std::vector<std::uint64_t> taken(moments);
    for (std::size_t c = 0; c < copies.size(); ++c) {
      const std::uint32_t begin = copies[c].moments.begin;
      const auto after = [&](std::uint32_t moment) { return (moment + moments - begin) % moments; };
      EXPECT_LE(after(ends[c]), after(copies[c].moments.end)) << "later than its end";
      for (std::uint32_t m = 0; m < after(ends[c]); ++m) taken[(begin + m) % moments] += copies[c].bytes.value;
    }
    for (std::uint32_t m = 0; m < moments; ++m)
      EXPECT_LE(taken[m], resident[m].value > 100 ? 0 : 100 - resident[m].value)
          << "round " << round << ", moment " << m;
  }
}

}  // namespace
}  // namespace vedette::detail::copies_out_test
