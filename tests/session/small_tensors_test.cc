// More small tensors than fast memory holds: every byte is right, and a program that has few of them waits for none.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "session/loop.h"

namespace vedette::small_tensors_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;

class Small {
 public:
  Small(Session& session, std::size_t bytes, std::uint64_t mark) : bytes_(bytes) {
    auto allocated = session.allocate({.bytes = {bytes}, .persistent = true});
    if (!allocated) throw std::runtime_error(allocated.error().message);
    memory_ = *allocated;
    fill(mark);
  }
  Small(Small&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  Small& operator=(Small&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Small() { Session::release(memory_); }

  const void* address() const { return memory_; }
  void fill(std::uint64_t mark) {
    for (std::size_t i = 0; i + 8 <= bytes_; i += 8) {
      const std::uint64_t word = mark * 1'000'003 + i;
      std::memcpy(memory_ + i, &word, 8);
    }
  }
  bool holds(std::uint64_t mark) const {
    for (std::size_t i = 0; i + 8 <= bytes_; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, memory_ + i, 8);
      if (word != mark * 1'000'003 + i) return false;
    }
    return true;
  }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

std::uint64_t wrong(const std::vector<Small>& tensors) {
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < tensors.size(); ++i) count += tensors[i].holds(i) ? 0u : 1u;
  return count;
}

struct Case {
  std::size_t bytes;
  Bytes budget, chunk;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const auto& [bytes, budget, chunk] = info.param;
  return std::to_string(bytes) + "_bytes_in_" + std::to_string(budget.value >> 20) + "_MiB_by_" +
         std::to_string(chunk.value >> 10) + "_KiB";
}

class SmallTensors : public ::testing::TestWithParam<Case> {};

TEST_P(SmallTensors, MayBeMoreThanTheBudget) {
  const auto& [bytes, budget, chunk] = GetParam();
  constexpr std::uint64_t count = 100'000;
  std::vector<std::string> messages;
  const auto session = open_session(budget, "host", "vedette", chunk, nullptr, &messages);
  std::vector<Small> tensors;
  for (std::uint64_t i = 0; i < count; ++i) tensors.emplace_back(*session, bytes, i);
  EXPECT_EQ(wrong(tensors), 0u);
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t at = random() % count;
    tensors[at] = Small(*session, bytes, at);  // another place
  }
  EXPECT_EQ(wrong(tensors), 0u);
  const Counters counters = session->counters();
  EXPECT_LE(counters.resident_max_bytes.value, budget.value);
  if (count * bytes > budget.value) {
    EXPECT_GT(counters.faults, 0u);
  }
  tensors.clear();
  EXPECT_EQ(session->counters().live_bytes.value, 0u);
  EXPECT_LE(session->counters().resident_bytes.value, budget.value / 8 + 2 * chunk.value) << "the dead keep no frames";
  for (const std::string& message : messages) ADD_FAILURE() << message;
}
INSTANTIATE_TEST_SUITE_P(Sizes, SmallTensors,
                         ::testing::Values(Case{64, 2_MiB, 16_KiB}, Case{64, 2_MiB, 64_KiB}, Case{64, 8_MiB, 64_KiB},
                                           Case{4096, 2_MiB, 64_KiB}, Case{4096, 2_MiB, 256_KiB},
                                           Case{4096, 8_MiB, 256_KiB}, Case{4096, 8_MiB, 1_MiB}),
                         name_of);

// Ops announce small tensors as they do others: what they name is there when they run, and no fault brings it.
TEST(SmallTensorsInOps, AreThereWhenTheOpRuns) {
  constexpr std::size_t bytes = 1024, count = 4'000;
  const auto session = open_session(2_MiB, "host", "on-demand");
  std::vector<Small> tensors;
  for (std::uint64_t i = 0; i < count; ++i) tensors.emplace_back(*session, bytes, i);
  const std::uint64_t before = session->counters().faults;
  for (int s = 0; s < 4; ++s) {
    const auto step = session->step();
    for (std::uint64_t i = 0; i < count; i += 97) {
      const void* reads[] = {tensors[i].address()};
      const auto op = session->op("read", reads, {});
      EXPECT_TRUE(tensors[i].holds(i));
    }
  }
  EXPECT_EQ(session->counters().faults, before);
  EXPECT_GT(session->counters().bytes_in.value, 0u);
}

TEST(SmallTensorsInOps, StayWhileTheProgramHoldsThem) {
  constexpr std::size_t bytes = 1024, count = 4'000;
  const auto session = open_session(2_MiB, "host", "on-demand");
  std::vector<Small> tensors;
  for (std::uint64_t i = 0; i < count; ++i) tensors.emplace_back(*session, bytes, i);
  const auto held = session->resident(tensors.back().address());
  EXPECT_EQ(wrong(tensors), 0u);  // everything else has passed through
  const std::uint64_t faults = session->counters().faults;
  EXPECT_TRUE(tensors.back().holds(count - 1));
  EXPECT_EQ(session->counters().faults, faults);
}

// An ordinary program: some hundred small tensors beside large ones, temporaries of both kinds in every step.
// A plan over three levels is searched for long: the program goes on without it, and its bytes are right.
TEST(ManyTensors, OverThreeLevelsNoStepWaitsForItsPlanForLong) {
  constexpr std::size_t tensors = 900, bytes = 60'000;
  const auto session = open_session(12_MiB, "host:8MiB+nvme:.", "vedette");
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < tensors; ++i) {
    blocks.emplace_back(*session, bytes, true);
    blocks.back().fill(i);
  }
  double longest = 0;
  for (int s = 0; s < 5; ++s) {
    const auto began = std::chrono::steady_clock::now();
    {
      const auto step = session->step();
      std::mt19937_64 random(1);
      for (std::size_t i = 0; i < tensors; ++i) {
        const void* const reads[] = {blocks[random() % tensors].address(), blocks[random() % tensors].address()};
        const void* const writes[] = {blocks[i].address()};
        const auto op = session->op("op", reads, writes);
        blocks[i].fill(i + static_cast<std::size_t>(s));
      }
    }
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  for (std::size_t i = 0; i < tensors; ++i) EXPECT_TRUE(blocks[i].holds(i + 4)) << i;
  RecordProperty("longest_step_s", std::to_string(longest));
  EXPECT_LT(longest, 60);
}

TEST(SmallTensorsOfALoop, NeverFaultWhereTheyAreFew) {
  std::vector<std::string> messages;
  const auto session = open_session(2_MiB, "host", "vedette", 64_KiB, nullptr, &messages);
  Loop loop(*session, 8, 200'000);
  std::vector<Small> biases;
  for (std::uint64_t i = 0; i < 100; ++i) biases.emplace_back(*session, 512, i);
  loop.in_op = [&](std::size_t op) {
    EXPECT_TRUE(biases[op % biases.size()].holds(op % biases.size()));
    std::vector<Small> passing;
    for (std::uint64_t i = 0; i < 20; ++i) passing.emplace_back(*session, 64 + 40 * i, i);
    EXPECT_EQ(wrong(passing), 0u);
  };
  for (std::uint64_t s = 0; s < 4; ++s) loop.step(s);
  const std::uint64_t before = session->counters().faults;
  for (std::uint64_t s = 4; s < 12; ++s) loop.step(s);
  EXPECT_EQ(session->counters().faults, before);
  EXPECT_GT(session->counters().bytes_in.value, 0u);
  for (const std::string& message : messages) ADD_FAILURE() << message;
}

}  // namespace
}  // namespace vedette::small_tensors_test
