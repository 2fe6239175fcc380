// Plans as they run: moves by part with their tiers, and buckets that are followed.
#include "session/step_plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "moves/step_start.h"
#include "os/devices.h"
#include "session/buckets.h"
#include "session/stack.h"
#include "session/step_logger.h"
#include "vedette/machine.h"

namespace vedette::detail::step_plan_test {
namespace {

constexpr Bytes chunk = {64 << 10};

// Three ops over two tensors of four chunks each.
Units two_units() {
  Units units;
  for (std::uint32_t t = 0; t < 2; ++t) {
    units.trace.tensors.push_back({.name = "t", .bytes = {4 * chunk.value}, .persistent = true});
    units.where.push_back({.first = 10 * (t + 1), .count = 4});
  }
  for (const std::uint32_t t : {0u, 1u, 0u}) units.trace.ops.push_back({.name = "op", .reads = {{t}}});
  units.frames_to_come.resize(3);
  return units;
}

Move move(std::uint32_t issue, std::uint32_t tensor, std::uint32_t source, std::uint32_t target, Verb verb) {
  return {
      .issue = {issue}, .due = {issue}, .extent = {{tensor}, {}}, .source = {source}, .target = {target}, .verb = verb};
}

TEST(Tabulate, CarriesTiersToTheParts) {
  Plan plan;
  plan.moves = {move(0, 1, 0, 2, Verb::evict), move(1, 0, 0, 1, Verb::drop), move(2, 1, 2, 0, Verb::fetch),
                move(2, 1, 1, 2, Verb::evict), move(2, 0, 0, 1, Verb::evict)};
  plan.moves[2].extent.part = Span<Bytes>{{chunk.value}, {3 * chunk.value}};
  const auto parts = tabulate(two_units(), plan, chunk);
  ASSERT_EQ(parts.size(), 3u);
  ASSERT_EQ(parts[0].departures.size(), 1u);
  EXPECT_EQ(parts[0].departures[0].source, TierIndex{0});
  EXPECT_EQ(parts[0].departures[0].target, TierIndex{2});
  EXPECT_FALSE(parts[0].departures[0].dead);
  EXPECT_EQ(parts[0].departures[0].chunks, ChunkRange::of({20}, 4));
  EXPECT_TRUE(parts[1].departures[0].dead);
  ASSERT_EQ(parts[2].departures.size(), 2u);
  EXPECT_EQ(parts[2].departures[0].source, TierIndex{1});
  EXPECT_EQ(parts[2].departures[0].target, TierIndex{2});
  EXPECT_EQ(parts[2].departures[1].target, TierIndex{1});
  ASSERT_EQ(parts[1].fetches.size(), 1u) << "one part before the plan says";
  EXPECT_EQ(parts[1].fetches[0].source, TierIndex{2});
  EXPECT_EQ(parts[1].fetches[0].chunks, ChunkRange::of({21}, 2));
}

// The plan keeps unit 0, and fetches unit 1 in each step.
TEST(StepStart, SaysWhatThePlanHasInFastMemoryAndWhatNot) {
  Plan plan;
  plan.moves = {move(0, 1, 1, 0, Verb::fetch), move(1, 1, 0, 1, Verb::evict)};
  plan.moves[0].due = {1};
  const StepStart start = start_of(two_units(), plan);
  ASSERT_EQ(start.near.size(), 1u);
  EXPECT_EQ(start.near[0].chunks, ChunkRange::of({10}, 4));
  EXPECT_EQ(start.near[0].first_use, 0u);
  ASSERT_EQ(start.away.size(), 1u);
  EXPECT_EQ(start.away[0].chunks, ChunkRange::of({20}, 4));
  EXPECT_EQ(start.away[0].first_use, 1u);
}

TEST(StepStart, CountsWhatIsFetchedForTheNextStepAsThere) {
  Plan plan;  // unit 1 comes at the step's end, for op 1 of the next one; unit 0 is dropped, and no matter of ours
  plan.moves = {move(1, 1, 0, 1, Verb::evict), move(2, 1, 1, 0, Verb::fetch), move(2, 0, 0, 1, Verb::drop)};
  plan.moves[1].due = {1};
  const StepStart start = start_of(two_units(), plan);
  ASSERT_EQ(start.near.size(), 1u);
  EXPECT_EQ(start.near[0].chunks, ChunkRange::of({20}, 4));
  EXPECT_TRUE(start.away.empty());
}

TEST(StepStart, IsNothingWithoutMoves) {
  const StepStart start = start_of(two_units(), {});
  EXPECT_TRUE(start.near.empty());
  EXPECT_TRUE(start.away.empty());
}

TEST(Tabulate, LeavesTheTierToTheStoreWhereAPlanKnowsOne) {
  Plan plan;
  plan.moves = {move(0, 1, 0, 2, Verb::evict), move(2, 1, 2, 0, Verb::fetch), move(2, 0, 0, 2, Verb::evict)};
  const auto parts = tabulate(two_units(), plan, chunk);
  EXPECT_EQ(parts[0].departures[0].target, TierIndex{0});
  EXPECT_EQ(parts[2].departures[0].target, TierIndex{0});
}

TEST(Tabulate, TellsADropThatIsMadeAgainFromOneThatIsNot) {
  Plan plan;
  plan.moves = {move(0, 0, 0, 0, Verb::drop), move(1, 1, 0, 0, Verb::drop)};
  plan.recomputations = {{.before = {2}, .producer = {0}, .tensor = {0}}};
  const auto parts = tabulate(two_units(), plan, chunk);
  ASSERT_EQ(parts[0].departures.size(), 1u);
  EXPECT_TRUE(parts[0].departures[0].recomputed);
  EXPECT_FALSE(parts[1].departures[0].recomputed);
  ASSERT_EQ(parts[2].made.size(), 1u);
  EXPECT_EQ(parts[2].made[0].chunks, ChunkRange::of({10}, 4));
}

TEST(StepPlan, KeepsTheShortestTimeOfEachPart) {
  StepLog log;
  for (const std::int64_t time : {1000, 1000, 1000}) {
    log.ops.emplace_back();
    log.ops.back().time = {time};
  }
  StepPlan plan(log, {.chunk = chunk, .policy = "on-demand"});
  const Nanoseconds times[] = {{500}, {2000}, {1000}}, later[] = {{700}, {900}, {3000}}, stalls[] = {{}, {}, {}};
  plan.measure({.time = {}, .stall = {}, .times = times, .stalls = stalls}, {});
  plan.measure({.time = {}, .stall = {}, .times = later, .stalls = stalls}, {});
  const std::span<const Nanoseconds> least = plan.least_times();
  EXPECT_EQ(std::vector<Nanoseconds>(least.begin(), least.end()), (std::vector<Nanoseconds>{{500}, {900}, {1000}}));
}

// A paper's policy plans whole tensors.
TEST(StepPlan, CutsLargeWeightsForPoliciesThatPlanParts) {
  StepLog log;
  log.tensors = {{.name = "weight", .bytes = {6 * chunk.value}}};
  log.ops = {{.name = "use", .reads = {0}, .writes = {}}};
  for (const auto& [policy, units] : {std::pair{"vedette", 3u}, {"sentinel", 1u}, {"dtr", 1u}, {"on-demand", 1u}})
    EXPECT_EQ(StepPlan(log, {.chunk = chunk, .policy = policy, .fast_memory = {96 * chunk.value}}).units().where.size(),
              units)
        << policy;
}

// Op 1 makes a tensor in a chunk in which the one of op 0 lives, and another in a chunk of its own.
TEST(StepPlan, TellsPoliciesWhichUnitsAnOpMakesAlone) {
  StepLog log;
  const auto born = [&](std::uint64_t chunks_before, std::uint64_t bytes, std::uint32_t birth, std::uint32_t op) {
    log.tensors.push_back({.name = "t", .bytes = {bytes}, .offset = chunks_before * chunk.value / 2, .birth = birth});
    log.tensors.back().birth_op = op;
  };
  born(0, chunk.value / 2, 1, 0);
  born(1, chunk.value / 2, 2, 1);
  born(4, chunk.value, 3, 1);
  log.ops = {{.name = "first", .reads = {}, .writes = {}, .events = {0, 1}},
             {.name = "second", .reads = {}, .writes = {}, .events = {1, 3}},
             {.name = "use", .reads = {0, 1, 2}, .writes = {}, .events = {3, 3}}};
  Units units = form_units(log, chunk);
  tell_what_runs_again(units, log, {1, 1, 0}, chunk);
  const Op& second = units.trace.ops[1];
  ASSERT_EQ(second.writes.size(), 2u);
  EXPECT_EQ(second.reads.size(), 1u) << "the chunk that it shares is changed in place";
  EXPECT_TRUE(units.trace.ops[0].runs_again.value());
  EXPECT_FALSE(units.trace.ops[2].runs_again.value());
}

// Sections are learned once and may fail later: then the step is cut anew, from whole ops.
TEST(StepPlan, KnowsWhatRunsAgainHoweverOftenOpsAreCut) {
  StepLog log;
  for (const char* const name : {"large", "make", "use"}) log.ops.push_back({.name = name, .time = {1000}});
  StepPlan plan(log, {.chunk = chunk, .policy = "on-demand"});
  plan.can_recompute(log, {0, 1, 0});
  const auto runs_again = [&] {
    std::vector<std::string> names;
    for (const Op& op : plan.units().trace.ops)
      if (op.runs_again.value()) names.push_back(op.name);
    return names;
  };
  const SectionedOp in_three{.op = 0, .sections = std::vector<LogSection>(3)}, in_two{.op = 1, .sections = {{}, {}}};
  const std::vector<std::string> make = {"make"};
  plan = plan.in_sections(cut_into_sections(log, std::span(&in_three, 1)));
  EXPECT_EQ(runs_again(), make);
  plan = plan.in_sections(cut_into_sections(log, {}));
  EXPECT_EQ(runs_again(), make) << "as numbered by the program, not by the sections of before";
  plan = plan.in_sections(cut_into_sections(log, std::span(&in_two, 1)));
  EXPECT_EQ(runs_again(), std::vector<std::string>()) << "a section does not run again by itself";
  plan = plan.in_sections(cut_into_sections(log, std::span(&in_three, 1)));
  EXPECT_EQ(runs_again(), make);
}

TEST(Tabulate, KnowsTheNextUseAlsoInTheNextStep) {
  const auto parts = tabulate(two_units(), {}, chunk);
  ASSERT_EQ(parts[0].next_uses.size(), 1u);
  EXPECT_EQ(parts[0].next_uses[0].after, 2u);
  EXPECT_EQ(parts[1].next_uses[0].after, ticks_of_a_step + 1);
  EXPECT_EQ(parts[2].next_uses[0].after, ticks_of_a_step);
}

StepLog log_of(const std::vector<std::string>& ops) {
  StepLog log;
  for (const std::string& name : ops) log.ops.push_back({.name = name});
  return log;
}

std::unique_ptr<Bucket> fresh(BucketStore& store, const std::vector<std::uint64_t>& hashes, std::uint64_t step,
                              AddressPlan addresses = {}) {
  auto made = std::make_unique<Bucket>(store.next_id(), log_of(std::vector<std::string>(hashes.size(), "op")), hashes,
                                       std::move(addresses), StepPlan::Options{.chunk = chunk, .policy = "on-demand"});
  made->profiled(step, 0);
  return made;
}

Bucket& add(BucketStore& store, const std::vector<std::uint64_t>& hashes, std::uint64_t step) {
  return store.add(fresh(store, hashes, step));
}

std::uint64_t prefix(const std::vector<std::uint64_t>& hashes) {
  std::uint64_t all = 0;
  for (const std::uint64_t hash : hashes) all = mix(all, hash);
  return all;
}

TEST(BucketStore, FollowsTheSequenceThatTheStepRepeats) {
  BucketStore store;
  Bucket& one = add(store, {1, 2, 3}, 1);
  Bucket& other = add(store, {1, 2, 4}, 2);
  store.begin_step();
  EXPECT_EQ(store.current(), &other) << "the latest is the likeliest";
  EXPECT_FALSE(store.follow(0, prefix({1})));
  EXPECT_FALSE(store.follow(1, prefix({1, 2})));
  EXPECT_TRUE(store.follow(2, prefix({1, 2, 3})));
  EXPECT_EQ(store.current(), &one);
  store.ran_whole();
  EXPECT_EQ(store.latest(), &one);
  store.begin_step();
  EXPECT_EQ(store.current(), &one);
  EXPECT_TRUE(store.follow(0, prefix({9})));
  EXPECT_EQ(store.current(), nullptr) << "on demand";
  EXPECT_FALSE(store.follow(1, prefix({9, 1})));
}

TEST(BucketStore, KeepsTenAndLetsTheLongestUnusedGo) {
  BucketStore store;
  for (std::uint64_t b = 0; b < 10; ++b) add(store, {b}, b + 1);
  EXPECT_EQ(store.retire(chunk), nullptr);
  store.begin_step();
  store.follow(0, prefix({0}));
  store.current()->ran(50);
  add(store, {99}, 51);
  const auto gone = store.retire(chunk);
  ASSERT_NE(gone, nullptr);
  EXPECT_EQ(gone->id(), 2u);
  EXPECT_EQ(store.all().size(), 10u);
}

// Each of them may be what no step has needed for the longest time.
TEST(BucketStore, TheLatestTheCurrentAndTheComingOneStay) {
  BucketStore store;
  for (std::uint64_t b = 0; b < 10; ++b) add(store, {b}, b + 1);
  store.begin_step();
  store.follow(0, prefix({0}));
  store.ran_whole();
  store.follow(0, prefix({1}));
  store.expect(fresh(store, {99}, 0));
  const auto gone = store.retire(chunk);
  ASSERT_NE(gone, nullptr);
  EXPECT_EQ(gone->id(), 3u);
  EXPECT_EQ(store.find(1), store.latest());
  EXPECT_EQ(store.find(2), store.current());
  EXPECT_EQ(store.find(11), store.coming());
}

TEST(BucketStore, OfZonesThatTakeTooMuchOfTheArenaTheLongestUnusedGoes) {
  Arena arena(Mapping::reserve({8 * chunk.value}, chunk).value(), chunk);
  StepLog empty;  // its zone is a chunk
  BucketStore store;
  for (std::uint64_t b = 0; b < 6; ++b) store.add(fresh(store, {b}, b + 1, AddressPlan(empty, 0, arena, chunk)));
  EXPECT_EQ(store.retire({6 * chunk.value}), nullptr);
  EXPECT_EQ(store.retire({5 * chunk.value})->id(), 1u);
  EXPECT_EQ(store.retire(chunk)->id(), 2u);
  EXPECT_EQ(store.retire(chunk), nullptr) << "four stay, however large";
  for (const std::uint64_t id : {3, 4, 5}) EXPECT_EQ(store.retire_idle()->id(), id);
  EXPECT_EQ(store.retire_idle(), nullptr) << "the next step begins with it";
}

// --- stacks ----------------------------------------------------------------------------------------------------------

TEST(Stack, AMachineHasATierAndTwoLinksForEachSlowOne) {
  const Tier slow[] = {{.name = "numa", .capacity = {1 << 20}, .addressable = true},
                       {.name = "nvme", .capacity = {1 << 30}}};
  const LinkHabits habits[] = {{.speed = {.read = 10'000, .write = 8'000, .mixed = 18'000}, .latency = {2'000}},
                               {.speed = {.read = 3'000, .write = 2'000, .mixed = 2'500}, .latency = {90'000}}};
  const Machine machine = machine_of({1 << 16}, chunk, slow, habits);
  ASSERT_EQ(machine.tiers.size(), 3u);
  EXPECT_EQ(machine.tiers[1].name, "numa");
  ASSERT_EQ(machine.links.size(), 4u);
  const Link &in = *machine.link({1}, {0}), &from_disk = *machine.link({2}, {0}), &to_disk = *machine.link({0}, {2});
  EXPECT_EQ(in.bytes_per_s, 10'000u);
  EXPECT_EQ(in.latency, Nanoseconds{2'000});
  EXPECT_EQ(in.alone_bytes_per_s, 0u);
  // one bus: what each carries beside the other, and alone
  EXPECT_EQ(from_disk.bytes_per_s, 1'500u);
  EXPECT_EQ(to_disk.bytes_per_s, 1'000u);
  EXPECT_EQ(from_disk.alone_bytes_per_s, 2'500u);
  EXPECT_EQ(to_disk.alone_bytes_per_s, 2'000u);
}

// What a planner takes for the bus of one slow tier is not the other one's.
TEST(Stack, TwoHalfDuplexTiersAreTwoBuses) {
  const Tier slow[] = {{.name = "host", .capacity = {1 << 20}}, {.name = "nvme", .capacity = {1 << 30}}};
  const LinkHabits half_duplex{.speed = {.read = 3'000, .write = 2'000, .mixed = 2'500}, .latency = {}};
  const LinkHabits habits[] = {half_duplex, half_duplex};
  const Machine bus = on_its_bus(machine_of({1 << 16}, chunk, slow, habits));
  EXPECT_TRUE(share_a_bus(*bus.link({1}, {0}), *bus.link({0}, {1})));
  EXPECT_TRUE(share_a_bus(*bus.link({2}, {0}), *bus.link({0}, {2})));
  EXPECT_FALSE(share_a_bus(*bus.link({1}, {0}), *bus.link({2}, {0})));
  EXPECT_EQ(bus.link({2}, {0})->bytes_per_s, 2'500u);
}

TEST(Stack, AnUnknownTierIsRefusedWithTheOnesThereAre) {
  for (const char* const slow : {"tape", "tape:/dev/st0", "host:x", "nvme", "host+nvme:.", "nvme:.+host:1GiB", ""}) {
    const auto stack = open_stack({.fast_memory = {1 << 20}, .slow = slow});
    if (std::string_view(slow).starts_with("nvme:")) {
      EXPECT_NE(stack.error().message.find("No such file"), std::string::npos) << "a directory's name may have a '+'";
      continue;
    }
    ASSERT_FALSE(stack) << slow;
    EXPECT_EQ(stack.error().message, "slow tier '" + std::string(slow) +
                                         "' is unknown; use nvme:DIRECTORY or host or host:SIZE+nvme:DIRECTORY or "
                                         "numa:NODE+nvme:DIRECTORY or numa:NODE");
  }
}

TEST(Stack, ANodeOverADiskIsNoNodeWithALongName) {
  const auto first_that_reads = [](std::string_view slow) {
    for (const StackKind& kind : stack_kinds())
      if (arguments_of(kind.usage, slow)) return kind.usage;
    return std::string_view();
  };
  EXPECT_EQ(first_that_reads("numa:1+nvme:/data"), "numa:NODE+nvme:DIRECTORY");
  EXPECT_EQ(first_that_reads("numa:1:64GiB+nvme:/data"), "numa:NODE+nvme:DIRECTORY");
  EXPECT_EQ(first_that_reads("numa:1:64GiB"), "numa:NODE");
  EXPECT_EQ(first_that_reads("host:1GiB+nvme:/data"), "host:SIZE+nvme:DIRECTORY");
}

TEST(Stack, ASpeedAfterTheTierBoundsTheSlowestOne) {
  const auto open = [](const std::string& slow) {
    return open_stack({.fast_memory = {1 << 20}, .slow = slow, .chunk = {64 << 10}});
  };
  const std::string temporary = ::testing::TempDir(), both = "throttled to one bus, read 500 MB/s, write 500 MB/s";
  for (const std::string& slow :
       {std::string("host@500MB/s"), "nvme:" + temporary + "@0.5GB/s", "host:4MiB+nvme:" + temporary + "@0.5GB/s"}) {
    const auto stack = open(slow);
    ASSERT_TRUE(stack) << stack.error().message;
    EXPECT_NE(stack->store->mechanism().find(both), std::string::npos) << slow << ": " << stack->store->mechanism();
  }
  EXPECT_EQ(open("host")->store->mechanism().find("throttled"), std::string::npos);
  for (const char* const speed : {"", "0", "x", "1.", ".5", "1..5", "-1", "0.0001"})
    for (const char* const unit : {"MB/s", "B/s"}) {
      const auto refused = open("host@" + std::string(speed) + unit);
      ASSERT_FALSE(refused) << speed << unit;
      EXPECT_NE(refused.error().message.find("has no speed after '@'; write 500MB/s or 0.5GB/s"), std::string::npos);
    }
  EXPECT_NE(open("nvme:/no/such@folder").error().message.find("No such file"), std::string::npos);
}

TEST(Stack, MaxWritesBoundsWhatADiskIsWritten) {
  const auto open = [](const std::string& slow, const std::string& most) {
    return open_stack({.fast_memory = {1 << 20}, .slow = slow, .max_writes = most, .chunk = {64 << 10}});
  };
  const std::string disk = "nvme:" + ::testing::TempDir();
  for (const std::string& slow : {disk, "host:4MiB+" + disk}) {
    const auto stack = open(slow, "864GB/day");
    ASSERT_TRUE(stack) << stack.error().message;
    EXPECT_EQ(stack->writes_bytes_per_s, 10'000'000u);
    EXPECT_NE(stack->store->mechanism().find("read unlimited, write 10 MB/s"), std::string::npos);
  }
  EXPECT_EQ(open(disk, "")->writes_bytes_per_s, 0u);
  EXPECT_EQ(open(disk, "much").error().message,
            "max_writes 'much' is no number of bytes a day; write 500GB/day or 2TB/day");
  EXPECT_EQ(open("host", "1TB/day").error().message,
            "max_writes '1TB/day' bounds writes to a disk, and slow tier 'host' has none; leave it out");
}

TEST(Stack, APathAloneAndASpeedWithoutAUnitAreToldWhatToWrite) {
  const auto message = [](const std::string& slow) {
    const auto stack = open_stack({.fast_memory = {1 << 20}, .slow = slow, .chunk = {64 << 10}});
    return stack ? std::string("opens") : stack.error().message;
  };
  for (const std::string path : {"/data", "./data", "../data", "~/data"})
    EXPECT_EQ(message(path), "slow tier '" + path + "' is unknown; did you mean 'nvme:" + path + "'?");
  const std::string folder = ::testing::TempDir() + "vedette_stack@5";
  std::filesystem::remove_all(folder);
  EXPECT_EQ(message("nvme:" + folder), "slow tier 'nvme:" + folder +
                                           "' has a speed without a unit after '@'; write @500MB/s or @0.5GB/s, or "
                                           "make the directory first where the name is meant so");
  EXPECT_FALSE(std::filesystem::exists(folder));
  std::filesystem::create_directory(folder);
  EXPECT_EQ(message("nvme:" + folder), "opens");
  std::filesystem::remove_all(folder);
}

TEST(Stack, ATildeIsTheHomeDirectory) {
  const char* const before = ::getenv("HOME");
  const std::string home = ::testing::TempDir() + "vedette_home";
  std::filesystem::create_directories(home + "/spill");
  ::setenv("HOME", home.c_str(), 1);
  for (const char* const slow : {"nvme:~", "nvme:~/spill", "host:4MiB+nvme:~/spill@0.5GB/s"}) {
    const auto stack = open_stack({.fast_memory = {1 << 20}, .slow = slow, .chunk = {64 << 10}});
    ASSERT_TRUE(stack) << slow << ": " << stack.error().message;
    EXPECT_EQ(stack->disk, std::string(slow).find("spill") == std::string::npos ? home : home + "/spill");
  }
  before == nullptr ? ::unsetenv("HOME") : ::setenv("HOME", before, 1);
  std::filesystem::remove_all(home);
}

TEST(Stack, AnotherNumaNodeIsATierWhereThereIsOne) {
  const std::vector<NumaNode> nodes = find_numa_nodes();
  const auto open = [](const std::string& node) {
    return open_stack({.fast_memory = {1 << 20}, .slow = "numa:" + node, .chunk = {64 << 10}});
  };
  if (nodes.size() < 2) {
    EXPECT_EQ(open("1").error().message,
              "slow tier 'numa:1': this machine has one NUMA node, whose memory is the fast one; use nvme:DIRECTORY");
    return;
  }
  const auto stack = open(std::to_string(nodes.back().number));
  ASSERT_TRUE(stack) << stack.error().message;
  EXPECT_GT(stack->slow.at(0).capacity.value, 0u);
  EXPECT_LT(stack->slow.at(0).capacity, nodes.back().memory) << "room is what is free";
  for (const char* const none : {"x", "999", ""})
    EXPECT_NE(open(none).error().message.find("there is no such NUMA node; there are 0"), std::string::npos);
}

TEST(Stack, HostMemoryOverADiskIsTwoTiersOfOneStore) {
  const auto stack =
      open_stack({.fast_memory = {1 << 20}, .slow = "host:4MiB+nvme:" + ::testing::TempDir(), .chunk = {64 << 10}});
  ASSERT_TRUE(stack) << stack.error().message;
  EXPECT_EQ(stack->store->tiers(), 2u);
  EXPECT_EQ(stack->store->slots_of({1}), 62u) << "two are buffers";
  ASSERT_EQ(stack->slow.size(), 2u);
  EXPECT_EQ(stack->slow[0].name, "host");
  EXPECT_EQ(stack->slow[0].capacity.value, 55u * 65536) << "an eighth is spare";
  EXPECT_EQ(stack->slow[1].name, "nvme");
  for (const char* const size : {"", "x", "4", "8 GB", "-1", "1e9", "600KiB", "99999999999TiB"}) {
    const auto refused = open_stack({.fast_memory = {1 << 20},
                                     .slow = "host:" + std::string(size) + "+nvme:" + ::testing::TempDir(),
                                     .chunk = {64 << 10}});
    ASSERT_FALSE(refused) << size;
    EXPECT_NE(refused.error().message.find("give a size such as 8GiB, of at least 640.0 KiB"), std::string::npos)
        << refused.error().message;
  }
}

}  // namespace
}  // namespace vedette::detail::step_plan_test
