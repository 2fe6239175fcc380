// Sessions over a second NUMA node: its memory is used, the near one's budget kept, every byte right; and where it is
// full an allocation is refused in a sentence and training goes on. They run where there are two nodes (tests/guest).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "session/loop.h"
#include "support/two_nodes.h"

namespace vedette::numa_session_test {
namespace {

using namespace vedette::testing;
using ::testing::HasSubstr;

// Small: an emulated machine is slow, beside other work many times as slow again.
constexpr Bytes chunk = 64_KiB, budget = 1280_KiB;
constexpr std::size_t layers = 5, words_bytes = 200'000;

std::unique_ptr<Session> open(const std::string& fast, const std::string& slow, Bytes of = budget) {
  return Session::open({.fast_memory = of, .fast = fast, .slow = slow, .chunk = chunk}).value();
}

Outcome run(const std::string& fast, const std::string& slow) {
  Outcome outcome;
  const auto session = open(fast, slow);
  Loop loop(*session, layers, words_bytes);
  for (std::uint64_t step = 0; step < 6; ++step) outcome.losses.push_back(loop.step(step));
  outcome.state = loop.state();
  outcome.counters = session->counters();
  return outcome;
}

const Outcome& plain() {
  static const Outcome outcome = run("dram", "host");
  return outcome;
}

std::string near_name() { return "numa:" + std::to_string(near_node.value); }
std::string far_name(NodeIndex far) { return "numa:" + std::to_string(far.value); }

TEST(NumaSession, FastMemoryOfANodeGivesTheSameBytes) {
  const Mapping probe = Mapping::reserve(2_MiB, 2_MiB).value();
  if (const auto able = prefer_node(probe.data(), 2_MiB, near_node); !able) GTEST_SKIP() << able.error().message;
  EXPECT_EQ(run(near_name(), "host"), plain());
}

TEST(NumaSession, AFastNodeThatIsNotThereIsRefused) {
  for (const char* const fast : {"numa:999", "numa:", "numa:x"}) {
    const auto refused = Session::open({.fast_memory = budget, .fast = fast, .slow = "host", .chunk = chunk});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr(std::string("fast memory '") + fast + "': there is no such NUMA "));
  }
}

TEST(NumaSession, ASecondNodeIsASlowTierAlsoAboveADisk) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  const Outcome& expected = plain();
  const std::string disk = "+nvme:" + std::filesystem::current_path().string();
  for (const std::string& slow :
       {far_name(*far), far_name(*far) + ":64MiB", far_name(*far) + disk, far_name(*far) + ":2MiB" + disk}) {
    const Outcome outcome = run(near_name(), slow);
    EXPECT_EQ(outcome, expected) << slow;
    EXPECT_GT(outcome.counters.bytes_out.value, 0u) << slow;
    EXPECT_LE(outcome.counters.resident_max_bytes.value, budget.value) << slow;
  }
}

// Asked of the kernel: frames page by page, slots by the mappings that are bound.
TEST(NumaSession, PagesLieWhereTheyShould) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  const auto session = open(near_name(), far_name(*far));
  Loop loop(*session, layers, words_bytes);
  for (std::uint64_t step = 0; step < 4; ++step) loop.step(step);
  const auto slots = pages_with_policy("bind:" + std::to_string(far->value));
  EXPECT_GT(slots.count(static_cast<int>(far->value)) ? slots.at(static_cast<int>(far->value)) : 0, 0u);
  EXPECT_EQ(slots.size(), 1u) << "slots lie in other nodes, too";
  const auto frames = pages_with_policy("prefer:" + std::to_string(near_node.value));
  EXPECT_GT(frames.count(0) ? frames.at(0) : 0, 0u);
  EXPECT_LE(frames.count(0) ? frames.at(0) : 0, budget.value / 4096);
  const bool in_place = session->counters().bytes_in_place.value > 0;
  EXPECT_LE(frames.size(), in_place ? 2u : 1u) << "frames lie in other nodes, too";
  Block block(*session, words_bytes);
  block.fill(1);
  const auto pages = pages_by_node(reinterpret_cast<const std::byte*>(block.address()), Bytes{words_bytes});
  EXPECT_FALSE(pages.contains(static_cast<int>(far->value)));
}

// How many pages of the arena lie in the node, at tensors' own addresses.
std::size_t pages_of_the_arena(NodeIndex node) {
  std::ifstream maps("/proc/self/numa_maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!Session::owns(reinterpret_cast<const void*>(std::stoull(line, nullptr, 16)))) continue;
    const std::string here = " N" + std::to_string(node.value) + "=";
    if (const std::size_t at = line.find(here); at != line.npos) count += std::stoull(line.substr(at + here.size()));
  }
  return count;
}

// Asked of the kernel at each op of the last steps: what the plan leaves in place lies in the far node.
TEST(NumaSession, OperandsInPlaceLieInTheFarNode) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  for (const char* const policy : {"vedette", "sentinel"}) {
    SCOPED_TRACE(policy);
    Outcome outcomes[2];
    for (const bool tight : {false, true}) {
      const Bytes of = tight ? Bytes{3_MiB} : Bytes{64_MiB};
      const auto session = Session::open(
          {.fast_memory = of, .fast = near_name(), .slow = far_name(*far), .policy = policy, .chunk = chunk});
      ASSERT_TRUE(session) << session.error().message;
      Loop loop(**session, 8, 300'000);
      std::size_t most_far = 0, most_near = 0;
      for (std::uint64_t step = 0; step < 12; ++step) {
        if (step == 8)
          loop.in_op = [&](std::size_t) {
            most_far = std::max(most_far, pages_of_the_arena(*far));
            most_near = std::max(most_near, pages_of_the_arena(near_node));
          };
        outcomes[tight].losses.push_back(loop.step(step));
      }
      outcomes[tight].state = loop.state();
      const Counters counters = (*session)->counters();
      EXPECT_EQ(counters.bytes_in_place.value > 0, tight);
      EXPECT_EQ(most_far > 0, tight);
      EXPECT_LE(most_near, of.value / 4096);
      EXPECT_LE(counters.resident_max_bytes.value, of.value);
      std::printf("%s: %zu pages near at most, %zu far in place; %llu MiB used there, %llu MiB fetched\n", policy,
                  most_near, most_far, static_cast<unsigned long long>(counters.bytes_in_place.value >> 20),
                  static_cast<unsigned long long>(counters.bytes_in.value >> 20));
    }
    EXPECT_EQ(outcomes[0], outcomes[1]);
  }
}

// The node is filled by another program while the session trains.
TEST(NumaSession, AFullNodeIsASentenceAndTrainingGoesOn) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  if (!may_be_filled(*far)) GTEST_SKIP() << "NUMA node " << far->value << " is large, and the test would fill it";
  const Outcome& expected = plain();
  EXPECT_TRUE(in_a_child([&] {
    const auto session = open(near_name(), far_name(*far));
    Loop loop(*session, layers, words_bytes);
    Outcome outcome;
    for (std::uint64_t step = 0; step < 3; ++step) outcome.losses.push_back(loop.step(step));
    const Hog other(*far, 8_MiB);
    std::vector<std::byte*> more;
    std::string sentence;
    while (sentence.empty() && more.size() < 200) {
      const auto memory = session->allocate({.bytes = 1_MiB});
      if (memory) {
        more.push_back(*memory);
        std::fill_n(more.back(), (1_MiB).value, std::byte{3});
      } else {
        sentence = memory.error().message;
      }
    }
    std::printf("the other program holds %llu MiB; %zu MiB more were allocated, then: %s\n",
                static_cast<unsigned long long>(other.held().value >> 20), more.size(), sentence.c_str());
    std::fflush(stdout);
    bool right = sentence.find("NUMA node " + std::to_string(far->value) + " has no more memory free") == 0;
    for (std::byte* const memory : more) {
      right = right && std::count(memory, memory + (1_MiB).value, std::byte{3}) == (1_MiB).value;
      Session::release(memory);
    }
    for (std::uint64_t step = 3; step < 6; ++step) outcome.losses.push_back(loop.step(step));
    outcome.state = loop.state();
    return right && outcome == expected;
  }));
}

// With a disk below, what the node has no room for goes there.
TEST(NumaSession, ANodeThatFillsUpLeavesTheRestToTheDisk) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  if (!may_be_filled(*far)) GTEST_SKIP() << "NUMA node " << far->value << " is large, and the test would fill it";
  const Outcome& expected = plain();
  const std::string slow = far_name(*far) + "+nvme:" + std::filesystem::current_path().string();
  EXPECT_TRUE(in_a_child([&] {
    const auto session = open(near_name(), slow);
    const Hog other(*far, 2_MiB);
    Loop loop(*session, layers, words_bytes);
    std::vector<Block> more;
    for (std::uint64_t i = 0; i < 16; ++i) {
      more.emplace_back(*session, (1_MiB).value);
      more.back().fill(i);
    }
    Outcome outcome;
    for (std::uint64_t step = 0; step < 6; ++step) outcome.losses.push_back(loop.step(step));
    outcome.state = loop.state();
    std::uint64_t right = 0;
    for (std::uint64_t i = 0; i < more.size(); ++i) right += more[i].holds(i) ? 1 : 0;
    const Counters counters = session->counters();
    std::printf(
        "the other program holds %llu MiB; to the node and on %llu bytes, to the disk %llu; %llu of %zu right\n",
        static_cast<unsigned long long>(other.held().value >> 20),
        static_cast<unsigned long long>(counters.bytes_out.value),
        static_cast<unsigned long long>(counters.far_bytes_out.value), static_cast<unsigned long long>(right),
        more.size());
    std::fflush(stdout);
    return right == more.size() && counters.far_bytes_out.value > 0 && outcome == expected;
  }));
}

TEST(NumaSession, ANodeThatIsFullFromTheStartIsRefusedInASentence) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  const auto same =
      Session::open({.fast_memory = budget, .fast = far_name(*far), .slow = far_name(*far), .chunk = chunk});
  ASSERT_FALSE(same);
  EXPECT_THAT(same.error().message, HasSubstr("fast memory is of that node, too"));
  const auto small = Session::open({.fast_memory = budget, .slow = far_name(*far) + ":64KiB+nvme:.", .chunk = chunk});
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, HasSubstr("give it a larger size"));
}

}  // namespace
}  // namespace vedette::numa_session_test
