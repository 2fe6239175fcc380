// Of plans with places the one whose steps took the least time stays, also where the policy has forgotten it. And a
// policy hears what steps should wait for their places.
#include <gtest/gtest.h>

#include "moves/place_waits.h"
#include "moves/planned_places.h"
#include "session/idle_executor.h"
#include "session/step_plan.h"

namespace vedette::detail::best_plan_test {
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

// As there_and_back(), in sizes that leave holes.
StepLog of_unlike_sizes() {
  StepLog log = there_and_back();
  std::uint64_t end = 0;
  for (std::uint32_t t = 0; t < log.tensors.size(); ++t) {
    if (log.tensors[t].kind != TensorKind::weight) log.tensors[t].bytes = {(t % 3 == 0 ? 20 : 7) * chunk.value};
    log.tensors[t].offset = end;
    end += log.tensors[t].bytes.value;
  }
  return log;
}

class WaitsForPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(plan_.prepare(machine_, executor_));
    const TensorUnits step = tensor_units(log_, chunk);
    MoveTable parts = tabulate(step.units, plan_.plan(), chunk, Fetches::as_planned);
    const auto places = arrange({step.units, step.moments}, plan_.plan(), parts, executor_.places);
    ASSERT_TRUE(places);
    computes_ = {static_cast<std::int64_t>(log_.ops.size()) * 100'000};
    reckoned_ = time_in_places({step.units, step.moments}, parts, *places, machine_).step - computes_;
    ASSERT_GT(reckoned_, Nanoseconds{});
  }
  // Of some steps, each of which waits so long.
  bool has_another_made(Nanoseconds waits) {
    const std::vector<Nanoseconds> took(log_.ops.size(), Nanoseconds{100'000}), stalls(log_.ops.size());
    bool wanted = false;
    for (int step = 0; step < 4; ++step)
      wanted =
          plan_.measure({.time = computes_ + waits, .stall = waits, .recomputing = {}, .times = took, .stalls = stalls},
                        machine_) ||
          wanted;
    return wanted;
  }

  static constexpr Bytes room_{80 * chunk.value};
  const StepLog log_ = of_unlike_sizes();
  const Machine machine_{
      .tiers = {{.name = "gpu", .capacity = room_, .addressable = true}, {.name = "host", .capacity = {1 << 30}}},
      .links = {{.source = {1}, .target = {0}, .bytes_per_s = 300'000'000},
                {.source = {0}, .target = {1}, .bytes_per_s = 300'000'000}},
      .granule = chunk,
      .whole_tensors = true};
  testing::IdleExecutorWithRange executor_{room_};
  StepPlan plan_{log_, {.chunk = chunk, .policy = "vedette", .range = room_}};
  Nanoseconds computes_, reckoned_;
};

// The policy's rehearsal, which does not know places, has half of them.
TEST_F(WaitsForPlaces, AreNoReasonToTryAnotherPlan) { EXPECT_FALSE(has_another_made(reckoned_)); }

TEST_F(WaitsForPlaces, AreOneWhereTheyAreLongerThanReckoned) {
  EXPECT_TRUE(has_another_made({reckoned_.value * 3 / 2}));
}

}  // namespace
}  // namespace vedette::detail::best_plan_test
