// What the values say about themselves, against answers worked out by hand.
#include "vedette/model.h"

#include <gtest/gtest.h>

#include "base/readable.h"
#include "model/producers.h"

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
