// Of plans with places the one whose steps took the least time stays, also where the policy has forgotten it.
#include <gtest/gtest.h>

#include "session/idle_executor.h"
#include "session/step_plan.h"

namespace vedette::detail {
namespace {

constexpr Bytes chunk{4096}, fast{160 * chunk.value};

// Forward makes sixteen tensors of a weight, backward reads them in the other order.
StepLog there_and_back() {
  constexpr std::uint32_t layers = 16;
  StepLog log;
  for (std::uint32_t i = 0; i < layers; ++i) {
    log.tensors.push_back({.name = "t",
                           .bytes = {16 * chunk.value},
                           .offset = i * 16 * chunk.value,
                           .birth = i + 1,
                           .death = 2 * layers - i,
                           .birth_op = i,
                           .death_op = 2 * layers - 1 - i});
    log.ops.push_back({.name = "forward", .time = {100'000}, .reads = {}, .writes = {}, .events = {i, i + 1}});
    log.ops.back().reads = {layers};
  }
  log.tensors.push_back(
      {.name = "weight", .bytes = chunk, .kind = TensorKind::weight, .offset = layers * 16 * chunk.value});
  for (std::uint32_t i = layers; i-- > 0;)
    log.ops.push_back({.name = "backward",
                       .time = {100'000},
                       .reads = {i},
                       .writes = {},
                       .events = {2 * layers - 1 - i, 2 * layers - 1 - i}});
  return log;
}

class BestPlan : public ::testing::Test {
 protected:
  BestPlan() { plan_.can_recompute(log_, std::vector<char>(log_.ops.size(), 1)); }

  // Over a slow link it pays to recompute, over a fast one to move.
  void plan(std::uint64_t bytes_per_s) {
    const Machine machine{.tiers = {{.name = "gpu", .capacity = {128 * chunk.value}, .addressable = true},
                                    {.name = "host", .capacity = {1 << 30}}},
                          .links = {{.source = {1}, .target = {0}, .bytes_per_s = bytes_per_s},
                                    {.source = {0}, .target = {1}, .bytes_per_s = bytes_per_s}},
                          .granule = chunk,
                          .can_recompute = true,
                          .whole_tensors = true};
    const Result<void> made = plan_.prepare(machine, executor_);
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_NE(plan_.places(), nullptr);
  }
  bool recomputes() const { return !plan_.plan().recomputations.empty(); }
  // A step by the plan that takes so long. True: another plan is wanted.
  bool step(std::int64_t ms) {
    const std::vector<Nanoseconds> took(log_.ops.size(), Nanoseconds{100'000}), stalls(log_.ops.size());
    return plan_.measure({.time = {ms * 1'000'000}, .stall = {}, .recomputing = {}, .times = took, .stalls = stalls},
                         {.tiers = {}, .links = {}});
  }
  void three_steps_that_recompute() {
    plan(20'000'000);
    ASSERT_TRUE(recomputes());
    for (int s = 0; s < 3; ++s) step(20);
    plan(10'000'000'000);
    ASSERT_FALSE(recomputes());
  }

  const StepLog log_ = there_and_back();
  testing::IdleExecutorWithRange executor_{fast};
  StepPlan plan_{log_, {.chunk = chunk, .policy = "vedette", .range = fast}};
};

TEST_F(BestPlan, ComesBackWhereTheNextOneTakesLonger) {
  three_steps_that_recompute();
  for (int s = 0; s < 20; ++s)
    if (step(recomputes() ? 20 : 30)) plan(10'000'000'000);
  EXPECT_TRUE(recomputes());
}

TEST_F(BestPlan, IsTheNextOneWhereThatTakesNoLonger) {
  three_steps_that_recompute();
  for (int s = 0; s < 20; ++s)
    if (step(20)) plan(10'000'000'000);
  EXPECT_FALSE(recomputes());
}

}  // namespace
}  // namespace vedette::detail
