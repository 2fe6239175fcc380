// Fast memory that follows pressure: the rule alone, with times of its own, and a session that hears of it.
#include "session/pressure.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/fd.h"
#include "session/loop.h"

namespace vedette::detail::pressure_test {
namespace {

using testing::Loop;

constexpr Bytes wanted = 800_MiB, least = 100_MiB;
Nanoseconds seconds(double s) { return {static_cast<std::int64_t>(s * 1e9)}; }

class Rule : public ::testing::Test {
 protected:
  // What a session does with the rule's answers.
  Bytes at(double when, bool pressure, std::optional<std::int64_t> headroom = {}) {
    if (const auto next = rule_.next(
            {.now = seconds(when), .pressure = pressure, .headroom = headroom, .budget = budget_, .least = least}))
      budget_ = *next;
    return budget_;
  }
  PressureRule rule_{wanted};
  Bytes budget_ = wanted;
};

TEST_F(Rule, AnEighthGoesAtATimeAndNeverMoreThanMayGo) {
  EXPECT_EQ(at(1, false), wanted);
  EXPECT_EQ(at(2, true), 700_MiB);
  EXPECT_EQ(at(2.5, true), 700_MiB) << "the same pressure still";
  EXPECT_EQ(at(3.5, true), 600_MiB);
  for (int s = 5; s < 20; ++s) at(s, true);
  EXPECT_EQ(budget_, least);
}

TEST_F(Rule, GrowsBackWhenItHasBeenCalm) {
  at(1, true);
  EXPECT_EQ(at(5, false), 700_MiB);
  EXPECT_EQ(at(10.9, false), 700_MiB);
  EXPECT_EQ(at(11.1, false), wanted);
  EXPECT_EQ(at(100, false), wanted) << "and no more than the program wants";
}

TEST_F(Rule, WaitsTwiceAsLongWherePressureComesBack) {
  at(1, true);
  at(11.5, false);
  ASSERT_EQ(budget_, wanted);
  EXPECT_EQ(at(12, true), 700_MiB) << "at once";
  EXPECT_EQ(at(30, false), 700_MiB) << "18 of 20 seconds";
  EXPECT_EQ(at(32.5, false), wanted);
}

TEST_F(Rule, ALimitIsKeptAtOnceAndBoundsGrowth) {
  EXPECT_EQ(at(1, false, 200 << 20), wanted);
  EXPECT_EQ(at(2, false, -(100 << 20)), 684_MiB) << "what is beyond it, and some slack";
  EXPECT_EQ(at(3, false, 16 << 20), 684_MiB);
  EXPECT_EQ(at(13, false, 16 << 20), 684_MiB) << "growth would bring it back";
  EXPECT_EQ(at(14, false, 82 << 20), 734_MiB) << "as far as the limit allows";
  EXPECT_EQ(at(30, false, 500 << 20), wanted);
}

TEST_F(Rule, FollowsWhatTheProgramWants) {
  at(1, true);
  rule_.program_wants(400_MiB);
  budget_ = 400_MiB;
  EXPECT_EQ(at(30, false), 400_MiB);
  EXPECT_EQ(at(31, true), 350_MiB) << "an eighth of that";
}

TEST(FollowedPressure, MakesFastMemoryLessAndKeepsTheNumbers) {
  std::string made = ::testing::TempDir() + "vedette_follow_XXXXXX";
  const std::string folder = ::mkdtemp(made.data()), path = folder + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Fd manager{::open(path.c_str(), O_RDWR | O_NONBLOCK)};
  ASSERT_EQ(::setenv("MEMORY_PRESSURE_WATCH", path.c_str(), 1), 0);
  ASSERT_EQ(::unsetenv("MEMORY_PRESSURE_WRITE"), 0);
  std::vector<std::string> said;
  std::uint64_t state = 0;
  {
    const auto session = Session::open({.fast_memory = 16_MiB,
                                        .slow = "host",
                                        .chunk = 64_KiB,
                                        .on_message = [&](std::string_view sentence) { said.emplace_back(sentence); },
                                        .pressure = true})
                             .value();
    ::unsetenv("MEMORY_PRESSURE_WATCH");
    Loop loop(*session, 8, 500'000);
    std::uint64_t step = 0;
    for (; step < 5; ++step) loop.step(step);
    ASSERT_EQ(::write(manager.get(), "x", 1), 1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (session->budget() == 16_MiB && std::chrono::steady_clock::now() < deadline) loop.step(step++);
    EXPECT_EQ(session->budget(), 14_MiB);
    const auto answer = ask_for_size(::getpid(), 12_MiB);
    EXPECT_EQ(*answer, "fast memory is 12.0 MiB (12582912 bytes)");
    EXPECT_EQ(session->budget(), 12_MiB);
    EXPECT_NE(ask_for_size(::getpid(), 1_KiB).value().find("too small"), std::string::npos);
    for (; step < 30; ++step) loop.step(step);
    state = loop.state();
    EXPECT_EQ(std::count(said.begin(), said.end(), "memory is scarce: fast memory is 14.0 MiB now, it was 16.0 MiB"),
              1);
  }
  const auto plain = testing::open_session(64_MiB, "host", "vedette");
  Loop loop(*plain, 8, 500'000);
  for (std::uint64_t step = 0; step < 30; ++step) loop.step(step);
  EXPECT_EQ(state, loop.state());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace vedette::detail::pressure_test
