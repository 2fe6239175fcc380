// Messages reach the program where no lock is held: a callback may ask the session whatever it likes.
#include "session/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
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
    asked += session->counters().live_bytes > 0 ? 1 : 0;
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

}  // namespace
}  // namespace vedette::messages_test
