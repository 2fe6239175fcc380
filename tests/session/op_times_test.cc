// Times of ops and sections, by a clock that the test turns.
#include "session/op_times.h"

#include <gtest/gtest.h>

namespace vedette::detail::op_times_test {
namespace {

constexpr Nanoseconds ns(std::int64_t value) { return {value}; }

TEST(OpTimes, AnOpHasTheTimeSinceTheLastOneAndNoStall) {
  OpTimes times;
  times.begin_step(ns(1000));
  times.begin_op(ns(1300), ns(200));  // 100 of the program, 200 waited
  EXPECT_EQ(times.count_until(ns(1500), ns(50)), ns(150));
  times.end_op(ns(1500));
  times.begin_op(ns(1510), ns(0));
  times.count_until(ns(1610), ns(0));
  ASSERT_EQ(times.times().size(), 2u);
  EXPECT_EQ(times.times()[0], ns(250));
  EXPECT_EQ(times.stalls()[0], ns(250));
  EXPECT_EQ(times.times()[1], ns(110));
  EXPECT_EQ(times.step_time(ns(2000)), ns(1000));
}

TEST(OpTimes, AreNeverNegative) {
  OpTimes times;
  times.begin_step(ns(0));
  times.begin_op(ns(10), ns(500));
  EXPECT_EQ(times.count_until(ns(20), ns(500)), ns(0));
  EXPECT_EQ(times.times()[0], ns(0));
  EXPECT_EQ(times.stalls()[0], ns(1000));
}

TEST(OpTimes, AnOpInSectionsIsTheirSum) {
  OpTimes times;
  times.begin_step(ns(0));
  times.begin_op(ns(0), ns(0));
  times.count_until(ns(30), ns(0));
  times.next_section(ns(40), ns(10));  // 10 of them waited
  times.count_until(ns(100), ns(0));
  ASSERT_EQ(times.times().size(), 2u);
  EXPECT_EQ(times.times()[1], ns(60));
  EXPECT_EQ(times.stalls()[1], ns(10));
  EXPECT_EQ(times.of_latest(2), ns(90));
  EXPECT_EQ(times.of_latest(1), ns(60));
}

TEST(OpTimes, UsualOnesReplaceSlowerOnesOfTheSameOpInOrder) {
  OpTimes times;
  const std::vector<std::uint64_t> hashes{7, 8, 7};
  std::vector<LoggedOp> usual(3), profiled(3);
  usual[0].time = ns(10), usual[1].time = ns(20), usual[2].time = ns(30);
  for (LoggedOp& op : profiled) op.time = ns(25);
  times.remember_as_usual(hashes, usual);
  times.replace_by_usual(hashes, profiled);
  EXPECT_EQ(profiled[0].time, ns(10));
  EXPECT_EQ(profiled[1].time, ns(20));
  EXPECT_EQ(profiled[2].time, ns(25)) << "faster than usual: it stays";
  times.forget_usual();
  profiled[0].time = ns(99);
  times.replace_by_usual(hashes, profiled);
  EXPECT_EQ(profiled[0].time, ns(99));
}

}  // namespace
}  // namespace vedette::detail::op_times_test
