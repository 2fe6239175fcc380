// Messages reach the program where no lock is held: a callback may ask the session whatever it likes.
#include "session/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "session/core.h"
#include "session/loop.h"
#include "session/registry.h"

namespace vedette::messages_test {
namespace {

using detail::Messages;
using testing::Block;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(Messages, ArriveInOrderWhenTheyAreDelivered) {
  std::vector<std::string> heard;
  Messages messages([&](std::string_view m) { heard.emplace_back(m); });
  messages.post("one");
  messages.post("two");
  EXPECT_TRUE(heard.empty());
  messages.deliver();
  EXPECT_EQ(heard, (std::vector<std::string>{"one", "two"}));
  messages.deliver();
  EXPECT_EQ(heard.size(), 2u);
}

TEST(Messages, PostedByTheCallbackAreDeliveredToo) {
  std::vector<std::string> heard;
  Messages* queue = nullptr;
  Messages messages([&](std::string_view m) {
    heard.emplace_back(m);
    if (heard.size() < 3) queue->post("again");
  });
  queue = &messages;
  messages.post("first");
  messages.deliver();
  EXPECT_EQ(heard, (std::vector<std::string>{"first", "again", "again"}));
}

TEST(Messages, EndWithTheSession) {
  std::vector<std::string> heard;
  Messages messages([&](std::string_view m) { heard.emplace_back(m); });
  messages.post("in time");
  messages.end();
  messages.post("too late");
  messages.deliver();
  EXPECT_EQ(heard, std::vector<std::string>{"in time"});
}

// A tensor outlives its session, and what on_message captured does not.
TEST(Messages, OfTensorsThatOutliveTheSessionAreNotTold) {
  int heard = 0;
  SessionOptions options;
  options.fast_memory = 1_MiB;
  options.chunk = 64_KiB;
  options.slow = "host";
  options.on_message = [&](std::string_view) { ++heard; };
  auto session = Session::open(options).value();
  std::byte* const tensor = session->allocate({.bytes = 4_MiB}).value();
  detail::SessionCore& core = *detail::owner_of(tensor);
  session.reset();
  heard = 0;
  core.post("of an earlier session");
  Session::release(tensor);
  EXPECT_EQ(heard, 0);
}

TEST(Messages, OfManyThreadsArriveOnceEach) {
  std::atomic<int> heard = 0;
  Messages messages([&](std::string_view) { ++heard; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        messages.post("sentence");
        messages.deliver();
      }
    });
  for (std::thread& t : threads) t.join();
  messages.deliver();
  EXPECT_EQ(heard, 2000);
}

// Every kind of sentence that a run can cause. The engine posts the one about an op larger than the budget, the session
// the one about rows of a table in large chunks, at a step's end. The third is about memory that cannot be held.
TEST(Messages, ACallbackAsksTheSession) {
  std::unique_ptr<Session> session;
  std::vector<std::string> heard;
  std::uint64_t asked = 0;
  const auto ask = [&](std::string_view sentence) {
    heard.emplace_back(sentence);
    if (session == nullptr) return;
    asked += session->counters().live_bytes.value > 0 ? 1 : 0;
    session->smallest_budget();
    EXPECT_FALSE(session->phase().empty());
    EXPECT_FALSE(session->mechanism().empty());
    EXPECT_TRUE(session->planned_steps().size() < 100);
    session->trace();
  };
  session = Session::open({.fast_memory = 8_MiB, .slow = "host", .chunk = 512_KiB, .on_message = ask}).value();
  {
    Block table(*session, 6 << 20, true), large(*session, 9 << 20, true);
    for (int s = 0; s < 4; ++s) {
      const auto step = session->step();
      const Part part{.first = table.address(), .bytes = {64}, .written = false};
      { const auto op = session->op("look up", {}, {}, std::span(&part, 1)); }
      const void* const whole[] = {large.address()};
      { const auto op = session->op("too large", whole, whole); }
    }
    const auto held = session->resident(large.address());
  }
  const auto heard_of = [&](const std::string& words) {
    return std::any_of(heard.begin(), heard.end(), [&](const auto& m) { return m.find(words) != m.npos; });
  };
  EXPECT_TRUE(heard_of("runs paged"));
  EXPECT_TRUE(heard_of("rows of tables"));
  EXPECT_TRUE(heard_of("cannot be kept in fast memory"));
  EXPECT_GE(asked, 3u);
}

// Once, and not where something has moved.
TEST(Messages, SayWhereNothingMoves) {
  for (const auto& [budget, policy, expected] :
       {std::tuple{16_MiB, "vedette", 1}, std::tuple{3_MiB, "vedette", 0}, std::tuple{3_MiB, "on-demand", 0}}) {
    int said = 0;
    const auto session = Session::open({.fast_memory = budget,
                                        .slow = "host",
                                        .policy = policy,
                                        .chunk = 64_KiB,
                                        .on_message =
                                            [&said = said](std::string_view sentence) {
                                              said += sentence.find("nothing moves") != sentence.npos ? 1 : 0;
                                            }})
                             .value();
    std::vector<Block> blocks;
    for (int b = 0; b < 5; ++b) blocks.emplace_back(*session, 1 << 20, true);
    for (int s = 0; s < 6; ++s) {
      const auto step = session->step();
      for (const Block& block : blocks) {
        const void* const reads[] = {block.address()};
        const auto op = session->op("read", reads, {});
      }
    }
    EXPECT_EQ(said, expected) << policy << " in " << budget.value;
  }
}

struct Said {
  std::vector<std::string> messages, progress;
};

// Five blocks of 1 MiB, read one after the other.
Said run_steps(Bytes budget, int steps, int ops_outside, bool any_block) {
  Said said;
  auto session = Session::open({.fast_memory = budget,
                                .slow = "host",
                                .chunk = 64_KiB,
                                .on_message = [&](std::string_view sentence) { said.messages.emplace_back(sentence); },
                                .on_progress = [&](std::string_view line) { said.progress.emplace_back(line); }})
                     .value();
  std::vector<Block> blocks;
  for (int b = 0; any_block && b < 5; ++b) blocks.emplace_back(*session, 1 << 20, true);
  const auto read_all = [&] {
    for (const Block& block : blocks) {
      const void* const reads[] = {block.address()};
      const auto op = session->op("read", reads, {});
    }
  };
  for (int o = 0; o < ops_outside; ++o) const auto op = session->op("outside", {}, {});
  for (int s = 0; s < steps; ++s) {
    const auto step = session->step();
    read_all();
  }
  blocks.clear();
  said.progress.emplace_back("end");
  session.reset();
  return said;
}

// Five blocks, of which three fit: at least two come in each step.
TEST(Messages, SayWhatTheFirstPlanMovesAndAtTheEndWhatRan) {
  const Said said = run_steps(3_MiB, 6, 0, true);
  ASSERT_EQ(said.progress.size(), 3u);
  EXPECT_THAT(
      said.progress[0],
      MatchesRegex(
          "planned at step [23]: a step needs 5.0 MiB at most, fast memory has 3.0 MiB(, [0-9.]+ [KM]iB of it for "
          "what is never moved)?; "
          "[2-5].[0-9] MiB are fetched and [2-5].[0-9] MiB evicted each step, 0 B of them written; "
          "(no stall|stalls of [0-9.]+ %) expected"));
  EXPECT_THAT(said.progress[2], MatchesRegex("6 steps: [345] planned, [0-9] predicted, [123] on demand; "
                                             "[0-9.]+ MiB fetched, [0-9.]+ [KM]?i?B written, "
                                             "stalls [0-9.]+ % of the time, [0-9]+ faults"));
}

// Each step writes five blocks of 1 MiB, of which two fit: without a bound three or more are written a step.
TEST(Session, WritesNoMoreToTheDiskThanItMay) {
  constexpr std::uint64_t bytes_per_s = 20'000'000, at_once = 384 * (64_KiB).value;
  for (const bool bounded : {false, true}) {
    const auto session = Session::open({.fast_memory = 3_MiB,
                                        .slow = "nvme:" + ::testing::TempDir(),
                                        .max_writes = bounded ? "1728GB/day" : "",
                                        .chunk = 64_KiB})
                             .value();
    std::vector<Block> blocks;
    for (int b = 0; b < 5; ++b) blocks.emplace_back(*session, 1 << 20, true);
    const auto began = std::chrono::steady_clock::now();
    for (int s = 0; s < 24; ++s) {
      const auto step = session->step();
      for (std::size_t b = 0; b < blocks.size(); ++b) {
        const void* const block[] = {blocks[b].address()};
        const auto op = session->op("write", block, block);
        std::memset(const_cast<void*>(block[0]), s + static_cast<int>(b), 1 << 20);
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const auto most = static_cast<double>(at_once) + static_cast<double>(bytes_per_s) * seconds;
    const auto written = static_cast<double>(session->counters().bytes_out.value);
    EXPECT_GT(written, 24.0 * (3 << 20) / 2) << "there is something to bound";
    if (bounded) {
      EXPECT_LE(written, most + 16 * 65'536) << seconds << " s";
    }
    for (std::size_t b = 0; b < blocks.size(); ++b)
      EXPECT_EQ(*static_cast<const unsigned char*>(blocks[b].address()), 23 + b);
  }
}

// A step of a millisecond or so that writes 3 MiB: more than a terabyte a day.
TEST(Messages, SayWhatADayOfWritesTakesOfTheDisksEndurance) {
  std::vector<std::string> progress;
  {
    const auto session = Session::open({.fast_memory = 3_MiB,
                                        .slow = "nvme:" + ::testing::TempDir(),
                                        .max_writes = "600TBW",
                                        .chunk = 64_KiB,
                                        .on_progress = [&](std::string_view line) { progress.emplace_back(line); }})
                             .value();
    std::vector<Block> blocks;
    for (int b = 0; b < 5; ++b) blocks.emplace_back(*session, 1 << 20, true);
    for (int s = 0; s < 6; ++s) {
      const auto step = session->step();
      for (const Block& each : blocks) {
        const void* const block[] = {each.address()};
        const auto op = session->op("write", block, block);
        std::memset(const_cast<void*>(block[0]), s, 1 << 20);
      }
    }
  }
  ASSERT_FALSE(progress.empty());
  EXPECT_THAT(progress.back(), MatchesRegex(".* \\([0-9.]+ [GT]B a day to the disk, [-+.0-9e]+ % of its 600 "
                                            "TBW: [0-9.]+ (days|years)\\), stalls .*"));
}

TEST(Messages, SayThatNoStepBeganAndThatNoTensorWasBorn) {
  EXPECT_THAT(run_steps(16_MiB, 0, 99, true).messages, IsEmpty());
  EXPECT_THAT(run_steps(16_MiB, 0, 100, true).messages, ElementsAre(StartsWith("no step began: nothing was planned")));
  EXPECT_THAT(run_steps(16_MiB, 0, 2000, true).messages,
              ElementsAre(StartsWith("no step has begun, and 2000 operators ran"), StartsWith("no step began")));
  EXPECT_THAT(run_steps(16_MiB, 1, 2000, true).messages, ElementsAre(StartsWith("no step has begun")));
  EXPECT_THAT(run_steps(16_MiB, 2, 0, false).messages, ElementsAre(StartsWith("no tensor was made or watched")));
  EXPECT_THAT(run_steps(16_MiB, 0, 0, false).progress, ElementsAre("end"));
}

}  // namespace
}  // namespace vedette::messages_test
