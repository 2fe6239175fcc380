// What a report says of tensors that were dropped and recomputed, and the sentence of a plan that does so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profiler/explain.h"
#include "profiler/report/report.h"
#include "report/hand_made.h"

namespace vedette::report::recomputed_test {
namespace {

using ::testing::HasSubstr;

report::Run loaded() {
  const by_hand::Folder folder;
  return load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
}

Report hand_made() { return analyse(loaded(), {}); }

TEST(ReportRecomputed, SaysWhatItCostAndWhatDidNotTravel) {
  const Report report = hand_made();
  const Recomputed& made = report.recomputed;
  EXPECT_EQ(made.groups, 1u);
  EXPECT_EQ(made.ops, 2u);
  EXPECT_EQ(made.bytes, Bytes{8192});
  EXPECT_EQ(made.time, Nanoseconds{3000});
  EXPECT_EQ(made.spared, Bytes{16384});
  EXPECT_EQ(made.spared_time, Nanoseconds{164});
  ASSERT_EQ(made.tensors.size(), 1u);
  EXPECT_EQ(made.tensors[0].name, "hidden");
  EXPECT_EQ(made.tensors[0].bytes, Bytes{8192});
  EXPECT_EQ(made.tensors[0].times, 1u);
  EXPECT_THAT(format_text(report, nullptr), HasSubstr("8.0 KiB in 1 groups, by 2 ops that ran again"));
  const auto json = nlohmann::json::parse(format_json(report, nullptr));
  EXPECT_EQ(json["run"]["recomputed"]["spared_bytes"], 16384);
}

TEST(ReportRecomputed, SaysWhyByThePlansDrop) {
  report::Run run = loaded();
  EXPECT_EQ(recomputed_of(run).tensors[0].reason, "") << "its plan drops nothing";
  run.plan->moves.push_back({.verb = "drop", .issue = 1, .due = 2, .unit = 3, .reason = "of another unit"});
  run.plan->moves.push_back({.verb = "evict", .issue = 1, .due = 2, .unit = 2, .reason = "no drop"});
  run.plan->moves.push_back({.verb = "drop", .issue = 1, .due = 2, .unit = 2, .reason = "not used for 3 ms"});
  const Report report = analyse(run, {});
  EXPECT_EQ(report.recomputed.tensors[0].reason, "not used for 3 ms");
  EXPECT_THAT(format_text(report, nullptr), HasSubstr("hidden, 8.0 KiB, 1 times\n  not used for 3 ms\n"));
  EXPECT_EQ(nlohmann::json::parse(format_json(report, nullptr))["run"]["recomputed"]["tensors"][0]["reason"],
            "not used for 3 ms");
}

// A convolution, normalised and rectified in place: dropped after its use, it comes from all three ops.
TEST(Explain, TellsThatAChainInPlaceRunsAgainAsAWhole) {
  Trace trace;
  trace.tensors = {{.name = "x", .bytes = {4096}, .kind = TensorKind::weight, .persistent = true},
                   {.name = "y", .bytes = 2_MiB},
                   {.name = "z", .bytes = {4096}}};
  const auto op = [&](const char* name, std::int64_t ms, std::vector<TensorIndex> reads,
                      std::vector<TensorIndex> writes, std::vector<TensorIndex> frees = {}) {
    trace.ops.push_back({.name = name,
                         .time = {ms * 1'000'000},
                         .reads = std::move(reads),
                         .writes = std::move(writes),
                         .frees = std::move(frees),
                         .runs_again = true});
  };
  op("convolution", 4, {{0}}, {{1}});
  op("mul_", 2, {{1}}, {{1}});
  op("relu_", 1, {{1}}, {{1}});
  op("head", 8, {{0}}, {{2}});
  op("head again", 16, {{2}}, {{2}});
  op("backward", 1, {{1}, {2}}, {{0}}, {{1}, {2}});
  const Machine machine{
      .tiers = {{.name = "dram", .capacity = 4_MiB, .addressable = true}, {.name = "nvme", .capacity = 64_MiB}},
      .links = {{.source = {0}, .target = {1}, .bytes_per_s = 209'715'200, .latency = {}, .shared = {}},
                {.source = {1}, .target = {0}, .bytes_per_s = 419'430'400, .latency = {}, .shared = {}}},
      .can_recompute = true};
  Plan plan{.home = {{0}, {0}, {0}}};
  plan.moves = {{.issue = {2},
                 .due = {3},
                 .extent = {.tensor = {1}, .part = {}},
                 .source = {0},
                 .target = {1},
                 .verb = Verb::drop}};
  plan.recomputations = {{.before = {5}, .producer = {2}, .tensor = {1}}};
  EXPECT_EQ(explain(trace, machine, plan).at(0).reason,
            "not used for 24.0 ms (after op 2, until op 5), and recomputed before op 5: op 2 'relu_' runs again in 7.0 "
            "ms, where 2.0 MiB out and in would keep the links busy for 15.0 ms");
  trace.ops[1].runs_again = false;
  EXPECT_THAT(explain(trace, machine, plan).at(0).reason, HasSubstr("op 2 'relu_' runs again in 1.0 ms"))
      << "no chain: the judge refuses such a plan";
}

}  // namespace
}  // namespace vedette::report::recomputed_test
