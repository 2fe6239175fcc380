// Our own planner: what it decides on steps that can be worked out by hand, what it keeps on generated ones, and that
// its trials end. What every planner must keep is tested in policy/properties.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>

#include "base/time_limit.h"
#include "policy/canvas/marks.h"
#include "policy/canvas/room.h"
#include "policy/vedette/features.h"
#include "policy/vedette/fit.h"
#include "support/generate_trace.h"
#include "support/small_steps.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::vedette_test {
namespace {

using testing::kilo;
using testing::op;
using testing::step;

constexpr Habits early_fetches{.early_fetches = true};

Machine with(Machine machine, const Habits& habits) {
  machine.habits = habits;
  return machine;
}

Plan plan(const Trace& trace, const Machine& machine) {
  return make_policy("vedette", 1)->prepare(trace, machine).value();
}

TEST(Vedette, MovesWhatBeladyMovesWhereTransfersHideBehindOps) {
  // Four tensors in turn, room for three, 4,096 ns a transfer, 10,000 ns an op: two have to take turns, no op has to
  // wait.
  const Trace one = step(4, {op(10'000, {{0}}), op(10'000, {{1}}), op(10'000, {{2}}), op(10'000, {{3}})});
  const Machine machine = testing::two_tiers({3 * kilo});
  const Replayed got = replay(one, machine, plan(one, machine)).value();
  EXPECT_EQ(got.measured.stall, Nanoseconds{0});
  EXPECT_EQ(got.bytes_in, Bytes{2 * kilo});
  EXPECT_EQ(got.bytes_out, Bytes{0});  // nobody changes them: after the first step they leave for nothing
}

TEST(Vedette, FetchesBeforeTheOpThatNeedsIt) {
  const Trace one = step(2, {op(10'000, {{0}}), op(10'000, {}), op(10'000, {{1}}), op(10'000, {})});
  const Machine machine = testing::two_tiers({kilo});
  const Plan found = plan(one, machine);
  for (const Move& move : found.moves) {
    if (move.verb == Verb::fetch) {
      EXPECT_NE(move.issue, move.due);
    }
  }
  EXPECT_EQ(replay(one, machine, found).value().measured.stall, Nanoseconds{0});
}

TEST(Vedette, WritesOutAsSoonAsTheLastUseHasEnded) {
  // Tensor 0 is changed by op 0 and its room is needed by op 3 only: the write hides behind ops 1 and 2, the fetch
  // behind 4.
  const Trace one =
      step(2, {op(5'000, {}, {{0}}), op(5'000, {}), op(5'000, {}), op(5'000, {}, {{1}}), op(5'000, {}), op(5'000, {})});
  const Machine machine = testing::two_tiers({kilo});
  const Plan found = plan(one, machine);
  ASSERT_FALSE(found.moves.empty());
  for (const Move& move : found.moves) {
    if (move.verb == Verb::evict) {
      EXPECT_EQ(move.issue, (move.extent.tensor == TensorIndex{0} ? OpIndex{0} : OpIndex{3}));
    }
  }
  EXPECT_EQ(replay(one, machine, found).value().measured.stall, Nanoseconds{0});
}

// Eight layers, each with a weight and two moments: backward, an op that wants most of the memory, the optimizer, and a
// long op after it.
Trace training_step() {
  constexpr std::uint32_t layers = 8;
  Trace made = step(layers * 4, {});
  for (std::uint32_t i = 0; i < layers; ++i) made.tensors[i * 4].persistent = false;  // the gradient
  for (std::uint32_t i = layers; i-- > 0;) made.ops.push_back(op(10'000, {{i * 4 + 1}}, {{i * 4}}));
  made.ops.push_back(op(200'000, {}));
  made.ops.back().workspace = {12 * kilo};
  for (std::uint32_t i = 0; i < layers; ++i)
    made.ops.push_back(op(500, {{i * 4}}, {{i * 4 + 1}, {i * 4 + 2}, {i * 4 + 3}}));
  made.ops.push_back(op(300'000, {}));
  for (std::uint32_t i = 0; i < layers; ++i) made.ops.back().frees.push_back({i * 4});
  return made;
}

Machine with_slow_memory_in_place(Bytes capacity, bool addressable) {
  Machine machine = testing::two_tiers(capacity);
  machine.tiers[1].addressable = addressable;
  return machine;
}

TEST(Vedette, LeavesInPlaceWhatWouldOtherwiseBeWaitedFor) {
  std::uint32_t left = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace = testing::generate_trace(seed, {.layers = 8, .moments = 1});
    for (Op& each : trace.ops) each.time.value /= 16;  // so that moves are late
    const Bytes capacity = {std::max(largest_op_bytes(trace).value * 5 / 4, peak_bytes(trace).value * 2 / 5)};
    const Machine there = with_slow_memory_in_place(capacity, true),
                  copied = with_slow_memory_in_place(capacity, false);
    const Plan moves = plan(trace, copied), stays = plan(trace, there);
    EXPECT_TRUE(moves.in_place.empty());
    left += static_cast<std::uint32_t>(stays.in_place.size());
    const auto broken = check(trace, there, stays);
    EXPECT_FALSE(broken.has_value()) << broken->message;
    EXPECT_LE(replay(trace, there, stays)->measured.time, replay(trace, copied, moves)->measured.time);
  }
  EXPECT_GT(left, 0u);
}

// Ops of some kind lose nearly nothing by operands in place, or far more than their bytes: the plan has them there more
// often, or never.
TEST(Vedette, PricesOperandsInPlaceByTheKindOfTheirOp) {
  std::uint32_t cheap = 0, as_links = 0, dear = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace = testing::generate_trace(seed, {.layers = 8, .moments = 1});
    for (std::size_t i = 0; i < trace.ops.size(); ++i) {
      trace.ops[i].time.value /= 16;
      trace.ops[i].name = i % 2 == 0 ? "even" : "odd";
    }
    const Bytes capacity = {std::max(largest_op_bytes(trace).value * 5 / 4, peak_bytes(trace).value * 2 / 5)};
    Machine machine = with_slow_memory_in_place(capacity, true);
    const auto uses_by_even_ops = [&] {
      const Plan made = plan(trace, machine);
      return static_cast<std::uint32_t>(
          std::ranges::count_if(made.in_place, [](const InPlace& use) { return use.op.value % 2 == 0; }));
    };
    as_links += uses_by_even_ops();
    machine.in_place_prices = {{.op = "even", .percent = 5}};
    cheap += uses_by_even_ops();
    machine.in_place_prices = {{.op = "even", .percent = 5000}};
    dear += uses_by_even_ops();
  }
  EXPECT_GT(cheap, as_links);
  EXPECT_GT(as_links, dear);
  EXPECT_EQ(dear, 0u);
}

TEST(Vedette, TakesWhatMovesCostOpsFromTheMachineOrTheDefault) {
  const Trace one = training_step();
  Machine machine = testing::two_tiers({14 * kilo});
  const Plan unknown = plan(one, machine);
  machine.interference_percent = default_interference_percent;
  EXPECT_EQ(plan(one, machine), unknown);
  machine.interference_percent = 400;
  const Replayed careful = replay(one, machine, plan(one, machine)).value(),
                 other = replay(one, machine, unknown).value();
  EXPECT_LE(careful.measured.time, other.measured.time);
}

TEST(Vedette, LetsGradientsThatCameBackGoBeforeWhatWouldHaveToBeWritten) {
  const Trace one = training_step();
  const Machine machine = testing::on_one_bus(testing::two_tiers({14 * kilo}));
  std::set<std::uint32_t> left;  // gradients, when the optimizer has just used them
  for (const Move& move : plan(one, machine).moves) {
    const std::uint32_t layer = move.extent.tensor.value / 4;
    if (move.verb == Verb::evict && move.extent.tensor.value % 4 == 0 && move.issue == OpIndex{9 + layer})
      left.insert(layer);
  }
  // by distance alone 1 and 2 would stay
  for (std::uint32_t layer = 1; layer <= 6; ++layer) EXPECT_TRUE(left.contains(layer)) << layer;
}

// Op 1 fills the memory with what it makes and with tensor 1, which nobody uses after op 0 and which dies with op 1.
// Soon after, op 3 needs tensor 0.
Trace step_in_which_something_lingers(std::int64_t ns_of_op_1) {
  Trace one = step(3, {op(1'000, {}, {{1}}), op(ns_of_op_1, {}, {{2}}), op(1'000, {}), op(1'000, {{0}})});
  one.tensors[1].persistent = one.tensors[2].persistent = false;
  one.ops[1].frees = {{1}, {2}};
  return one;
}

// Tensor 0 comes when tensors 1 and 2 have died.
planning::Fitted sent_in_step(const Trace& one) {
  const Machine machine = testing::two_tiers({2 * kilo});
  const planning::Setting setting{.budget = 2 * kilo,
                                  .slow = {1},
                                  .granule = kilo,
                                  .read_bytes_per_s = 1'000'000'000,
                                  .write_bytes_per_s = 1'000'000'000,
                                  .read_latency = {},
                                  .write_latency = {}};
  Plan plan;
  plan.home = {{1}, {0}, {0}};
  plan.moves = {{.issue = {2},
                 .due = {3},
                 .extent = {.tensor = {0}, .part = {}},
                 .source = {1},
                 .target = {0},
                 .verb = Verb::fetch},
                {.issue = {3},
                 .due = {0},
                 .extent = {.tensor = {0}, .part = {}},
                 .source = {0},
                 .target = {1},
                 .verb = Verb::evict}};
  EXPECT_FALSE(check(one, machine, plan));
  const sim::Step flat = sim::flatten(one);
  planning::Fitted sent =
      planning::evict_after_last_use(one, planning::uses_of(one), setting, plan,
                                     {one, flat, with(machine, early_fetches), {.percent = 0, .slow = {1}}}, 10);
  EXPECT_FALSE(check(one, machine, sent.plan));
  return sent;
}

TEST(Vedette, WritesOutWhatLingersWhereWhatIsNeededNextThenComesSooner) {
  // A session lets the fetch that is issued at op 2 start in op 1, once the write has made room; else op 2 hides 1,000
  // ns of it, and op 3 waits.
  const planning::Fitted sent = sent_in_step(step_in_which_something_lingers(20'000));
  EXPECT_EQ(sent.bytes, Bytes{kilo});
  EXPECT_EQ(sent.stall, Nanoseconds{0});
  ASSERT_EQ(sent.plan.moves.size(), 3U);
  EXPECT_EQ(sent.plan.moves[0], (Move{.issue = {0},
                                      .due = {1},
                                      .extent = {.tensor = {1}, .part = {}},
                                      .source = {0},
                                      .target = {1},
                                      .verb = Verb::evict}));
}

TEST(Vedette, LeavesWhatLingersWhereItCouldNotBeWrittenBeforeItDies) {
  const planning::Fitted sent = sent_in_step(step_in_which_something_lingers(3'000));
  EXPECT_EQ(sent.plan.moves.size(), 2U);
  EXPECT_EQ(sent.bytes, Bytes{});
  EXPECT_EQ(sent.stall, Nanoseconds{3'096});
}

// Whatever the time: the first plan is a whole one, and with time for all tries it is the plan without a limit.
TEST(Vedette, HasAPlanWhenItsTimeIsOver) {
  const Trace trace = testing::generate_trace(7, testing::random_shape(7));
  const std::uint64_t least = testing::smallest_fast_tier(trace, {4096}).value,
                      most = testing::ample_fast_tier(trace, {4096}).value;
  Machine machine = testing::two_tiers({least + (most - least) / 4});
  for (const bool recomputes : {false, true}) {
    machine.can_recompute = recomputes;
    const auto planned_within = [&](std::chrono::hours time) {
      const TimeLimit limit(TimeLimit::Clock::now() + time);
      return plan(trace, machine);
    };
    const Plan at_once = planned_within(std::chrono::hours(0));
    EXPECT_FALSE(at_once.moves.empty());
    EXPECT_FALSE(check(trace, machine, at_once));
    EXPECT_EQ(planned_within(std::chrono::hours(1)), plan(trace, machine));
  }
}

TEST(Vedette, NamesTheLargestOpWhereItDoesNotFit) {
  const Trace one = step(3, {op(10, {{0}, {1}}), op(10, {{2}})});
  const auto found = make_policy("vedette", 1)->prepare(one, testing::two_tiers({2 * kilo - 1}));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().cause, Cause::infeasible);
  EXPECT_NE(found.error().message.find(std::to_string(2 * kilo)), std::string::npos) << found.error().message;
}

Bytes between(const Trace& trace, std::uint64_t share) {
  const std::uint64_t least = testing::smallest_fast_tier(trace, {kilo}).value,
                      most = testing::ample_fast_tier(trace, {kilo}).value;
  return {least + (most - least) / 8 * share};
}

// Op times up to a fifth shorter or longer, drawn from the seed.
Trace with_other_times(Trace trace, std::uint64_t seed) {
  for (Op& each : trace.ops) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    each.time.value = each.time.value / 100 * static_cast<std::int64_t>(80 + (seed >> 33) % 41);
  }
  return trace;
}

TEST(Vedette, IsNeverSlowerThanDemandOnGeneratedSteps) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    for (const std::uint64_t share : {0U, 1U, 3U}) {
      const Machine machine = testing::two_tiers(between(one, share));
      const Plan planned = plan(one, machine);
      const Replayed ours = replay(one, machine, planned).value(), demand = replay(one, machine, Plan{}).value();
      EXPECT_LE(ours.measured.time, demand.measured.time) << "seed " << seed << ", share " << share;
    }
  }
}

TEST(Vedette, StaysAheadOfDemandWhereOpsTakeOtherTimesThanInTheProfile) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed)), real = with_other_times(one, seed);
    const Machine machine = testing::two_tiers(between(one, 1));
    EXPECT_LE(replay(real, machine, plan(one, machine)).value().measured.time,
              replay(real, machine, Plan{}).value().measured.time)
        << "seed " << seed;
  }
}

// A session starts fetches one op early. The same search, once for a machine that does, and once for one that does not.
TEST(Vedette, PlansForSessionsAsSessionsRun) {
  int better = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    const Machine machine = testing::two_tiers(between(one, 1));
    const Plan for_session = plan(one, with(machine, habits_of_sessions)), for_replay = plan(one, machine);
    const auto cost = [&](const Plan& of) {
      const Replayed got = replay(one, with(machine, early_fetches), of, {.steps = 2}).value();
      // 1 ns a byte
      return got.measured.stall.value + static_cast<std::int64_t>((got.bytes_in + got.bytes_out).value) / 4;
    };
    const std::int64_t session = cost(for_session), replayed = cost(for_replay);
    EXPECT_LE(session, replayed) << "seed " << seed;
    better += session < replayed ? 1 : 0;
  }
  EXPECT_GE(better, 65);
}

// Both directions of the bus share it; the op that reads waits for its own transfer alone where writes wait, and for
// both where they do not.
TEST(SimulatedHabits, LetWritesWaitForReadsAsSessionsDo) {
  const Trace one = step(2, {op(1'000, {}, {{0}}), op(0, {}), op(1'000, {{1}}), op(100'000, {})});
  const std::vector<Move> moves = {
      {.issue = {0}, .due = {3}, .extent = {{0}, {}}, .source = {0}, .target = {1}, .verb = Verb::evict},
      {.issue = {1}, .due = {2}, .extent = {{1}, {}}, .source = {1}, .target = {0}, .verb = Verb::fetch},
      {.issue = {2}, .due = {3}, .extent = {{1}, {}}, .source = {0}, .target = {1}, .verb = Verb::evict},
      {.issue = {3}, .due = {0}, .extent = {{0}, {}}, .source = {1}, .target = {0}, .verb = Verb::fetch},
  };
  const Plan moving{.home = {{0}, {1}}, .moves = moves};
  const auto stall = [&](Bytes fast, Habits habits) {
    const Machine machine = testing::on_one_bus(testing::two_tiers(fast));
    return replay(one, with(machine, habits), moving, {.steps = 2}).value().measured.stall.value;
  };
  EXPECT_GT(stall({16 * kilo}, Habits{}), 7'000);
  EXPECT_LT(stall({16 * kilo}, habits_of_sessions), 5'000);
  // the room that the read needs is the one that the write gives
  EXPECT_GT(stall({kilo}, habits_of_sessions), 7'000);
}

// Each habit alone could make somebody wait for ever.
TEST(SimulatedHabits, EndEachStep) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    for (const std::uint64_t share : {0U, 1U, 4U}) {
      Machine machine = testing::two_tiers(between(one, share), {seed % 2 == 0 ? kilo : 4 * kilo});
      const auto made = make_policy("vedette", 1)->prepare(one, machine);
      if (!made) continue;  // larger granules: an op may not fit
      for (const bool one_bus : {false, true}) {
        for (Link& link : machine.links) link.shared = one_bus ? std::optional(0U) : std::nullopt;
        for (const Habits& habits : {Habits{}, early_fetches, habits_of_sessions}) {
          const auto got = replay(one, with(machine, habits), *made);
          EXPECT_TRUE(got.ok()) << "seed " << seed << ", share " << share << ", habits " << habits.early_fetches
                                << habits.writes_wait << (one_bus ? ", one bus: " : ": ") << got.error().message;
        }
      }
    }
  }
}

// Weights, gradients and moments of twice their size; the gradients die with the step. A session's disk is one bus.
Trace with_optimizer(std::uint32_t layers) {
  Trace made;
  for (std::uint32_t i = 0; i < layers; ++i) {
    made.tensors.push_back({.name = "weight", .bytes = {kilo}, .kind = TensorKind::weight, .persistent = true});
    made.tensors.push_back({.name = "moments", .bytes = {2 * kilo}, .kind = TensorKind::optimizer, .persistent = true});
    made.tensors.push_back({.name = "gradient", .bytes = {kilo}, .kind = TensorKind::gradient, .persistent = false});
  }
  for (std::uint32_t i = 0; i < layers; ++i) made.ops.push_back(op(40'000, {{3 * i}}));
  for (std::uint32_t i = layers; i-- > 0;) made.ops.push_back(op(80'000, {{3 * i}}, {{3 * i + 2}}));
  for (std::uint32_t i = 0; i < layers; ++i) made.ops.push_back(op(500, {{3 * i + 2}}, {{3 * i}, {3 * i + 1}}));
  for (std::uint32_t i = 0; i < layers; ++i) made.ops.back().frees.push_back({3 * i + 2});
  return made;
}

TEST(Vedette, WritesGradientsBeforeTheOptimizerThatTheyMayLeaveItForNothing) {
  constexpr std::uint32_t layers = 12;
  const Trace one = with_optimizer(layers);
  constexpr std::uint64_t alone = 1'000'000'000;
  Machine told =
      with(testing::two_tiers({26 * kilo}, {kilo}, alone / 2), habits_of_sessions);  // its shares of the disk
  for (Link& link : told.links) link.alone_bytes_per_s = alone;
  const Machine bus = testing::on_one_bus(testing::two_tiers({26 * kilo}, {kilo}, alone));  // the disk as it is
  const auto waits = [&](const Plan& of) {
    return replay(one, with(bus, habits_of_sessions), of, {.steps = 2}).value().measured.stall;
  };
  const auto written_in_backward = [](const Plan& of) {
    return std::count_if(of.moves.begin(), of.moves.end(), [](const Move& move) {
      return move.verb == Verb::evict && move.extent.tensor.value % 3 == 2 && move.issue.value < 2 * layers;
    });
  };
  const Plan with = plan(one, told),
             without = planning::make_vedette_with({.cleaning = false})->prepare(one, told).value();
  EXPECT_GT(written_in_backward(with), written_in_backward(without));
  EXPECT_LT(waits(with), waits(without));
  EXPECT_TRUE(std::any_of(with.reasons.begin(), with.reasons.end(), [](const std::string& said) {
    return said.find("leaves for nothing when it was used") != said.npos;
  }));
}

TEST(Vedette, KeepsItsBudgetOnTheClockToo) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    const Machine machine = testing::two_tiers(between(one, 1));
    const Replayed got = replay(one, machine, plan(one, machine)).value();
    EXPECT_LE(got.peak, machine.tiers[0].capacity) << "seed " << seed;
  }
}

// A plan for less memory is valid for more. Half a point is left to the search.
TEST(Vedette, IsNotSlowerWithMoreMemory) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    for (const bool can_recompute : {false, true}) {
      double best = 0;
      for (std::uint64_t share = 0; share <= 8; ++share) {
        Machine machine = testing::two_tiers(between(one, share));
        machine.can_recompute = can_recompute;
        const Replayed got = replay(one, machine, plan(one, machine)).value();
        const double percent =
            100.0 * static_cast<double>(got.ideal.value) / static_cast<double>(got.measured.time.value);
        EXPECT_GE(percent, best - 0.5) << "seed " << seed << ", share " << share
                                       << (can_recompute ? ", with recomputation" : "");
        best = std::max(best, percent);
      }
    }
  }
}

// ---- trials: what the engine measures, told step by step ----

class Trials : public ::testing::Test {
 protected:
  Trials()
      : trace_(step(4, {op(1'000, {}, {{0}}), op(1'000, {}, {{1}}), op(1'000, {}, {{2}}), op(1'000, {}, {{3}})})),
        machine_(testing::two_tiers({2 * kilo})) {
    current_ = policy_->prepare(trace_, machine_).value();
    promised_ = replay(trace_, machine_, current_).value().measured;
  }
  // One step of which the engine says that it waited so long; true when the policy asked for another plan, which it
  // then gets.
  bool ended(std::int64_t stall, std::int64_t in_places = 0) {
    StepMeasured measured{
        .time = {4'000 + stall}, .stall = {stall}, .in_places = {in_places}, .op_stall = {}, .late = {}};
    Event event;
    event.kind = Event::Kind::step_ended;
    event.measured = &measured;
    const bool replan =
        policy_->react(event, View{.trace = trace_, .machine = machine_, .where = {}, .room = {}}).replan;
    if (replan) current_ = policy_->prepare(trace_, machine_).value();
    return replan;
  }

  Trace trace_;
  Machine machine_;
  std::unique_ptr<Policy> policy_ = make_policy("vedette", 1);
  Plan current_;
  StepMeasured promised_;
};

TEST_F(Trials, KeepThePlanThatDoesWhatItPromised) {
  const Plan first = current_;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(ended(promised_.stall.value)) << i;
  EXPECT_EQ(current_, first);
}

TEST_F(Trials, KeepThePlanThatWaitsAsItsPlacesHaveIt) {
  const Plan first = current_;
  const std::int64_t waits = promised_.stall.value * 2 + 10'000;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(ended(waits, waits)) << i;
  EXPECT_EQ(current_, first);
}

TEST_F(Trials, EndWithThePlanThatWasMeasuredBest) {
  const Plan first = current_;
  const std::int64_t bad = promised_.stall.value * 2 + 10'000;
  int replans = 0;
  for (int i = 0; i < 3; ++i) replans += ended(bad);       // the first one disappoints
  for (int i = 0; i < 30; ++i) replans += ended(bad * 2);  // the others are worse
  EXPECT_EQ(replans, 3);                                   // two trials, and back
  EXPECT_EQ(current_, first);
}

TEST_F(Trials, PlanAnewWhenTimesHaveSettledElsewhereButNotForEver) {
  for (Op& each : trace_.ops) each.time.value /= 2;
  int replans = 0;
  for (int i = 0; i < 4; ++i) replans += ended(0);
  EXPECT_EQ(replans, 1);
  EXPECT_EQ(current_, make_policy("vedette", 1)->prepare(trace_, machine_).value());
  for (int i = 0; i < 40; ++i) {
    for (Op& each : trace_.ops) each.time.value += each.time.value / 10;
    replans += ended(0);
  }
  EXPECT_LE(replans, 6);
}

TEST(Room, AgreesWithTheNaiveSumEverywhere) {
  constexpr std::size_t count = 37;
  std::vector<std::int64_t> naive(count);
  for (std::size_t i = 0; i < count; ++i) naive[i] = static_cast<std::int64_t>(i * 7 % 11);
  planning::Room room(naive);
  std::uint64_t state = 1;
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::size_t>((state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 33) % below;
  };
  for (int round = 0; round < 2'000; ++round) {
    // ends beyond the last are cut off, empty ranges do nothing
    const std::size_t begin = draw(count), end = draw(count + 9);
    const auto bytes = static_cast<std::int64_t>(draw(21)) - 10;
    room.add(begin, end, bytes);
    for (std::size_t i = begin; i < std::min(end, count); ++i) naive[i] += bytes;
    const std::size_t from = draw(count), to = from + 1 + draw(count - from);
    EXPECT_EQ(room.most(from, to), *std::max_element(naive.begin() + static_cast<std::ptrdiff_t>(from),
                                                     naive.begin() + static_cast<std::ptrdiff_t>(to)));
    const auto limit = static_cast<std::int64_t>(draw(41)) - 20;
    std::optional<std::size_t> last;
    for (std::size_t i = from; i < to; ++i) {
      if (naive[i] > limit) last = i;
    }
    EXPECT_EQ(room.last_above(from, to, limit), last);
  }
}

TEST(Marks, AgreeWithAnOrderedSet) {
  for (const std::uint32_t size : {1U, 63U, 64U, 65U, 5'000U}) {
    planning::Marks marks(size);
    std::set<std::uint32_t> naive;
    std::uint64_t state = 1;
    const auto draw = [&](std::uint32_t below) {
      return static_cast<std::uint32_t>(((state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 33) %
                                        below);
    };
    for (int round = 0; round < 3'000; ++round) {
      const std::uint32_t number = draw(size), asked = draw(size);
      if (draw(5) < 2) {
        marks.insert(number), naive.insert(number);
      } else {
        marks.erase(number), naive.erase(number);
      }
      EXPECT_EQ(marks.first(), naive.empty() ? planning::Marks::none : *naive.begin());
      EXPECT_EQ(marks.last(), naive.empty() ? planning::Marks::none : *naive.rbegin());
      const auto next = naive.lower_bound(asked);
      EXPECT_EQ(marks.before(asked), next == naive.begin() ? planning::Marks::none : *std::prev(next));
    }
  }
}

}  // namespace
}  // namespace vedette::vedette_test
