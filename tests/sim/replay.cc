// The replay against examples that were worked out by hand. One byte travels in one nanosecond (1 GB/s) unless a case
// says otherwise.
#include "vedette/replay.h"

#include <gtest/gtest.h>

#include "sim/made.h"
#include "sim/simulator.h"
#include "support/generate_trace.h"
#include "support/traces.h"
#include "vedette/bound.h"
#include "vedette/policy.h"

namespace vedette::replay_test {
namespace {

constexpr TierIndex fast{0}, slow{1};

Machine machine(std::uint64_t capacity, std::optional<std::uint32_t> shared = std::nullopt) {
  Machine made = testing::two_tiers({capacity}, {1});
  for (Link& link : made.links) link.shared = shared;
  return made;
}

using testing::op;
using testing::tensor;
using testing::trace;

Move fetch(std::uint32_t issue, std::uint32_t due, std::uint32_t t) {
  return {.issue = {issue}, .due = {due}, .extent = {{t}, {}}, .source = slow, .target = fast, .verb = Verb::fetch};
}
Move evict(std::uint32_t issue, std::uint32_t due, std::uint32_t t) {
  return {.issue = {issue}, .due = {due}, .extent = {{t}, {}}, .source = fast, .target = slow, .verb = Verb::evict};
}
Plan plan(std::vector<TierIndex> home, std::vector<Move> moves = {}) {
  Plan made;
  made.home = std::move(home);
  made.moves = std::move(moves);
  return made;
}

TEST(Replay, TakesTheSumOfTheOpsWhereEverythingIsNear) {
  const Trace one = trace({tensor(10)}, {op(100, {{0}}), op(50, {}, {{0}})});
  const Replayed got = replay(one, machine(10), plan({fast})).value();
  EXPECT_EQ(got.measured.time, Nanoseconds{150});
  EXPECT_EQ(got.ideal, Nanoseconds{150});
  EXPECT_EQ(got.measured.stall, Nanoseconds{0});
  EXPECT_EQ(got.peak, Bytes{10});
  EXPECT_EQ(got.step_times, (std::vector<Nanoseconds>{{150}, {150}, {150}}));
}

// It waits 30 ns for its operand and runs 60. In the step before, which may take as long, nothing is decided.
TEST(Replay, StopsAsSoonAsTheLastStepIsSureToTakeLongerThanAskedFor) {
  const Trace one = trace({tensor(80)}, {op(50, {}), op(10, {{0}})});
  const Plan comes = plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)});
  const sim::Step step = sim::flatten(one);
  const Machine disk = machine(80);
  ASSERT_EQ(replay(one, disk, comes)->measured.time, Nanoseconds{90});
  EXPECT_EQ(sim::simulate(one, step, disk, comes, {.steps = 2}, 90)->measured.time, Nanoseconds{90});
  const auto stopped = sim::simulate(one, step, disk, comes, {.steps = 2}, 89);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().cause, Cause::infeasible);
}

// Each direction of the disk carries half as much beside the other.
TEST(Replay, RunsOnTheBusWhereLinksTellTheirSharesOfIt) {
  Machine disk = machine(80);
  for (Link& link : disk.links) link = {link.source, link.target, 500'000'000, {}, {}, 1'000'000'000};
  const Trace one = trace({tensor(80)}, {op(50, {}), op(10, {{0}})});
  const Plan comes = plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)});
  EXPECT_EQ(replay(one, disk, comes)->measured.stall, Nanoseconds{30}) << "as on a link of 1 GB/s";
  EXPECT_LE(lower_bound(one, disk), Nanoseconds{90});

  struct Asked final : Policy {
    std::string_view name() const noexcept override { return "asked"; }
    Result<Plan> prepare(const Trace&, const Machine& machine) override {
      speed = machine.links[0].bytes_per_s;
      return plan({slow});
    }
    std::uint64_t speed = 0;
  } policy;
  ASSERT_TRUE(replay(one, disk, policy));
  EXPECT_EQ(policy.speed, 500'000'000u) << "as a session's policy plans";
}

TEST(Replay, TakesWhatTheProgramMadeOutsideOfOpsAsBornWhereItIsReadFirst) {
  // Tensor 0 is a batch: allocated and filled between two ops, so that its first op reads it.
  const Trace one = trace({tensor(10, false)}, {op(100, {{0}}), op(50, {{0}})});
  const Result<Replayed> got = replay(one, machine(10), plan({fast}));
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->measured.time, Nanoseconds{150});
  EXPECT_EQ(got->peak, Bytes{10});
}

TEST(Replay, HidesAFetchBehindAnOpAndWaitsForTheRest) {
  // 80 bytes come while op 0 runs for 50: op 1 waits 30. Nothing changed them, so they leave for nothing.
  const Trace one = trace({tensor(80)}, {op(50, {}), op(10, {{0}})});
  const Replayed got = replay(one, machine(80), plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)})).value();
  EXPECT_EQ(got.measured.time, Nanoseconds{90});
  EXPECT_EQ(got.measured.op_stall, (std::vector<Nanoseconds>{{0}, {30}}));
  EXPECT_EQ(got.bytes_in, Bytes{80});
  EXPECT_EQ(got.bytes_out, Bytes{0});
  EXPECT_EQ(got.bytes_dropped, Bytes{80});
  EXPECT_EQ(got.measured.late, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(got.unplanned, 0U);
}

TEST(Replay, MovesBesideAnOpCostItWhatTheMachineSays) {
  // 60 bytes come while op 0 runs for 50: a tenth of those 50 comes on top. Op 1 waits for the other 5 and has nothing
  // beside it.
  const Trace one = trace({tensor(60)}, {op(50, {}), op(10, {{0}})});
  const Plan comes = plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)});
  Machine slowed = machine(60);
  EXPECT_EQ(replay(one, slowed, comes).value().measured.time, Nanoseconds{70});
  slowed.interference_percent = 10;
  const Replayed got = replay(one, slowed, comes).value();
  EXPECT_EQ(got.measured.op_stall, (std::vector<Nanoseconds>{{0}, {5}}));
  EXPECT_EQ(got.measured.time, Nanoseconds{70});
  slowed.interference_percent = 100;  // the last 40 ns have nothing beside them
  EXPECT_EQ(replay(one, slowed, comes).value().measured.time, Nanoseconds{110});
}

TEST(Replay, LetsTheProgramPayForPagesThatAreMappedAnew) {
  // 60 bytes in granules of 10 come for op 1, during op 0 and 5 ns after it, and leave unchanged when it has ended: op
  // 2 pays for that.
  const Trace one = trace({tensor(60)}, {op(55, {}), op(10, {{0}}), op(10, {})});
  Machine paid = machine(60);
  paid.granule = {10};
  const Plan comes = plan({slow}, {fetch(0, 1, 0), evict(1, 1, 0)});
  EXPECT_EQ(replay(one, paid, comes).value().measured.time, Nanoseconds{80});
  paid.remap_time = {2};
  const Replayed got = replay(one, paid, comes).value();
  EXPECT_EQ(got.measured.time, Nanoseconds{104});
  EXPECT_EQ(got.measured.stall, Nanoseconds{5});
}

TEST(Replay, WritesOutWhatChangedBeforeItsRoomIsFree) {
  // 0 is changed by op 0 and goes out during op 1 (40 of 60 ns left over); 1 is fetched into its room for op 2.
  const Trace one = trace({tensor(60), tensor(60)}, {op(10, {}, {{0}}), op(40, {}), op(10, {{1}}), op(60, {})});
  const Plan swaps = plan({slow, slow}, {fetch(0, 0, 0), evict(0, 1, 0), fetch(1, 2, 1), evict(2, 3, 1)});
  const Replayed got = replay(one, machine(60), swaps).value();
  // op 0 waits 60 for tensor 0. Op 2 waits 20 for the write, then 60 for the fetch.
  EXPECT_EQ(got.measured.op_stall, (std::vector<Nanoseconds>{{60}, {0}, {80}, {0}}));
  EXPECT_EQ(got.bytes_in, Bytes{120});
  EXPECT_EQ(got.bytes_out, Bytes{60});
  EXPECT_EQ(got.bytes_dropped, Bytes{60});
  EXPECT_EQ(got.peak, Bytes{60});
}

TEST(Replay, SharesABusWhileBothDirectionsAreBusy) {
  // After op 0, 100 bytes go out and 100 come in at once: on one bus each at half its speed, so op 1 waits 200 - 50.
  const Trace one =
      trace({tensor(100), tensor(100)}, {op(300, {}, {{0}}), op(50, {}), op(10, {{1}}), op(300, {}), op(300, {})});
  const Plan swaps = plan({slow, slow}, {fetch(3, 0, 0), evict(0, 2, 0), fetch(1, 2, 1), evict(2, 3, 1)});
  EXPECT_EQ(replay(one, machine(200), swaps).value().measured.op_stall[2], Nanoseconds{50});
  EXPECT_EQ(replay(one, machine(200, 7), swaps).value().measured.op_stall[2], Nanoseconds{150});
}

TEST(Replay, CountsLatencyBeforeTheFirstByte) {
  const Trace one = trace({tensor(80)}, {op(50, {}), op(10, {{0}})});
  Machine far = machine(80);
  far.links[1].latency = {7};
  EXPECT_EQ(replay(one, far, plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)})).value().measured.op_stall[1],
            Nanoseconds{37});
}

TEST(Replay, TakesNoShareOfABusDuringItsLatency) {
  // The fetch waits 40 ns for its first byte, in which the evict has the bus alone: 200 bytes in 200 ns all the same.
  const Trace one =
      trace({tensor(100), tensor(100)}, {op(300, {}, {{0}}), op(50, {}), op(10, {{1}}), op(300, {}), op(300, {})});
  const Plan swaps = plan({slow, slow}, {fetch(3, 0, 0), evict(0, 2, 0), fetch(1, 2, 1), evict(2, 3, 1)});
  Machine far = machine(200, 7);
  far.links[1].latency = {40};
  EXPECT_EQ(replay(one, far, swaps).value().measured.op_stall[2], Nanoseconds{150});
}

TEST(Replay, OvertakesTheQueueWithAFetchThatAnOpStallsFor) {
  // The plan fetches tensors 0 and 1 first, which op 2 needs; op 1 stalls for tensor 2.
  const Trace one = trace({tensor(100), tensor(100), tensor(100)}, {op(10, {}), op(10, {{2}}), op(500, {{0}, {1}})});
  const Plan late = plan({slow, slow, slow}, {fetch(0, 2, 0), fetch(0, 2, 1), fetch(0, 1, 2), evict(2, 0, 0),
                                              evict(2, 0, 1), evict(2, 0, 2)});
  // tensor 0 is under way when op 1 begins, 10 of its 100 bytes are there; tensor 2 goes before tensor 1
  EXPECT_EQ(replay(one, machine(300), late).value().measured.op_stall[1], Nanoseconds{190});
}

TEST(Replay, CancelsAnEvictionInTheQueueWhereTheTensorIsFetched) {
  // Tensor 1's eviction queues behind tensor 0's 100 bytes; its fetch comes 20 ns later, and nothing of it moves.
  const Trace one =
      trace({tensor(100), tensor(100)}, {op(10, {}, {{0}, {1}}), op(20, {}), op(10, {{1}}), op(500, {}), op(500, {})});
  const Plan hasty = plan({fast, fast}, {evict(0, 3, 0), evict(0, 2, 1), fetch(2, 2, 1), fetch(4, 0, 0)});
  const Replayed got = replay(one, machine(200), hasty).value();
  EXPECT_EQ(got.measured.op_stall[2], Nanoseconds{0});
  EXPECT_EQ(got.bytes_out, Bytes{100});
}

TEST(Replay, MakesBirthsWaitForRoom) {
  // Tensor 1 is born in op 1 while tensor 0, changed, is on its way out: 70 to write, nothing hidden.
  const Trace one = trace({tensor(70), tensor(70, false)}, {op(10, {}, {{0}}), op(10, {}, {{1}}), op(100, {})});
  const Plan swaps = plan({fast, fast}, {evict(0, 1, 0), fetch(2, 0, 0)});
  Plan with_home = swaps;
  with_home.home[0] = fast;
  const Replayed got = replay(one, machine(70), with_home).value();
  EXPECT_EQ(got.measured.op_stall, (std::vector<Nanoseconds>{{0}, {70}, {0}}));
}

TEST(Replay, GivesTheRoomOfTheDeadBack) {
  const Trace one =
      trace({tensor(70, false), tensor(70, false)}, {op(10, {}, {{0}}), op(10, {{0}}), op(10, {}, {{1}})});
  const Replayed got = replay(one, machine(70), plan({fast, fast})).value();
  EXPECT_EQ(got.measured.stall, Nanoseconds{0});
  EXPECT_EQ(got.peak, Bytes{70});
}

TEST(Replay, CountsWorkspaceOnlyDuringItsOp) {
  Trace one = trace({tensor(70)}, {op(10, {{0}}), op(10, {})});
  one.ops[0].workspace = {30};
  EXPECT_EQ(replay(one, machine(100), plan({fast})).value().peak, Bytes{100});
  EXPECT_EQ(replay(one, machine(99), plan({fast})).error().cause, Cause::infeasible);
}

TEST(Replay, FetchesOnDemandWhatNobodyPlannedAndEvictsTheFurthest) {
  // Room for two of three: op 2 needs tensor 2; of 0 (next used by op 3) and 1 (by op 4) tensor 1 leaves, unchanged.
  const Trace one = trace({tensor(10), tensor(10), tensor(10)},
                          {op(5, {{0}}), op(5, {{1}}), op(5, {{2}}), op(5, {{0}}), op(5, {{1}})});
  const Replayed got = replay(one, machine(20), plan({slow, slow, slow})).value();
  // Op 2 fetches 2 for 1, op 4 fetches 1 for 2; 0 stays. The first step's cold misses are not counted.
  EXPECT_EQ(got.measured.op_stall, (std::vector<Nanoseconds>{{0}, {0}, {10}, {0}, {10}}));
  EXPECT_EQ(got.unplanned, 4U);
}

TEST(Replay, RoundsRoomUpToTheGranule) {
  const Trace one = trace({tensor(5), tensor(5)}, {op(10, {{0}, {1}})});
  Machine coarse = machine(15);
  coarse.granule = {8};
  EXPECT_FALSE(replay(one, coarse, plan({fast, fast})).ok());
  coarse.tiers[0].capacity = {16};
  EXPECT_EQ(replay(one, coarse, plan({fast, fast})).value().peak, Bytes{16});
}

TEST(Replay, LeavesReservedBytesToBirths) {
  // Without a reserve the fetch starts at once and is done when due; with one it may not, and op 1 has to ask for it.
  const Trace one = trace({tensor(50)}, {op(100, {}), op(10, {{0}})});
  Plan early = plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)});
  EXPECT_EQ(replay(one, machine(60), early).value().measured.stall, Nanoseconds{0});
  early.reserved = {20};
  EXPECT_EQ(replay(one, machine(60), early).value().measured.stall, Nanoseconds{50});
}

TEST(Replay, MovesPartsOfATensorAlone) {
  // The second half goes out and comes back; the first half stays.
  const Trace one = trace({tensor(80)}, {op(100, {}, {{0}}), op(100, {})});
  Plan halves = plan({fast}, {evict(0, 1, 0), fetch(1, 0, 0)});
  for (Move& move : halves.moves) move.extent.part = Span<Bytes>{{40}, {80}};
  const Replayed got = replay(one, machine(80), halves).value();
  EXPECT_EQ(got.bytes_out, Bytes{40});
  EXPECT_EQ(got.bytes_in, Bytes{40});
}

TEST(Replay, KeepsWhatIsUsedBeforeItsEvictBegan) {
  // Both leave after op 0, tensor 0 first: 1 is still queued when op 1 uses it, and stays.
  const Trace one = trace({tensor(50), tensor(50)}, {op(10, {}, {{0}, {1}}), op(10, {{1}}), op(200, {})});
  const Plan hasty = plan({fast, fast}, {evict(0, 1, 0), evict(0, 1, 1), fetch(2, 0, 0), fetch(2, 0, 1)});
  const Replayed got = replay(one, machine(100), hasty).value();
  EXPECT_EQ(got.measured.stall, Nanoseconds{0});
  EXPECT_EQ(got.bytes_out, Bytes{50});
}

TEST(Replay, RefusesWhatItCannotRun) {
  const Trace one = trace({tensor(80)}, {op(50, {{0}})});
  EXPECT_EQ(replay(one, machine(79), plan({slow})).error().cause, Cause::infeasible);
  EXPECT_EQ(replay(one, machine(80), plan({slow}, {fetch(3, 0, 0)})).error().cause, Cause::malformed_input);
  Plan recomputes = plan({fast});
  recomputes.recomputations = {{.before = {0}, .producer = {0}, .tensor = {0}}};
  EXPECT_EQ(replay(one, machine(80), recomputes).error().cause, Cause::unsupported);
  EXPECT_EQ(replay(one, Machine{}, plan({fast})).error().cause, Cause::malformed_input);
}

// As measured on two sockets of DDR5: copies to a GPU alone 56 GB/s; beside a processor that takes 70 GB/s, 37.
TEST(Replay, LeavesLinksWhatTheProcessorDoesNotTakeOfTheHostsMemory) {
  const Trace one = trace({tensor(37'000)}, {op(0, {}), op(10, {{0}})});
  const Plan comes = plan({slow}, {fetch(0, 1, 0), evict(1, 0, 0)});
  Machine host = machine(37'000);
  for (Link& link : host.links) link.bytes_per_s = 56'000'000'000;
  const auto stall = [&] { return replay(one, host, comes)->measured.stall; };
  EXPECT_EQ(stall(), Nanoseconds{661});
  host.host_memory = {.tier = slow, .bytes_per_s = 107'000'000'000};
  EXPECT_EQ(stall(), Nanoseconds{661});
  host.host_memory.processor_bytes_per_s = 70'000'000'000;
  EXPECT_EQ(stall(), Nanoseconds{1000});
  for (Link& link : host.links) link.bytes_per_s = 0;  // no limit of its own
  EXPECT_EQ(stall(), Nanoseconds{1000});
}

TEST(Replay, SplitsTheHostsMemoryBetweenBothDirections) {
  // 1 comes while 0 goes, 90 bytes each at 1 GB/s.
  const Trace one = trace({tensor(90), tensor(90)}, {op(0, {{0}}, {{0}}), op(0, {{1}})});
  const Plan turns = plan({fast, slow}, {fetch(0, 1, 1), evict(0, 1, 0), fetch(1, 0, 0), evict(1, 0, 1)});
  Machine host = machine(180);
  const auto op_1_waits = [&] { return replay(one, host, turns, {.steps = 1})->measured.op_stall[1]; };
  EXPECT_EQ(op_1_waits(), Nanoseconds{90});
  host.host_memory = {.tier = slow, .bytes_per_s = 2'000'000'000};
  EXPECT_EQ(op_1_waits(), Nanoseconds{90});
  host.host_memory.bytes_per_s = 1'500'000'000;
  EXPECT_EQ(op_1_waits(), Nanoseconds{120});  // three quarters of a link each
  for (Link& link : host.links)               // the link out wants no more than that, and the other has the rest
    if (link.source == fast) link.bytes_per_s = 500'000'000;
  EXPECT_EQ(op_1_waits(), Nanoseconds{90});
  host.host_memory.bytes_per_s = 1'200'000'000;  // 700 MB/s are left
  EXPECT_EQ(op_1_waits(), Nanoseconds{129});
  host.host_memory.tier = fast;  // both links touch that as well
  EXPECT_EQ(op_1_waits(), Nanoseconds{129});
}

// What two alike links have together is what one has: a bus. By the paging driver's meters, too.
TEST(Replay, AHostsMemoryAsFastAsOneLinkIsABus) {
  const Trace step = testing::generate_trace(3, testing::random_shape(3));
  const std::uint64_t least = testing::smallest_fast_tier(step, {4096}).value,
                      most = testing::ample_fast_tier(step, {4096}).value;
  const Machine free = testing::two_tiers({least + (most - least) / 3}), bus = testing::on_one_bus(free);
  Machine host = free;
  host.host_memory = {.tier = slow, .bytes_per_s = free.links[0].bytes_per_s};
  int slower = 0;
  for (const char* name : {"vedette", "sentinel", "on-demand", "unified-memory", "g10+", "deepum+"}) {
    const auto planned = make_policy(name, 1)->prepare(step, bus);
    if (!planned) continue;
    const auto on_bus = replay(step, bus, *planned), in_host = replay(step, host, *planned),
               alone = replay(step, free, *planned);
    ASSERT_EQ(on_bus.ok(), in_host.ok()) << name;
    if (!on_bus) continue;
    EXPECT_EQ(in_host->measured.time, on_bus->measured.time) << name;
    slower += in_host->measured.time > alone->measured.time;
  }
  EXPECT_GE(slower, 4);
}

}  // namespace
}  // namespace vedette::replay_test
