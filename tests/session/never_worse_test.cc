// Sequences of steps from printed seeds: phases that change, noise, drift, loops that vary. What an earlier step lets
// expect costs little more transfers than expecting nothing, where least recently used memory leaves, and less in all.
// In a replay, which is the same every time, it costs none of these programs more than a fiftieth of its time, unless
// moving a chunk takes much longer than computing with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "session/drawn.h"
#include "session/replay.h"
#include "support/sanitized.h"

namespace vedette::never_worse_test {
namespace {

using testing::Drawn;
using testing::LinkStore;
using testing::ReplayPlayer;
using testing::SessionPlayer;

struct Moved : Observer {
  struct Step {
    std::uint64_t bytes = 0;
    bool planned = false;
  };
  std::vector<Step> steps;

  void step_ran(std::uint64_t, std::string_view phase, std::optional<std::uint64_t>) override {
    steps.push_back({.planned = phase == "planned"});
  }
  void step_ended(std::uint64_t, Nanoseconds, const Counters& of_this_step) override {
    steps.back().bytes = of_this_step.bytes_in.value + of_this_step.bytes_out.value;
  }
  std::uint64_t in_all() const {
    return std::accumulate(steps.begin(), steps.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Step& step) { return sum + step.bytes; });
  }
};

struct Ended {
  std::uint64_t state = 0;
  Moved moved;
  // Bytes that its steps without a plan moved beyond what the same steps of `lru` moved, a tenth of that, and two
  // budgets.
  std::int64_t beyond(const Ended& lru, Bytes budget) const {
    double most = 2 * static_cast<double>(budget.value), all = 0;
    for (std::size_t s = 0; s < moved.steps.size(); ++s) {
      if (moved.steps[s].planned) continue;
      all += static_cast<double>(moved.steps[s].bytes);
      most += 1.1 * static_cast<double>(lru.moved.steps[s].bytes);
    }
    return static_cast<std::int64_t>(all - most);
  }
};

Ended run(std::uint64_t seed, Bytes budget, const std::string& policy) {
  Ended ended;
  const auto session = testing::open_session(budget, "host", policy, Bytes{Drawn::chunk}, &ended.moved);
  SessionPlayer player(*session);
  Drawn program(player, seed);
  program.run();
  ended.state = program.state();
  return ended;
}

constexpr std::uint64_t live_seeds = testing::sanitized ? 8 : 16, many_live_seeds = testing::sanitized ? 8 : 40,
                        replayed_seeds = testing::sanitized ? 8 : 80;

// Threads race, so that two runs of one program differ by up to a twelfth: a program is judged by the median of five
// where its first run is over, and by a tenth. A plan may move more than least recently used memory does: its
// search weighs time, and ops take long on a machine that does much else. The replay below bounds plans.
void expect_little_more_moved_and_less_in_all(std::uint64_t seeds) {
  std::uint64_t expected_in_all = 0, lru_in_all = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Bytes budget = Drawn::budget(seed);
    const Ended plenty = run(seed, 64_MiB, "on-demand"), lru = run(seed, budget, "on-demand");
    Ended expected = run(seed, budget, "vedette");
    EXPECT_EQ(expected.state, plenty.state);
    EXPECT_EQ(lru.state, plenty.state);
    ASSERT_EQ(expected.moved.steps.size(), lru.moved.steps.size());
    if (expected.beyond(lru, budget) > 0) {
      std::array<Ended, 5> runs = {expected};
      std::generate(runs.begin() + 1, runs.end(), [&] { return run(seed, budget, "vedette"); });
      std::sort(runs.begin(), runs.end(),
                [&](const Ended& a, const Ended& b) { return a.beyond(lru, budget) < b.beyond(lru, budget); });
      expected = runs[2];
    }
    EXPECT_LE(expected.beyond(lru, budget), 0);
    EXPECT_LE(expected.moved.in_all(), lru.moved.in_all() * 3 / 2 + 2 * budget.value);
    expected_in_all += expected.moved.in_all();
    lru_in_all += lru.moved.in_all();
  }
  ::testing::Test::RecordProperty("percent_of_least_recently_used",
                                  static_cast<int>(expected_in_all * 100 / lru_in_all));
  EXPECT_LT(expected_in_all * 100, lru_in_all * 95);
}
TEST(NeverWorse, WhatIsExpectedMovesLittleMoreThanLeastRecentlyUsedAndLessInAll) {
  expect_little_more_moved_and_less_in_all(live_seeds);
}
TEST(NeverWorse, WhatIsExpectedOfManySeedsMovesLittleMoreAndLessInAll) {
  expect_little_more_moved_and_less_in_all(many_live_seeds);
}

struct Replayed {
  double moved = 0, ns = 0;
};

Replayed replay(std::uint64_t seed, const std::string& policy, Nanoseconds computing) {
  ReplayPlayer player(Drawn::budget(seed), policy, computing);
  Drawn program(player, seed);
  program.run();
  const Counters counters = player.counters();
  const Replayed replayed{.moved = static_cast<double>(counters.bytes_in.value + counters.bytes_out.value),
                          .ns = static_cast<double>(player.time().value)};
  static_cast<void>(program.state());  // compares all bytes
  return replayed;
}

// In the replay no thread races, so each program has its bound. It is one of time: a plan may move more, beside ops
// that compute.
struct Speed {
  const char* name;
  std::int64_t moving;  // a chunk takes as long as so many ops compute with one
  double worst, in_all;
};
void PrintTo(const Speed& speed, std::ostream* out) { *out << speed.name; }

class NeverWorseInTheReplay : public ::testing::TestWithParam<Speed> {};

TEST_P(NeverWorseInTheReplay, WhatIsExpectedOrPlannedTakesHardlyLongerThanLeastRecentlyUsed) {
  Replayed expected_in_all, lru_in_all;
  double worst = 0;
  std::uint64_t worst_seed = 0;
  for (std::uint64_t seed = 1; seed <= replayed_seeds; ++seed) {
    const Nanoseconds computing{LinkStore::of_a_chunk.value / GetParam().moving};
    const Replayed lru = replay(seed, "on-demand", computing), expected = replay(seed, "vedette", computing);
    EXPECT_LE(expected.ns, lru.ns * GetParam().worst) << "seed " << seed;
    if (expected.ns / lru.ns > worst) worst = expected.ns / lru.ns, worst_seed = seed;
    expected_in_all = {.moved = expected_in_all.moved + expected.moved, .ns = expected_in_all.ns + expected.ns};
    lru_in_all = {.moved = lru_in_all.moved + lru.moved, .ns = lru_in_all.ns + lru.ns};
  }
  std::printf("of least recently used memory: time %.3f at worst (seed %lu), %.3f in all; bytes %.3f in all\n", worst,
              worst_seed, expected_in_all.ns / lru_in_all.ns, expected_in_all.moved / lru_in_all.moved);
  EXPECT_LE(expected_in_all.ns, lru_in_all.ns * GetParam().in_all);
  EXPECT_LE(expected_in_all.moved, lru_in_all.moved * 0.9);
}

INSTANTIATE_TEST_SUITE_P(Links, NeverWorseInTheReplay,
                         ::testing::Values(Speed{"as_fast_as_ops", 1, 1.02, 0.94},
                                           Speed{"four_times_slower", 4, 1.02, 0.88},
                                           Speed{"sixteen_times_slower", 16, 1.04, 0.88}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(NeverWorse, TheReplayIsTheSameEveryTime) {
  for (const std::uint64_t seed : {1u, 16u, 29u})
    for (const char* policy : {"on-demand", "vedette"}) {
      const Replayed first = replay(seed, policy, LinkStore::of_a_chunk),
                     second = replay(seed, policy, LinkStore::of_a_chunk);
      EXPECT_EQ(first.moved, second.moved);
      EXPECT_EQ(first.ns, second.ns);
    }
}

}  // namespace
}  // namespace vedette::never_worse_test
