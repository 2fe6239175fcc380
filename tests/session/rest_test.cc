// A session rests where nothing has to move: steps are counted, and ops may go unannounced. What moves all the same is
// right, and wakes it.
#include "session/rest.h"

#include <gtest/gtest.h>

#include "session/loop.h"

namespace vedette::rest_test {
namespace {

using detail::Rest;
using testing::Block;
using testing::Loop;
using testing::open_session;

constexpr std::size_t bytes = 1 << 20;  // 16 chunks
constexpr std::size_t layers = 3;
constexpr std::uint64_t long_enough = Rest::fewest_steps + 8;  // warm-up, profile, sections, plans

bool waits_for_system_calls() {  // elsewhere a session hears all ops
  return open_session(64_MiB, "host", "vedette")->mechanism().starts_with("userfaultfd, ");
}
#define NEEDS_SYSTEM_CALLS_THAT_WAIT() \
  if (!waits_for_system_calls()) GTEST_SKIP() << "system calls fail here on memory that is away"

std::uint64_t run_until_rest(Session& session, Loop& loop, std::uint64_t number = 0) {
  const std::uint64_t most = number + 2 * Rest::most_steps;
  while (session.wants_ops() && number < most) loop.step(number++);
  return number;
}

TEST(Rest, BeginsAfterStepsThatMovedNothing) {
  Rest rest;
  rest.ask();
  for (std::uint32_t step = 0; step < Rest::fewest_steps; ++step) {
    EXPECT_FALSE(rest.rests());
    EXPECT_FALSE(rest.goes_on({}));
    rest.step_ended({}, true);
  }
  EXPECT_TRUE(rest.goes_on({}));
}

TEST(Rest, EndsWhereSomethingMovedAndBeginsLaterEachTime) {
  constexpr void (*moved[])(Counters&) = {[](Counters& now) { now.bytes_in += Bytes{1}; },
                                          [](Counters& now) { now.bytes_out += Bytes{1}; },
                                          [](Counters& now) { now.bytes_dropped += Bytes{1}; },
                                          [](Counters& now) { now.bytes_recomputed += Bytes{1}; },
                                          [](Counters& now) { ++now.faults; },
                                          [](Counters& now) { ++now.stall_count; }};
  for (const auto something : moved) {
    Rest rest;
    rest.ask();
    Counters now;
    for (std::uint32_t needed = Rest::fewest_steps; needed < 2 * Rest::most_steps; needed *= 2) {
      std::uint32_t steps = 0;
      for (; !rest.rests() && steps < 2 * needed; ++steps) rest.step_ended(now, true);
      EXPECT_EQ(steps, std::min(needed, Rest::most_steps) + (needed > Rest::fewest_steps ? 1 : 0))
          << "the first step finds what moved before";
      EXPECT_TRUE(rest.goes_on(now));
      something(now);
      EXPECT_FALSE(rest.goes_on(now));
      EXPECT_FALSE(rest.rests());
    }
  }
}

TEST(Rest, IsNotWhereNobodyAsks) {
  Rest rest;
  for (std::uint32_t step = 0; step < 2 * Rest::most_steps; ++step) rest.step_ended({}, true);
  EXPECT_FALSE(rest.rests());
}

TEST(Rest, WaitsForStepsThatAreSettled) {
  Rest rest;
  rest.ask();
  for (std::uint32_t step = 0; step < 10 * Rest::fewest_steps; ++step) rest.step_ended({}, step % 10 != 0);
  EXPECT_FALSE(rest.rests());
}

TEST(SessionAtRest, CountsStepsAndNoOps) {
  NEEDS_SYSTEM_CALLS_THAT_WAIT();
  const auto session = open_session(64_MiB, "host", "vedette");
  Loop loop(*session, layers, bytes);
  std::uint64_t step = run_until_rest(*session, loop);
  EXPECT_LE(step, long_enough);
  EXPECT_EQ(session->phase(), "planned");
  for (int i = 0; i < 5; ++i) loop.step(step++);
  EXPECT_FALSE(session->wants_ops());
  EXPECT_EQ(session->counters().steps, step);
  EXPECT_EQ(session->phase(), "planned");
  session->hear_ops();
  EXPECT_TRUE(session->wants_ops());
  run_until_rest(*session, loop, step);
  EXPECT_FALSE(session->wants_ops()) << "again";
}

// The steps that nobody announces need more than fast memory has, with all that lives beside them.
TEST(SessionAtRest, KeepsTheBytesOfStepsThatNeedMoreAndWakes) {
  NEEDS_SYSTEM_CALLS_THAT_WAIT();
  constexpr std::uint64_t more = 12, steps = Rest::fewest_steps * 4;
  struct Trained {
    std::vector<std::uint64_t> losses;
    std::uint64_t state = 0, rested_at = 0;
    bool rests = false;  // at the end
    Counters counters;
  };
  const auto train = [](Bytes budget) {
    Trained got;
    const auto session = open_session(budget, "host", "vedette");
    Loop loop(*session, layers, bytes);
    std::vector<Block> kept;
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (!session->wants_ops() && got.rested_at == 0) got.rested_at = step;
      if (step >= long_enough && kept.size() < more) {
        kept.emplace_back(*session, bytes, true);
        kept.back().fill(step);
      }
      got.losses.push_back(loop.step(step));
    }
    for (std::size_t k = 0; k < kept.size(); ++k) EXPECT_TRUE(kept[k].holds(long_enough + k));
    got.state = loop.state();
    got.rests = !session->wants_ops();
    got.counters = session->counters();
    return got;
  };
  const Trained plenty = train(256_MiB);
  EXPECT_TRUE(plenty.rests);
  const Bytes budget{plenty.counters.peak_bytes.value - more * bytes / 2};
  const Trained tight = train(budget);
  EXPECT_EQ(tight.losses, plenty.losses);
  EXPECT_EQ(tight.state, plenty.state);
  EXPECT_GT(tight.rested_at, 0u);
  EXPECT_LE(tight.rested_at, long_enough);
  EXPECT_GT(tight.counters.bytes_out.value, 0u);
  EXPECT_FALSE(tight.rests) << "memory is tight from then on";
  EXPECT_LE(tight.counters.resident_max_bytes.value, budget.value);
  EXPECT_EQ(tight.counters.steps, steps);
}

TEST(SessionAtRest, IsNotWhereMemoryIsTight) {
  const auto session = open_session(4_MiB, "host", "vedette");
  Loop loop(*session, layers, bytes);
  for (std::uint64_t step = 0; step < 3 * Rest::fewest_steps; ++step) {
    EXPECT_TRUE(session->wants_ops());
    loop.step(step);
  }
}

TEST(SessionAtRest, IsNotWhereSomebodyObserves) {
  Observer observer;
  const auto session = open_session(64_MiB, "host", "vedette", 64_KiB, &observer);
  Loop loop(*session, layers, bytes);
  for (std::uint64_t step = 0; step < 3 * Rest::fewest_steps; ++step) {
    EXPECT_TRUE(session->wants_ops());
    loop.step(step);
  }
}

}  // namespace
}  // namespace vedette::rest_test
