// The simulator beyond two tiers and beyond plans: buses, full tiers, recomputation, reacting policies, blocks, what
// becomes of the dead, noise. Worked out by hand: one byte travels in one nanosecond (1 GB/s) unless a case says
// otherwise.
#include <gtest/gtest.h>

#include <array>

#include "sim/made.h"
#include "vedette/replay.h"

namespace vedette::tiers_test {
namespace {

constexpr TierIndex fast{0}, host{1}, disk{2};
constexpr std::uint64_t gb = 1'000'000'000;

// Host at 1 GB/s, disk at half of it, both behind one bus a direction.
Machine three_tiers(std::uint64_t fast_bytes, std::uint64_t host_bytes = 1 << 20) {
  Machine machine;
  machine.tiers = {{.name = "gpu", .capacity = {fast_bytes}},
                   {.name = "host", .capacity = {host_bytes}},
                   {.name = "disk", .capacity = {1 << 20}}};
  machine.links = {{.source = host, .target = fast, .bytes_per_s = gb, .latency = {}, .shared = 0},
                   {.source = fast, .target = host, .bytes_per_s = gb, .latency = {}, .shared = 1},
                   {.source = disk, .target = fast, .bytes_per_s = gb / 2, .latency = {}, .shared = 0},
                   {.source = fast, .target = disk, .bytes_per_s = gb / 2, .latency = {}, .shared = 1}};
  machine.granule = {1};
  machine.can_recompute = true;
  return machine;
}

using testing::op;
using testing::tensor;
using testing::trace;

Move fetch(std::uint32_t issue, std::uint32_t due, std::uint32_t t, TierIndex from) {
  return {.issue = {issue}, .due = {due}, .extent = {{t}, {}}, .source = from, .target = fast, .verb = Verb::fetch};
}
Move evict(std::uint32_t issue, std::uint32_t due, std::uint32_t t, TierIndex to) {
  return {.issue = {issue}, .due = {due}, .extent = {{t}, {}}, .source = fast, .target = to, .verb = Verb::evict};
}

TEST(ReplayTiers, GivesASlowLinkOnABusAllItCanUseAndTheFastOneTheRest) {
  // 100 bytes from disk and 100 from the host at once: the disk's half of the bus is all it can use, so both take 200
  // ns.
  const Trace one = trace({tensor(100), tensor(100)}, {op(150, {}), op(10, {{0}, {1}}), op(500, {})});
  Plan plan{.home = {host, disk},
            .moves = {fetch(0, 1, 0, host), fetch(0, 1, 1, disk), evict(1, 2, 0, host), evict(1, 2, 1, disk)}};
  const Replayed together = replay(one, three_tiers(200), plan).value();
  EXPECT_EQ(together.measured.op_stall[1], Nanoseconds{50});
  // Two fast links and a slow one share as 3/8, 3/8, 1/4 would not: without a bus, the host's 100 bytes are there after
  // 100 ns.
  Machine apart = three_tiers(200);
  for (Link& link : apart.links) link.shared.reset();
  plan.home[1] = host;
  plan.moves = {fetch(0, 1, 0, host), fetch(0, 1, 1, host), evict(1, 2, 0, host), evict(1, 2, 1, host)};
  EXPECT_EQ(replay(one, apart, plan).value().measured.op_stall[1], Nanoseconds{50});  // one queue: 200 ns in a row
}

TEST(ReplayTiers, SendsFurtherWhatAFullTierCannotTake) {
  const Trace one = trace({tensor(100), tensor(100)}, {op(10, {}, {{0}}), op(10, {}, {{1}}), op(400, {}), op(400, {})});
  const Plan plan{.home = {fast, fast},
                  .moves = {evict(0, 2, 0, host), evict(1, 2, 1, host), fetch(3, 0, 0, host), fetch(3, 1, 1, host)}};
  const Replayed roomy = replay(one, three_tiers(200), plan).value();
  EXPECT_EQ(roomy.measured.stall, Nanoseconds{0});
  const Replayed tight = replay(one, three_tiers(200, 150), plan).value();  // the second goes to the disk instead
  EXPECT_EQ(tight.bytes_out, Bytes{200});
  EXPECT_GT(tight.link_busy[3], Nanoseconds{0});
  EXPECT_EQ(roomy.link_busy[3], Nanoseconds{0});
}

TEST(ReplayTiers, KeepsTheSlowerCopyUntilItsRoomIsWanted) {
  // Tensor 0 is only read: it leaves for nothing as long as the host may keep its copy.
  const Trace one = trace({tensor(100), tensor(100)}, {op(200, {{0}}), op(200, {{1}}, {{1}}), op(200, {})});
  const Plan plan{.home = {host, host},
                  .moves = {fetch(0, 0, 0, host), evict(0, 1, 0, host), fetch(1, 1, 1, host), evict(1, 2, 1, host)}};
  EXPECT_EQ(replay(one, three_tiers(100), plan).value().bytes_out, Bytes{100});
  EXPECT_EQ(replay(one, three_tiers(100), plan).value().bytes_dropped, Bytes{100});
}

// a is made from w at op 0, thrown away, and read at op 2.
Trace remade() {
  return trace({tensor(10), tensor(50, false), tensor(50, false)},
               {op(30, {{0}}, {{1}}), op(20, {}, {{2}}), op(10, {{1}})});
}
Plan remaking() {
  return {
      .home = {fast, fast, fast},
      .moves = {{.issue = {0}, .due = {1}, .extent = {{1}, {}}, .source = fast, .target = fast, .verb = Verb::drop}},
      .recomputations = {{.before = {2}, .producer = {0}, .tensor = {1}}}};
}

TEST(ReplayRecomputes, ChargesTheProducersTimeAndNoStall) {
  const Replayed got = replay(remade(), three_tiers(60), remaking()).value();
  EXPECT_EQ(got.recompute, Nanoseconds{30});
  EXPECT_EQ(got.measured.stall, Nanoseconds{0});
  EXPECT_EQ(got.measured.time, Nanoseconds{90});
  EXPECT_EQ(got.ideal, Nanoseconds{60});
  EXPECT_EQ(got.peak, Bytes{60});
}
TEST(ReplayRecomputes, RunsAChainInPlaceAsOneProducer) {
  Trace trace = remade();
  Op relu = op(5, {{1}}, {{1}});
  relu.runs_again = true;
  trace.ops.insert(trace.ops.begin() + 1, relu);
  Plan plan = remaking();
  plan.moves[0].issue = {1}, plan.moves[0].due = {2};
  plan.recomputations = {{.before = {3}, .producer = {1}, .tensor = {1}}};
  const Replayed got = replay(trace, three_tiers(60), plan).value();
  EXPECT_EQ(got.recompute, Nanoseconds{35});
  EXPECT_EQ(got.measured.time, Nanoseconds{30 + 5 + 20 + 35 + 10});
  EXPECT_EQ(got.peak, Bytes{60});
}
TEST(ReplayRecomputes, RefusesToReadWhatWasThrownAway) {
  Plan plan = remaking();
  plan.recomputations.clear();
  const auto got = replay(remade(), three_tiers(60), plan);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().cause, Cause::malformed_input);
}
TEST(ReplayRecomputes, RefusesWhereTheMachineCannot) {
  Machine machine = three_tiers(60);
  machine.can_recompute = false;
  EXPECT_EQ(replay(remade(), machine, remaking()).error().cause, Cause::unsupported);
}

class Watcher final : public Policy {  // fetches the next op's tensors when an op begins, and counts what it hears
 public:
  explicit Watcher(bool ahead) : ahead_(ahead) {}
  std::string_view name() const noexcept override { return "watcher"; }
  Result<Plan> prepare(const Trace&, const Machine&) override {
    return Plan{.home = {host, host}, .fallback = Fallback::least_recent};
  }
  Reaction react(const Event& event, const View& view) override {
    ++heard[static_cast<std::size_t>(event.kind)];
    Reaction reaction;
    if (!ahead_ || event.kind != Event::Kind::op_begins || event.op.value + 1 >= view.trace.ops.size()) return reaction;
    for (TensorIndex t : view.trace.ops[event.op.value + 1].reads)
      reaction.moves.push_back(
          {.issue = {}, .due = {}, .extent = {t, {}}, .source = host, .target = fast, .verb = Verb::fetch});
    return reaction;
  }
  std::array<int, 7> heard{};

 private:
  bool ahead_;
};

TEST(ReplayPolicies, HearOfEventsAndFetchAhead) {
  const Trace one = trace({tensor(100), tensor(100)}, {op(300, {{0}}), op(300, {{1}})});
  Machine machine = three_tiers(200);
  machine.fault_time = {7};
  Watcher lazy(false), eager(true);
  const Replayed first = replay(one, machine, lazy, {.steps = 1}).value();
  EXPECT_EQ(first.measured.stall, Nanoseconds{214});  // both fault
  EXPECT_EQ(first.faults, 2U);
  EXPECT_EQ(replay(one, machine, eager, {.steps = 1}).value().measured.stall, Nanoseconds{107});
  EXPECT_EQ(lazy.heard[static_cast<std::size_t>(Event::Kind::op_begins)], 2);
  EXPECT_EQ(lazy.heard[static_cast<std::size_t>(Event::Kind::touched_while_away)], 2);
  EXPECT_EQ(lazy.heard[static_cast<std::size_t>(Event::Kind::step_ended)], 1);
}

TEST(ReplayUnifiedMemory, KeepsTheDeadAndBringsThemBackToBeWrittenOver) {
  // 0 and 1 never live together, but a driver that is told nothing keeps both: each is fetched, and each leaves, every
  // step.
  const Trace one = trace({tensor(100, false), tensor(100, false)},
                          {op(10, {}, {{0}}), op(10, {{0}}), op(10, {}, {{1}}), op(10, {{1}})});
  Plan told{.home = {fast, fast}};
  EXPECT_EQ(replay(one, three_tiers(100), told).value().measured.stall, Nanoseconds{0});
  Plan untold = told;
  untold.after_life = AfterLife::kept;
  untold.fallback = Fallback::least_recent;
  const Replayed got = replay(one, three_tiers(100), untold).value();
  EXPECT_EQ(got.bytes_in, Bytes{200});
  EXPECT_EQ(got.bytes_out, Bytes{200});
  Plan dropping = untold;
  dropping.after_life = AfterLife::dropped;
  EXPECT_EQ(replay(one, three_tiers(100), dropping).value().bytes_out, Bytes{0});
}

TEST(ReplayUnifiedMemory, MovesBlocksNotTensors) {
  // 150 of 200 bytes of room are taken when 100 more are needed: with blocks of 10 bytes only 50 leave.
  const Trace one = trace({tensor(150), tensor(100)}, {op(10, {}, {{0}}), op(10, {}, {{1}})});
  Plan plan{.home = {fast, host}, .block = {10}};
  EXPECT_EQ(replay(one, three_tiers(200), plan, {.steps = 1}).value().bytes_out, Bytes{50});
  plan.block = {0};
  EXPECT_EQ(replay(one, three_tiers(200), plan, {.steps = 1}).value().bytes_out, Bytes{150});
}

TEST(ReplayUnifiedMemory, PaysForLeavingAgainWhereBytesAreInOnePlaceOnly) {
  // Two tensors of 100 bytes that are only read take turns in 100 bytes of room.
  const Trace one = trace({tensor(100), tensor(100)}, {op(10, {{0}}), op(10, {{1}})});
  Plan plan{.home = {fast, host}};
  EXPECT_EQ(replay(one, three_tiers(100), plan).value().bytes_out, Bytes{0});
  plan.one_copy = true;
  EXPECT_EQ(replay(one, three_tiers(100), plan).value().bytes_out, Bytes{200});
}

TEST(ReplayBarriers, MakeAnOpWaitForEveryEvictionThatItDoesNotNeed) {
  const Trace one = trace({tensor(100), tensor(10)}, {op(10, {{0}}), op(10, {{1}}), op(10, {{1}}), op(500, {{1}})});
  Plan plan{.home = {fast, fast}, .moves = {evict(0, 3, 0, host), fetch(3, 0, 0, host)}};
  plan.one_copy = true;
  EXPECT_EQ(replay(one, three_tiers(200), plan).value().measured.stall, Nanoseconds{0});
  plan.barriers = {{2}};
  const Replayed held = replay(one, three_tiers(200), plan).value();
  EXPECT_EQ(held.measured.op_stall[1], Nanoseconds{0});
  EXPECT_EQ(held.measured.op_stall[2], Nanoseconds{90});
}

TEST(ReplayNoise, DrawsOtherTimesForOtherSeedsAndTheSameForOne) {
  const Trace one = trace({tensor(1)}, {op(1'000'000, {{0}}), op(1'000'000, {{0}}), op(1'000'000, {{0}})});
  const Plan plan{.home = {fast}};
  const auto time = [&](std::uint64_t seed) {
    return replay(one, three_tiers(10), plan, {.noise_percent = 20, .seed = seed}).value().measured.time.value;
  };
  EXPECT_EQ(time(1), time(1));
  EXPECT_NE(time(1), time(2));
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    EXPECT_GE(time(seed), 2'400'000);
    EXPECT_LE(time(seed), 3'600'000);
  }
}

TEST(ReplayTimeline, HasABarForEachOpWaitAndMove) {
  const Trace one = trace({tensor(100)}, {op(50, {}), op(10, {{0}}), op(100, {})});
  const Plan plan{.home = {host}, .moves = {fetch(0, 1, 0, host), evict(1, 2, 0, host)}};
  const Replayed got = replay(one, three_tiers(100), plan, {.timeline = true}).value();
  int ops = 0, waits = 0, moves = 0;
  for (const Bar& bar : got.timeline) {
    ops += bar.kind == Bar::Kind::op, waits += bar.kind == Bar::Kind::wait, moves += bar.kind == Bar::Kind::move;
    EXPECT_LE(bar.time.begin, bar.time.end);
    EXPECT_LE(bar.time.end, got.measured.time);
  }
  EXPECT_EQ(ops, 3);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(moves, 1);
}

}  // namespace
}  // namespace vedette::tiers_test
