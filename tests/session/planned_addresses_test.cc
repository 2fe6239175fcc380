// Addresses that are given out again: a plan's, where a tensor outlived what the profile saw, and those of the dead.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "session/core.h"
#include "session/idle_executor.h"
#include "session/loop.h"

namespace vedette::planned_addresses_test {
namespace {

using testing::Block;
using testing::open_session;

constexpr std::size_t large = 200'000, third = 85'000;  // four chunks, and three that share four

struct Step {
  Block kept;
  std::vector<const void*> after;  // of the three that come after it
};

// One large tensor, and when it is dead three smaller ones. `keep`: it lives on instead.
Step run(Session& session, bool keep, std::uint64_t mark) {
  Step ran;
  const auto step = session.step();
  {
    const auto op = session.op("large", {}, {});
    ran.kept = Block(session, large);
    ran.kept.fill(mark);
  }
  {
    const auto op = session.op("between", {}, {});
    EXPECT_TRUE(ran.kept.holds(mark));
    if (!keep) ran.kept.drop();
  }
  std::vector<Block> three;
  {
    const auto op = session.op("three", {}, {});
    for (std::uint64_t t = 0; t < 3; ++t) {
      three.emplace_back(session, third);
      ran.after.push_back(three.back().address());
      three.back().fill(mark + t);
    }
  }
  const auto op = session.op("end", {}, {});
  for (std::uint64_t t = 0; t < 3; ++t) EXPECT_TRUE(three[t].holds(mark + t));
  return ran;
}

TEST(PlannedAddresses, AreNotGivenOutWhereATensorOutlivedTheProfile) {
  const auto session = open_session(4_MiB, "host", "vedette");
  for (std::uint64_t s = 0; s < 4; ++s) run(*session, false, 10 * s);
  EXPECT_EQ(session->phase(), "planned");
  Step outlived = run(*session, true, 50);
  const auto* const begin = static_cast<const std::byte*>(outlived.kept.address());
  const auto overlaps = [&](const void* address) {
    const auto* const at = static_cast<const std::byte*>(address);
    return at + third > begin && at < begin + large;
  };
  for (const std::uint64_t mark : {60u, 70u}) {
    for (const void* const address : run(*session, false, mark).after)
      EXPECT_FALSE(overlaps(address)) << "a place inside a living tensor";
    EXPECT_TRUE(outlived.kept.holds(50)) << "its bytes were given to another tensor";
  }
  outlived.kept.drop();
  const Step usual = run(*session, false, 80);
  EXPECT_EQ(std::count_if(usual.after.begin(), usual.after.end(), overlaps), 3)
      << "the plan lays the three elsewhere, so this test sees nothing";
}

// Gradients that end between forward and backward of the next step: activations share the heap with them while the
// step is profiled, and lie in the plan's zone afterwards.
TEST(PlannedAddresses, OfWhatOutlivesItsStepAreThoseOfThePlan) {
  constexpr std::size_t layers = 4, gradient = 85'000;
  const auto session = open_session(4_MiB, "host", "vedette");
  std::vector<Block> gradients;
  std::vector<std::vector<const void*>> addresses;
  for (std::uint64_t s = 0; s < 8; ++s) {
    const auto step = session->step();
    std::vector<Block> activations;
    for (std::size_t l = 0; l < layers; ++l) {
      const auto op = session->op("forward", {}, {});
      activations.emplace_back(*session, third + l);
      activations.back().fill(l);
    }
    for (std::size_t l = 0; l < gradients.size(); ++l) EXPECT_TRUE(gradients[l].holds(100 * (s - 1) + l));
    gradients.clear();
    addresses.emplace_back();
    for (std::size_t l = 0; l < layers; ++l) {
      const auto op = session->op("backward", {}, {});
      gradients.emplace_back(*session, gradient);
      gradients.back().fill(100 * s + l);
      addresses.back().push_back(gradients.back().address());
    }
  }
  EXPECT_EQ(session->phase(), "planned");
  constexpr std::size_t profiled = 1;
  for (std::size_t s = profiled + 1; s < addresses.size(); ++s) EXPECT_EQ(addresses[s], addresses[profiled]) << s;
}

// An executor without memory: while a chunk dies, another thread asks for as much as has died.
class Dying final : public testing::IdleExecutor {
 public:
  Result<void> born(ChunkRange chunks, Bytes) override {
    latest = chunks;
    return {};
  }
  void died(ChunkRange chunks) noexcept override {
    if (!on_death) return;
    const auto ask = std::exchange(on_death, {});
    answer = std::async(std::launch::async, ask);
    early = answer.wait_for(std::chrono::milliseconds(200)) == std::future_status::ready && latest == chunks;
  }

  std::function<std::byte*()> on_death;
  std::future<std::byte*> answer;
  ChunkRange latest;   // that was born
  bool early = false;  // the dying chunks' address was given out before they were dead
};

class AddressesOfTheDead : public ::testing::TestWithParam<std::size_t> {};

TEST_P(AddressesOfTheDead, AreGivenOutWhenTheirChunksAreDead) {
  constexpr Bytes chunk = 64_KiB;
  detail::SessionCore core({.fast_memory = 1_MiB, .slow = "host", .policy = "on-demand", .chunk = chunk},
                           Mapping::reserve({64 * chunk.value}, chunk).value());
  auto executor = std::make_unique<Dying>();
  Dying& dying = *executor;
  core.start({.executor = std::move(executor), .machine = {}, .frames = 16});
  const std::size_t bytes = GetParam();
  std::byte* const first = core.memory().allocate({.bytes = {bytes}}).value();
  dying.on_death = [&] { return core.memory().allocate({.bytes = chunk}).value(); };
  core.release(first);
  EXPECT_FALSE(dying.early);
  std::byte* const next = dying.answer.get();
  EXPECT_EQ(core.arena().chunks_of(core.arena().offset_of(next), 1),
            core.arena().chunks_of(core.arena().offset_of(first), 1))
      << "the place of the dead is used again, or this test would see nothing";
  core.release(next);
}
INSTANTIATE_TEST_SUITE_P(Sizes, AddressesOfTheDead, ::testing::Values((64_KiB).value, 100));

}  // namespace
}  // namespace vedette::planned_addresses_test
