// What the values say about themselves, against answers worked out by hand.
#include "vedette/model.h"

#include <gtest/gtest.h>

#include "base/daily.h"
#include "base/readable.h"
#include "model/producers.h"
#include "model/wear.h"
#include "vedette/machine.h"

namespace vedette::model_test {
namespace {

// w lives always (100); x is born at op 0 and last used by op 2; y lives in ops 1 and 2 and is freed after op 3.
Trace small() {
  return {.tensors = {{.name = "w", .bytes = {100}, .persistent = true},
                      {.name = "x", .bytes = {10}},
                      {.name = "y", .bytes = {1000}}},
          .ops = {{.name = "a", .reads = {{0}}, .writes = {{1}}},
                  {.name = "b", .workspace = {5000}, .reads = {{1}}, .writes = {{2}}},
                  {.name = "c", .reads = {{1}, {2}}, .writes = {{2}}},
                  {.name = "d", .workspace = {1}, .frees = {{2}}}}};
}

TEST(PeakBytes, IsTheLargestSumOfLiveTensorsAndWorkspace) {
  EXPECT_EQ(peak_bytes(small()), Bytes{100 + 10 + 1000 + 5000});
}

TEST(PeakBytes, KeepsAFreedTensorAliveUntilTheOpThatFreesIt) {
  Trace trace = small();
  trace.ops[1].workspace = {};
  trace.ops[3].workspace = {2000};
  EXPECT_EQ(peak_bytes(trace), Bytes{100 + 1000 + 2000});
}

TEST(PeakBytes, OfNothingIsNothing) { EXPECT_EQ(peak_bytes({}), Bytes{0}); }

TEST(WorkspacesAsTensors, LiveDuringTheirOpsAlone) {
  const Trace before = small(), after = workspaces_as_tensors(before);
  EXPECT_EQ(peak_bytes(after), peak_bytes(before));
  EXPECT_EQ(largest_op_bytes(after), largest_op_bytes(before));
  const auto found = lifetimes(after);
  for (std::uint32_t t = 3; t < after.tensors.size(); ++t) EXPECT_EQ(found[t]->end.value, found[t]->begin.value + 1);
  for (const Op& op : after.ops) EXPECT_EQ(op.workspace, Bytes{0});
}

TEST(LargestOpBytes, CountsAnOperandOnceAndWorkspace) { EXPECT_EQ(largest_op_bytes(small()), Bytes{10 + 1000 + 5000}); }

TEST(Lifetimes, SpanFirstToLastAccess) {
  const auto found = lifetimes(small());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], (Span<OpIndex>{{0}, {1}}));
  EXPECT_EQ(found[1], (Span<OpIndex>{{0}, {3}}));
  EXPECT_EQ(found[2], (Span<OpIndex>{{1}, {3}}));
}

TEST(Lifetimes, AreEmptyForATensorNobodyUses) {
  Trace trace = small();
  trace.tensors.push_back({.name = "idle", .bytes = {1}, .persistent = true});
  EXPECT_EQ(lifetimes(trace)[3], std::nullopt);
}

TEST(Replayable, IsWhatWasTriedAndElseWhatTheNameTells) {
  Op op{.name = "aten::native_batch_norm", .reads = {{0}}, .writes = {{1}}};
  EXPECT_FALSE(replayable(op));
  op.runs_again = true;
  EXPECT_TRUE(replayable(op));
  op.reads = {{0}, {1}};
  EXPECT_FALSE(replayable(op)) << "it changes its operand in place";
  op = {.name = "aten::relu", .reads = {{0}}, .writes = {{1}}};
  EXPECT_TRUE(replayable(op));
  op.runs_again = false;
  EXPECT_FALSE(replayable(op));
}

// Batch normalisation with its statistics (0), then two ops in place, the last with another operand (3).
Trace normalised() {
  return {.tensors = {{.name = "statistics", .bytes = {8}, .persistent = true},
                      {.name = "x", .bytes = {10}},
                      {.name = "y", .bytes = {10}},
                      {.name = "other", .bytes = {10}},
                      {.name = "mean", .bytes = {1}}},
          .ops = {{.name = "make", .writes = {{1}, {3}}},
                  {.name = "aten::native_batch_norm",
                   .time = {7},
                   .workspace = {3},
                   .reads = {{0}, {1}},
                   .writes = {{0}, {2}, {4}},
                   .runs_again = true},
                  {.name = "aten::add_", .time = {2}, .reads = {{2}, {3}}, .writes = {{2}}, .runs_again = true},
                  {.name = "aten::relu_", .time = {1}, .reads = {{2}}, .writes = {{2}}, .runs_again = true}}};
}

TEST(Producers, AreChainsWhereTensorsAreChangedInPlace) {
  const std::vector<Op> found = producers(normalised());
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0], normalised().ops[0]);
  EXPECT_TRUE(replayable(found[1])) << "without its statistics";
  EXPECT_EQ(found[1].reads, (std::vector<TensorIndex>{{1}}));
  EXPECT_EQ(found[1].writes, (std::vector<TensorIndex>{{2}, {4}}));
  EXPECT_TRUE(replayable(found[3]));
  EXPECT_EQ(found[3].name, "aten::relu_");
  EXPECT_EQ(found[3].reads, (std::vector<TensorIndex>{{1}, {3}}));
  EXPECT_EQ(found[3].writes, (std::vector<TensorIndex>{{2}, {4}}));
  EXPECT_EQ(found[3].time, Nanoseconds{10});
  EXPECT_EQ(found[3].workspace, Bytes{3});
}

TEST(Producers, RefuseChainsThatWereNotTriedOrWhoseSourcesChange) {
  Trace trace = normalised();
  trace.ops[2].runs_again.reset();
  EXPECT_TRUE(replayable(producers(trace)[1]));
  EXPECT_FALSE(replayable(producers(trace)[2]));
  EXPECT_FALSE(replayable(producers(trace)[3]));
  trace = normalised();
  trace.ops.insert(trace.ops.begin() + 2, Op{.name = "change", .writes = {{1}}});
  EXPECT_FALSE(replayable(producers(trace)[3])) << "x is read in a version that is gone";
  trace = normalised();
  trace.ops[3].reads = {{2}, {4}};
  EXPECT_TRUE(replayable(producers(trace)[3])) << "what the chain made itself";
  trace.ops[1].writes = {{0}, {2}, {3}, {4}};
  trace.ops[0].writes = {{1}};
  EXPECT_EQ(producers(trace)[3].reads, (std::vector<TensorIndex>{{1}}));
  trace.ops.erase(trace.ops.begin(), trace.ops.begin() + 2);  // of a step before
  EXPECT_FALSE(replayable(producers(trace)[1]));
}

TEST(Readable, ReadsSpeeds) {
  EXPECT_EQ(read_speed("500MB/s"), 500'000'000u);
  EXPECT_EQ(read_speed("0.5GB/s"), 500'000'000u);
  EXPECT_EQ(read_speed("1.25GB/s"), 1'250'000'000u);
  EXPECT_EQ(read_speed("1MB/s"), 1'000'000u);
  for (const char* const other : {"", "MB/s", "0MB/s", "0.5MB/s", "500", "500 MB/s", "5e2MB/s", "-1GB/s", ".5GB/s",
                                  "5.GB/s", "1.2.3GB/s", "0.00000001GB/s", "9999999999GB/s", "5KB/s", "5GiB/s"})
    EXPECT_EQ(read_speed(other), std::nullopt) << other;
}

TEST(Readable, ReadsBytesADay) {
  EXPECT_EQ(read_daily("500GB/day"), 500'000'000'000u);
  EXPECT_EQ(read_daily("1.5TB/day"), 1'500'000'000'000u);
  EXPECT_EQ(read_daily("20MB/day"), 20'000'000u);
  for (const char* const other :
       {"", "GB/day", "0GB/day", "500", "500GB", "500 GB/day", "500GB/s", "-1GB/day", "5KB/day"})
    EXPECT_EQ(read_daily(other), std::nullopt) << other;
}

TEST(Readable, ReadsTheEnduranceOfADrive) {
  EXPECT_EQ(read_endurance("600TBW")->bytes, 600e12);
  EXPECT_EQ(read_endurance("600TBW")->words, "600 TBW");
  EXPECT_EQ(read_endurance("1.2PBW")->words, "1.2 PBW");
  EXPECT_EQ(read_endurance("1DWPD:2TB")->bytes, 2e12 * 365 * 5) << "five years, as most drives are rated";
  EXPECT_EQ(read_endurance("0.5DWPD:960GB:3y")->bytes, 0.5 * 960e9 * 365 * 3);
  for (const char* const other : {"", "TBW", "600", "600TB", "0TBW", "-1TBW", "1e3TBW", "1DWPD", "1DWPD:", "1DWPD:2",
                                  "1DWPD:2TB:", "1DWPD:2TB:5", "600TBW ", " 600TBW", "1.2.3TBW", "0.0001TBW"})
    EXPECT_FALSE(read_endurance(other).has_value()) << other;
}

TEST(Readable, ReadsWhatMayBeWrittenOfWhatRating) {
  EXPECT_EQ(read_max_writes("500GB/day")->a_day, 500'000'000'000u);
  EXPECT_FALSE(read_max_writes("500GB/day")->rated.has_value());
  EXPECT_EQ(read_max_writes("600TBW")->rated->words, "600 TBW");
  EXPECT_FALSE(read_max_writes("600TBW")->a_day.has_value());
  EXPECT_EQ(read_max_writes("1TB/day of 1DWPD:2TB")->a_day, 1'000'000'000'000u);
  EXPECT_EQ(rated_endurance("1TB/day of 1DWPD:2TB")->words, "3.65 PBW");
  EXPECT_FALSE(rated_endurance("").has_value());
  for (const char* const other : {"", "of", " of ", "500GB/day of", "500GB/day of 5", "600TBW of 500GB/day", "much"})
    EXPECT_FALSE(read_max_writes(other).has_value()) << other;
}

TEST(Readable, TellsADaysShareOfAnEndurance) {
  constexpr Nanoseconds a_day{std::int64_t{86'400} * 1'000'000'000};
  const auto rated = read_endurance("600TBW");
  EXPECT_EQ(readable_daily({350'000'000'000}, a_day), "350 GB a day");
  EXPECT_EQ(readable_daily({350'000'000'000}, a_day, rated), "350 GB a day, 0.058 % of its 600 TBW: 4.7 years");
  EXPECT_EQ(readable_daily({6'000'000'000'000}, a_day, rated), "6.0 TB a day, 1 % of its 600 TBW: 100 days");
  EXPECT_EQ(readable_daily({10'000'000'000}, a_day, rated), "10 GB a day, 0.0017 % of its 600 TBW: 164 years");
  EXPECT_EQ(readable_daily({999'000'000}, a_day, rated), "") << "no disk minds that";
  EXPECT_EQ(readable_daily({1}, {0}, rated), "");
  EXPECT_DOUBLE_EQ(endurance_a_day({6'000'000'000'000}, a_day, rated), 0.01);
  EXPECT_DOUBLE_EQ(endurance_a_day({6'000'000'000'000}, a_day, {}), 0);
}

TEST(Wear, CountsWhatGoesToTheLastTierWhereThatIsADisk) {
  const Counters all{.bytes_out = 100, .far_bytes_out = 30, .moved_between_slow_tiers = 5};
  Machine machine{.tiers = {{.name = "dram"}, {.name = "nvme"}}};
  EXPECT_EQ(written_to_disk(all, machine), Bytes{100});
  machine.tiers[1].name = "host";
  EXPECT_EQ(written_to_disk(all, machine), Bytes{0});
  machine.tiers.push_back({.name = "ssd"});
  EXPECT_EQ(written_to_disk(all, machine), Bytes{35}) << "what went past fast memory, too";
  const Trace trace{.tensors = {{.name = "t", .bytes = {40}}}, .ops = {{.name = "op"}}};
  const Plan plan{.moves = {{.extent = {.tensor = {0}}, .source = {0}, .target = {2}, .verb = Verb::evict},
                            {.extent = {.tensor = {0}}, .source = {2}, .target = {0}},
                            {.extent = {.tensor = {0}}, .source = {0}, .target = {1}, .verb = Verb::evict}}};
  EXPECT_EQ(planned_for_disk(trace, machine, plan, {80}), Bytes{40});
  machine.tiers[2].name = "flash";
  EXPECT_EQ(planned_for_disk(trace, machine, plan, {80}), Bytes{0});
  machine.tiers[2].disk = true;
  EXPECT_EQ(planned_for_disk(trace, machine, plan, {80}), Bytes{40}) << "a machine file says so";
}

TEST(Machine, ATierOfAnyNameMayBeADisk) {
  const char* const text = R"({"format":"vedette-machine-1","tiers":[{"name":"dram","bytes":10,"addressable":true},
    {"name":"flash","bytes":10,"addressable":false,"disk":true}],"links":[],"can_recompute":false,"can_reorder":false,
    "whole_tensors":false})";
  const auto machine = parse_machine(text);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_TRUE(machine->tiers[1].is_disk());
  EXPECT_FALSE(machine->tiers[0].is_disk());
  EXPECT_EQ(*parse_machine(format_machine(*machine, "")), *machine);
}

TEST(Readable, TellsASizeInTheLargestUnitThatLeavesOne) {
  EXPECT_EQ(readable({0}), "0 B");
  EXPECT_EQ(readable({1023}), "1023 B");
  EXPECT_EQ(readable({1024}), "1.0 KiB");
  EXPECT_EQ(readable({1024 + 51}), "1.0 KiB");
  EXPECT_EQ(readable({1024 + 52}), "1.1 KiB");
  EXPECT_EQ(readable({(1 << 20) - 1}), "1.0 MiB");  // not 1024.0 KiB
  EXPECT_EQ(readable({10'747'904}), "10.3 MiB");    // 10.25: halves go up
  EXPECT_EQ(readable(1_GiB + 512_MiB), "1.5 GiB");
  EXPECT_EQ(readable({~std::uint64_t{0}}), "16777216.0 TiB");
}

TEST(Readable, GivesTheNumberToo) {
  EXPECT_EQ(readable_exactly({1000}), "1000 bytes");
  EXPECT_EQ(readable_exactly({589'824}), "576.0 KiB (589824 bytes)");
}

TEST(Machine, FindsTheLinkOfAPairOfTiersInItsDirection) {
  const Machine machine{.tiers = {{.name = "dram"}, {.name = "nvme"}},
                        .links = {{.source = {0}, .target = {1}, .bytes_per_s = 7}}};
  ASSERT_NE(machine.link({0}, {1}), nullptr);
  EXPECT_EQ(machine.link({0}, {1})->bytes_per_s, 7u);
  EXPECT_EQ(machine.link({1}, {0}), nullptr);
}

TEST(Replayable, IsNoOpThatReadsWhatItWrites) {
  Op op{.name = "add", .reads = {{0}, {2}}, .writes = {{1}}};
  EXPECT_TRUE(replayable(op));
  op.writes = {{1}, {2}};
  EXPECT_FALSE(replayable(op));
}

}  // namespace
}  // namespace vedette::model_test
