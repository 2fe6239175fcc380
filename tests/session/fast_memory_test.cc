// Fast memory of another size while the program runs. The kernel is the judge: what is resident is what was asked.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "session/kernel_memory.h"
#include "session/loop.h"

namespace vedette::fast_memory_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;
using testing::Outcome;
using testing::resident_bytes;

constexpr Bytes beside = session_overhead;  // books, rings, stacks

// About 400 MB live at the peak.
constexpr std::size_t layers = 16, bytes = 8'000'000;

Outcome run(Session& session, std::uint64_t steps) {
  Loop loop(session, layers, bytes);
  Outcome outcome;
  for (std::uint64_t s = 0; s < steps; ++s) outcome.losses.push_back(loop.step(s));
  outcome.state = loop.state();
  outcome.counters = session.counters();
  return outcome;
}

TEST(FastMemory, FollowsAnotherThreadThatChangesItAllTheTime) {
  constexpr std::uint64_t steps = 24;
  const Outcome plain = run(*open_session(416_MiB, "nvme:.", "vedette", 2_MiB), steps);
  const std::uint64_t before = resident_bytes(::getpid());
  std::vector<std::string> messages;
  const auto session = open_session(416_MiB, "nvme:.", "vedette", 2_MiB, nullptr, &messages);
  std::atomic<bool> over = false;
  std::int64_t most_over = 0;
  int changes = 0, met = 0;
  std::thread changer([&] {
    std::mt19937_64 random(7);
    for (; !over; ++changes) {
      const Bytes asked{(80 + random() % 336) << 20};
      const auto got = session->set_fast_memory(asked);
      ASSERT_TRUE(got.ok()) << got.error().message;
      met += got->holds.empty() ? 1 : 0;
      const auto here = static_cast<std::int64_t>(resident_bytes(::getpid()));
      most_over = std::max(most_over, here - static_cast<std::int64_t>(before + got->now.value));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const Outcome changed = run(*session, steps);
  over = true;
  changer.join();
  std::printf("%d changes, %d met at once, at most %.1f MiB beyond\n", changes, met,
              static_cast<double>(most_over) / (1 << 20));
  EXPECT_EQ(plain, changed);
  EXPECT_GT(changes, 20);
  EXPECT_GT(met, changes * 9 / 10);
  EXPECT_LE(most_over, static_cast<std::int64_t>(beside.value));
}

struct Plans final : Observer {
  void planned(std::uint64_t step, std::uint64_t, const Trace&, const Plan& plan) override {
    steps.push_back(step);
    moves = plan.moves.size();
  }
  void resized(Nanoseconds, Bytes budget) override { sizes.push_back(budget); }
  void step_ran(std::uint64_t, std::string_view now, std::optional<std::uint64_t>) override { phase = now; }
  std::vector<std::uint64_t> steps;
  std::vector<Bytes> sizes;
  std::string phase;
  std::size_t moves = 0;
};

// Bytes that a step moves, when plans have settled.
std::uint64_t moved_in_a_step(Session& session, Loop& loop, std::uint64_t& step) {
  constexpr int settle = 6, count = 4, longest = 100;
  for (int s = 0; s < longest && (s == 0 || session.phase() != "planned"); ++s) loop.step(step++);
  for (int s = 0; s < settle; ++s) loop.step(step++);
  const Counters then = session.counters();
  for (int s = 0; s < count; ++s) loop.step(step++);
  return (session.counters().bytes_in.value - then.bytes_in.value) / count;
}

TEST(FastMemory, HasPlansOfEachSizeAsIfItHadBeenOpenedSo) {
  constexpr std::size_t few_bytes = 2'000'000;  // of 100 MB at the peak
  constexpr Bytes chunk = 512_KiB;
  std::uint64_t step = 0, plain = 0;
  const auto moved_when_opened = [&](Bytes budget) {
    const auto session = open_session(budget, "nvme:.", "vedette", chunk);
    Loop loop(*session, layers, few_bytes);
    std::uint64_t other = 0;
    return moved_in_a_step(*session, loop, other);
  };
  const std::uint64_t small = moved_when_opened(32_MiB), large = moved_when_opened(64_MiB);
  ASSERT_GT(small, large);
  std::uint64_t state = 0;
  {
    Plans plans;
    const auto session = open_session(32_MiB, "nvme:.", "vedette", chunk, &plans);
    Loop loop(*session, layers, few_bytes);
    moved_in_a_step(*session, loop, step);
    ASSERT_EQ(session->set_fast_memory(64_MiB)->now, 64_MiB) << "more than it was opened with";
    EXPECT_EQ(session->budget(), 64_MiB);
    EXPECT_LE(moved_in_a_step(*session, loop, step), large * 120 / 100);
    EXPECT_EQ(plans.phase, "planned");
    ASSERT_EQ(session->set_fast_memory(32_MiB)->now, 32_MiB);
    const std::size_t known = plans.steps.size();
    loop.step(step++);
    EXPECT_EQ(plans.phase, "planned") << "by the plan that was kept";
    EXPECT_EQ(plans.steps.size(), known + 1);
    EXPECT_LE(moved_in_a_step(*session, loop, step), small * 120 / 100);
    ASSERT_EQ(session->set_fast_memory(16_MiB)->now, 16_MiB);
    loop.step(step++);
    EXPECT_NE(plans.phase, "planned") << "no plan is for so little";
    moved_in_a_step(*session, loop, step);
    EXPECT_EQ(plans.phase, "planned");
    EXPECT_EQ(plans.sizes, (std::vector<Bytes>{64_MiB, 32_MiB, 16_MiB}));
    state = loop.state();
  }
  const auto session = open_session(128_MiB, "nvme:.", "vedette", chunk);
  Loop loop(*session, layers, few_bytes);
  while (plain < step) loop.step(plain++);
  EXPECT_EQ(state, loop.state());
}

TEST(FastMemory, SaysWhatHoldsTheRest) {
  std::vector<std::string> messages;
  const auto session = open_session(64_MiB, "nvme:.", "vedette", 2_MiB, nullptr, &messages);
  Block block(*session, 40 << 20, true), other(*session, 20 << 20, true);
  block.fill(1);
  other.fill(2);
  {
    const auto held = session->resident(block.address());
    const auto got = session->set_fast_memory(16_MiB);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->asked, 16_MiB);
    EXPECT_GE(got->now, 40_MiB);
    EXPECT_LE(got->now, 52_MiB);
    EXPECT_NE(got->holds.find("are held there by the program"), std::string::npos) << got->holds;
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_NE(messages[0].find("16.0 MiB was asked"), std::string::npos) << messages[0];
    EXPECT_NE(messages[0].find("the rest follows as soon as it can"), std::string::npos);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (session->budget() > 16_MiB && std::chrono::steady_clock::now() < deadline) ::usleep(1000);
  EXPECT_EQ(session->budget(), 16_MiB) << "it follows";
  EXPECT_LE(session->counters().resident_bytes.value, (16_MiB).value);
  EXPECT_TRUE(block.holds(1));
  EXPECT_TRUE(other.holds(2));
}

// The op that asks for it goes on: its operands stay until it ends.
TEST(FastMemory, ShrinksInAnOpAsFarAsTheOpAllows) {
  const auto session = open_session(64_MiB, "nvme:.", "vedette", 2_MiB);
  Block block(*session, 40 << 20, true);
  block.fill(1);
  {
    const void* const reads[] = {block.address()};
    const auto step = session->step();
    {
      const auto op = session->op("read", reads, {});
      const auto got = session->set_fast_memory(16_MiB);
      EXPECT_GE(got->now, 40_MiB);
      EXPECT_NE(got->holds.find("the op that runs needs 40"), std::string::npos) << got->holds;
      EXPECT_TRUE(block.holds(1));
    }
    const auto got = session->set_fast_memory(16_MiB);
    EXPECT_EQ(got->now, 16_MiB) << got->holds;
    const auto op = session->op("read", reads, {});
    EXPECT_TRUE(block.holds(1)) << "it runs paged";
  }
  EXPECT_EQ(session->budget(), 16_MiB);
}

TEST(FastMemory, RefusesSizesThatCannotBe) {
  const auto session = open_session(64_MiB, "nvme:.", "vedette", 2_MiB);
  const auto small = session->set_fast_memory(14_MiB);
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().message.find("is too small: at least 8 chunks, 16.0 MiB"), std::string::npos)
      << small.error().message;
  const auto large = session->set_fast_memory({std::uint64_t{1} << 50});
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().message.find("more than the machine has"), std::string::npos);
  EXPECT_EQ(session->budget(), 64_MiB);
  EXPECT_EQ(Session::switched_off()->set_fast_memory(1_GiB)->now, Bytes{});
}

// Where nothing holds it: the bytes that are unchanged since they were written leave without being written again.
TEST(FastMemory, CleanMemoryIsGivenBackWithoutWriting) {
  const auto session = open_session(320_MiB, "nvme:.", "vedette", 2_MiB);
  Block block(*session, 300 << 20, true);
  block.fill(3);
  const void* const reads[] = {block.address()};
  ASSERT_EQ(session->set_fast_memory(32_MiB)->now, 32_MiB);
  ASSERT_EQ(session->set_fast_memory(320_MiB)->now, 320_MiB);
  {
    const auto op = session->op("read", reads, {});
    EXPECT_TRUE(block.holds(3));
  }
  const Counters then = session->counters();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_EQ(session->set_fast_memory(64_MiB)->now, 64_MiB);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  std::printf("256 MiB given back in %.0f ms\n", took.count());
  EXPECT_LE(session->counters().bytes_out.value, then.bytes_out.value + (32_MiB).value) << "what had never left before";
  EXPECT_TRUE(block.holds(3));
}

}  // namespace
}  // namespace vedette::fast_memory_test
