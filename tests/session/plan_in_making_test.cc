// A plan that is made beside the program: steps go on by the plan before, and the next one comes when it is there.
#include "session/plan_in_making.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <latch>
#include <thread>

#include "base/given_up.h"
#include "base/time_limit.h"
#include "session/buckets.h"
#include "session/idle_executor.h"

namespace vedette::detail::plan_in_making_test {
namespace {

constexpr Bytes chunk = {64 << 10};
constexpr auto without_plan = PlanInMaking::Meanwhile::steps_without_plan;
constexpr auto by_plan_before = PlanInMaking::Meanwhile::steps_by_plan_before;

// Moves nothing until it is let go; then it evicts unit 0 after op 0. Once told of a step it wants another plan.
class Slow final : public Policy {
 public:
  Slow(std::latch& begun, std::latch& goes_on) : begun_(begun), goes_on_(goes_on) {}
  std::string_view name() const noexcept override { return "slow"; }
  Result<Plan> prepare(const Trace&, const Machine&) override {
    begun_.count_down();
    goes_on_.wait();
    Plan plan;
    plan.moves.push_back({.extent = {{0}, {}}, .source = {0}, .target = {1}, .verb = Verb::evict});
    return plan;
  }
  Reaction react(const Event&, const View&) override { return {.replan = true}; }

 private:
  std::latch &begun_, &goes_on_;
};

// Looks for a plan as long as one is wanted.
class Endless final : public Policy {
 public:
  std::string_view name() const noexcept override { return "endless"; }
  Result<Plan> prepare(const Trace&, const Machine&) override {
    while (!MayBeGivenUp::is_given_up()) std::this_thread::yield();
    return Plan{};
  }
};

// Looks for a better plan as long as it may.
class Thorough final : public Policy {
 public:
  std::string_view name() const noexcept override { return "thorough"; }
  Result<Plan> prepare(const Trace&, const Machine&) override {
    while (TimeLimit::exists() && !TimeLimit::is_over()) std::this_thread::yield();
    return Plan{};
  }
};

StepLog two_ops() {
  StepLog log;
  log.tensors.push_back({.name = "weight", .bytes = chunk, .kind = TensorKind::weight});
  for (int i = 0; i < 2; ++i) {
    log.ops.push_back({.name = "op", .time = {1'000'000}});
    log.ops.back().reads = {0};
  }
  return log;
}

class MadeBeside : public ::testing::Test {
 protected:
  std::unique_ptr<StepPlan::Draft> draft() {
    std::unique_ptr<StepPlan::Draft> made = plan_.begin(machine_, executor_);
    made->policy = std::make_unique<Slow>(begun_, goes_on_);
    return made;
  }
  bool measure(std::int64_t ns) {
    const std::vector<Nanoseconds> times(2, {ns}), stalls(2);
    return plan_.measure({.time = {2 * ns}, .stall = {}, .recomputing = {}, .times = times, .stalls = stalls},
                         machine_);
  }

  const Machine machine_{.tiers = {{.name = "dram", .capacity = {4 * chunk.value}, .addressable = true},
                                   {.name = "host", .capacity = {1 << 30}}},
                         .links = {{.source = {1}, .target = {0}, .bytes_per_s = 1'000'000'000},
                                   {.source = {0}, .target = {1}, .bytes_per_s = 1'000'000'000}},
                         .granule = chunk};
  std::latch begun_{1}, goes_on_{1};
  testing::IdleExecutor executor_;
  StepPlan plan_{two_ops(), {.chunk = chunk, .policy = "vedette"}};
};

TEST_F(MadeBeside, ComesWhenItIsThereAndStepsAreMeasuredMeanwhile) {
  ASSERT_TRUE(plan_.prepare(machine_, executor_));
  ASSERT_TRUE(plan_.plan().moves.empty());
  PlanInMaking making(7, draft(), without_plan);
  begun_.wait();
  EXPECT_EQ(making.bucket(), 7u);
  EXPECT_FALSE(making.is_made_soon());
  EXPECT_TRUE(plan_.has_policy());
  EXPECT_FALSE(measure(700'000)) << "the policy makes a plan: it asks for no other";
  EXPECT_EQ(plan_.least_times()[0].value, 700'000);
  goes_on_.count_down();
  while (!making.is_made_soon()) std::this_thread::yield();
  EXPECT_TRUE(plan_.plan().moves.empty()) << "not before it is taken";
  ASSERT_TRUE(plan_.finish(making.take()));
  ASSERT_EQ(plan_.plan().moves.size(), 1u);
  EXPECT_EQ(plan_.moves_at(0).departures.size(), 1u);
  EXPECT_TRUE(measure(600'000)) << "the policy is back";
}

TEST_F(MadeBeside, IsForgottenWithItsMaker) {
  goes_on_.count_down();
  { PlanInMaking making(7, draft(), without_plan); }
  EXPECT_TRUE(begun_.try_wait());
  ASSERT_TRUE(plan_.plan().moves.empty());
}

TEST_F(MadeBeside, EndsEarlyWhereNobodyWantsIt) {
  for (const bool forgotten : {true, false}) {
    std::unique_ptr<StepPlan::Draft> endless = plan_.begin(machine_, executor_);
    endless->policy = std::make_unique<Endless>();
    PlanInMaking making(7, std::move(endless), by_plan_before);
    if (forgotten) continue;
    making.give_up();
    while (!making.is_made_soon()) std::this_thread::yield();
  }
}

TEST_F(MadeBeside, ASearchEndsWhereItsPlanIsGivenUp) {
  const std::atomic<bool> given_up{true};
  const MayBeGivenUp here(given_up);
  Trace trace{.name = "step"};
  for (std::uint32_t t = 0; t < 4; ++t) {
    trace.tensors.push_back({.name = "weight", .bytes = chunk, .kind = TensorKind::weight, .persistent = true});
    trace.ops.push_back({.name = "op", .time = {1000}, .reads = {{t}}});
  }
  Machine less = machine_;
  less.tiers[0].capacity = {2 * chunk.value};
  EXPECT_FALSE(make_policy("vedette", 1)->prepare(trace, less)) << "nothing was tried";
}

TEST_F(MadeBeside, ASearchThatHasLittleTimeSaysWhetherItWasEnough) {
  for (const int ms : {0, 20}) {
    std::unique_ptr<StepPlan::Draft> thorough = plan_.begin(machine_, executor_);
    thorough->policy = std::make_unique<Thorough>();
    thorough->search_time = std::chrono::milliseconds(ms);
    PlanInMaking making(7, std::move(thorough), by_plan_before);
    while (!making.is_made_soon()) std::this_thread::yield();
    const std::unique_ptr<StepPlan::Draft> made = making.take();
    EXPECT_TRUE(made->plan);
    EXPECT_EQ(made->cut_short, ms > 0);
  }
}

TEST_F(MadeBeside, IsWaitedForOnce) {
  PlanInMaking making(7, draft(), without_plan);
  EXPECT_FALSE(making.is_made_soon());
  const auto began = std::chrono::steady_clock::now();
  for (int step = 0; step < 1000; ++step) EXPECT_FALSE(making.is_made_soon());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60)) << "a thousand waits take 200 s";
  goes_on_.count_down();
}

constexpr int many = 150;  // waits take 30 s

class ManyMadeBeside : public MadeBeside {
 protected:
  std::deque<PlanInMaking> begin(PlanInMaking::Meanwhile meanwhile) {
    std::deque<PlanInMaking> making;
    for (int plan = 0; plan < many; ++plan) {
      std::unique_ptr<StepPlan::Draft> slow = draft();
      slow->policy = std::make_unique<Slow>(all_begun_, goes_on_);
      making.emplace_back(7, std::move(slow), meanwhile);
    }
    all_begun_.wait();
    return making;
  }
  static void expect_no_wait(std::deque<PlanInMaking>& making) {
    const auto began = std::chrono::steady_clock::now();
    for (PlanInMaking& plan : making) EXPECT_FALSE(plan.is_made_soon());
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
  }

  std::latch all_begun_{many};
};

TEST_F(ManyMadeBeside, AreNotWaitedForWhereStepsHaveAPlan) {
  std::deque<PlanInMaking> making = begin(by_plan_before);
  expect_no_wait(making);
  goes_on_.count_down();
}

TEST_F(ManyMadeBeside, AreNobodysAndNotWaitedForOnceTheyAreGivenUp) {
  std::deque<PlanInMaking> making = begin(without_plan);
  for (PlanInMaking& plan : making) plan.give_up();
  expect_no_wait(making);
  for (const PlanInMaking& plan : making) EXPECT_NE(plan.bucket(), 7u);
  goes_on_.count_down();
}

// Op 0 in two sections.
TEST_F(MadeBeside, ReplacesAStepByTheSameInSections) {
  ASSERT_TRUE(plan_.prepare(machine_, executor_));
  const SectionedOp in_two{.op = 0, .sections = {{}, {}}};
  StepPlan in_sections = plan_.in_sections(cut_into_sections(two_ops(), std::span(&in_two, 1)));
  std::unique_ptr<StepPlan::Draft> its_draft = in_sections.begin(machine_, executor_);
  PlanInMaking making(7, std::move(in_sections), std::move(its_draft), without_plan);
  EXPECT_EQ(plan_.units().trace.ops.size(), 2u);
  EXPECT_TRUE(plan_.has_policy()) << "of its own";
  EXPECT_FALSE(measure(700'000)) << "it runs on";
  while (!making.is_made_soon()) std::this_thread::yield();
  ASSERT_TRUE(making.replacement());
  plan_ = *std::move(making.replacement());
  ASSERT_TRUE(plan_.finish(making.take()));
  EXPECT_EQ(plan_.units().trace.ops.size(), 3u);
  EXPECT_EQ(plan_.first_part(1), 2u);
  EXPECT_TRUE(plan_.has_policy());
  EXPECT_FALSE(measure(700'000)) << "of a step that began by the plan before";
  EXPECT_EQ(plan_.least_times().size(), 3u);
}

class MadeBesideInPlaces : public MadeBeside {
 protected:
  bool lies_in_stretch() const {
    const PlannedPlaces* const places = plan_in_places_.places();
    return places != nullptr && places->at_start.size() == 1 && places->at_start[0].offset >= gpu_.places.first;
  }

  testing::IdleExecutorWithRange gpu_{{8 * chunk.value}};
  StepPlan plan_in_places_{two_ops(), {.chunk = chunk, .policy = "vedette", .range = gpu_.range()}};
};

TEST_F(MadeBesideInPlaces, ComesWithItsPlaces) {
  PlanInMaking making(7, plan_in_places_.begin(machine_, gpu_), by_plan_before);
  while (!making.is_made_soon()) std::this_thread::yield();
  EXPECT_EQ(plan_in_places_.places(), nullptr);
  std::unique_ptr<StepPlan::Draft> draft = making.take();
  ASSERT_TRUE(draft->suits_memory());
  ASSERT_TRUE(plan_in_places_.finish(std::move(draft)));
  EXPECT_TRUE(lies_in_stretch());
}

TEST_F(MadeBesideInPlaces, IsGivenUpWhereOthersHaveTakenItsPlaces) {
  ASSERT_TRUE(plan_in_places_.prepare(machine_, gpu_));
  PlanInMaking making(7, plan_in_places_.begin(machine_, gpu_), by_plan_before);
  while (!making.is_made_soon()) std::this_thread::yield();
  gpu_.places = {.first = 2 * chunk.value, .bytes = {4 * chunk.value}};
  std::unique_ptr<StepPlan::Draft> draft = making.take();
  ASSERT_FALSE(draft->suits_memory());
  plan_in_places_.take_back_policy(*draft);
  EXPECT_FALSE(lies_in_stretch()) << "the plan before";
  ASSERT_TRUE(plan_in_places_.has_policy());
  ASSERT_TRUE(plan_in_places_.prepare(machine_, gpu_));
  EXPECT_TRUE(lies_in_stretch());
}

// A bucket is followed once it has its plan.
TEST(Buckets, WaitForTheirFirstPlan) {
  BucketStore store;
  const std::vector<std::uint64_t> hashes = {11, 12};
  Bucket& bucket = store.add(std::make_unique<Bucket>(store.next_id(), two_ops(), hashes, AddressPlan(),
                                                      StepPlan::Options{.chunk = chunk, .policy = "on-demand"}));
  bucket.waits_for_plan();
  store.begin_step();
  EXPECT_EQ(store.current(), nullptr);
  EXPECT_EQ(store.find(bucket.id()), &bucket);
  EXPECT_EQ(store.find(99), nullptr);
  bucket.planned(3);
  store.begin_step();
  EXPECT_EQ(store.current(), &bucket);
  EXPECT_FALSE(store.has_run());
  bucket.ran(4);
  EXPECT_TRUE(store.has_run());
}

}  // namespace
}  // namespace vedette::detail::plan_in_making_test
