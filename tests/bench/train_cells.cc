// What bench/train_table makes of single runs: which steps count, medians, bars and verdicts.
#include "train_cells.h"

#include <gtest/gtest.h>

namespace vedette::bench::train_cells_test {
namespace {

nlohmann::json run_of(std::size_t planned_from, std::vector<std::uint64_t> step_ns, std::vector<std::uint32_t> losses) {
  const std::vector<std::uint64_t> each(step_ns.size(), 7);
  return {{"planned_from", planned_from}, {"step_ns", step_ns},     {"step_stall_ns", each},
          {"step_bytes_in", each},        {"step_bytes_out", each}, {"step_stall_count", each},
          {"step_faults", each},          {"losses", losses},       {"peak_bytes", 100},
          {"resident_max_bytes", 50},     {"mechanism", "words"},   {"torch", "2.11.0"}};
}

Cell cell(std::string policy, double share, double step_ms, std::uint32_t loss = 1) {
  return {.model = "m", .policy = std::move(policy), .share = share, .step_ms = {step_ms}, .losses = {loss}};
}

TEST(TrainCells, QuartilesLieBetweenNeighbours) {
  EXPECT_EQ(spread({4, 1, 3, 2, 5}), (Spread{2, 3, 4}));
  EXPECT_EQ(spread({10, 20}), (Spread{12.5, 15, 17.5}));
  EXPECT_EQ(spread({6}), (Spread{6, 6, 6}));
  EXPECT_EQ(spread({}), Spread{});
}

TEST(TrainCells, StepsBeforeThePlanAndTheFirstThreeDoNotCount) {
  Cell plain{}, guarded{};
  plain.add(run_of(0, {1000000, 2000000, 3000000, 4000000, 5000000}, {1}), 0);
  EXPECT_EQ(plain.step_ms, (std::vector<double>{4, 5}));
  guarded.add(run_of(4, {1000000, 2000000, 3000000, 4000000, 5000000}, {1}), 0);
  EXPECT_EQ(guarded.step_ms, (std::vector<double>{5}));
  EXPECT_EQ(guarded.bytes_in, (std::vector<std::uint64_t>{7}));
}

TEST(TrainCells, RunsOfACellAddUpAndAreComparedBitByBit) {
  Cell all{};
  all.add(run_of(0, {0, 0, 0, 1000000}, {1, 2}), 0);
  all.add(run_of(0, {0, 0, 0, 2000000}, {1, 2}), 0);
  EXPECT_EQ(all.step_ms, (std::vector<double>{1, 2}));
  EXPECT_TRUE(all.repeats);
  all.add(run_of(0, {0, 0, 0, 3000000}, {1, 3}), 0);
  EXPECT_FALSE(all.repeats);
}

// Plain 95 ms: where the disk needs at most 100 ms, the bar is 100 ms; where it needs 170 ms, 0.85 of its speed are 200
// ms.
TEST(TrainCells, TheBarIsPlainsUnlessTheDiskForbidsIt) {
  EXPECT_FALSE(bar(95, 0).by_disk);
  EXPECT_DOUBLE_EQ(bar(95, 0).step_ms, 100);
  EXPECT_DOUBLE_EQ(bar(95, 99).step_ms, 100);
  EXPECT_TRUE(bar(95, 170).by_disk);
  EXPECT_DOUBLE_EQ(bar(95, 170).step_ms, 200);
}

// 30 bytes read and 10 written at 20 bytes a second (median of three rounds): 2 s, of which three quarters read.
TEST(TrainCells, TheDisksTimeIsItsBytesOverFiosMedian) {
  const Disk disk{.share = 0.25, .moves = BeladyBound{.read = {30}, .written = {10}}, .bytes_per_s = {10, 20, 90}};
  EXPECT_DOUBLE_EQ(disk.step_ms(), 2000);
  EXPECT_EQ(disk.read_percent(), 75);
  EXPECT_DOUBLE_EQ((Disk{.moves = BeladyBound{}}.step_ms()), 0);
  EXPECT_DOUBLE_EQ(Disk{}.step_ms(), 0);
}

// Two tensors of 100 MB are changed in turns in memory for one, at 1 GB/s in both directions together: 100 MB come and
// 100 go at least, and none of it beside an op.
TEST(TrainCells, TheLeastStepIsTheArenasAndWhatAnyPlanMustWait) {
  const auto update = [](std::uint32_t t) { return Op{.time = {10'000'000}, .reads = {{t}}, .writes = {{t}}}; };
  const Tensor weight{.bytes = {100'000'000}, .persistent = true};
  Disk disk{.share = 0.5, .moves = BeladyBound{}, .bytes_per_s = {1e9}};
  disk.prove({.tensors = {weight, weight}, .ops = {update(0), update(1)}}, weight.bytes);
  EXPECT_GE(disk.waits_ms, 199.9);
  EXPECT_LE(disk.waits_ms, 400);
  const std::vector<Cell> cells = {cell("", 0, 100), cell("a", 1, 110), cell("a", 0.5, 400)};
  const std::vector<Disk> disks = {disk};
  const std::vector<Row> all = rows(cells, disks);
  EXPECT_DOUBLE_EQ(all[2].least_ms(), 110 + disk.waits_ms);
  EXPECT_DOUBLE_EQ(all[0].least_ms(), 0);
}

TEST(TrainCells, EachRowHasItsPoliciesOwnArenaAndItsBudgetsDisk) {
  const std::vector<Cell> cells = {cell("", 0, 100), cell("a", 1, 110), cell("a", 0.25, 104), cell("b", 0.25, 106),
                                   cell("a", 0.5, 100, 2)};
  const std::vector<Disk> disks = {{.share = 1, .moves = BeladyBound{}},
                                   {.share = 0.5, .moves = BeladyBound{}},
                                   {.share = 0.25, .moves = BeladyBound{}}};
  const std::vector<Row> all = rows(cells, disks);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].disk, nullptr);
  EXPECT_FALSE(all[1].met);  // 110 > 100 / 0.95
  EXPECT_TRUE(all[2].met);
  EXPECT_EQ(all[2].disk, &disks[2]);
  EXPECT_EQ(all[2].arena_ms, 110);
  EXPECT_FALSE(all[3].met);
  EXPECT_EQ(all[3].arena_ms, 0);
  EXPECT_FALSE(all[4].equal);
}

TEST(TrainCells, WhatStepsInBackwardHasAnArenaAndABoundOfItsOwn) {
  const auto early = [](Cell each) {
    each.step_in_backward = true;
    return each;
  };
  const std::vector<Cell> cells = {cell("", 0, 100), early(cell("", 0, 98)), cell("a", 1, 90), early(cell("a", 1, 80)),
                                   early(cell("a", 0.25, 104))};
  const std::vector<Disk> disks = {{.share = 0.25}, {.share = 0.25, .step_in_backward = true, .moves = BeladyBound{}}};
  const std::vector<Row> all = rows(cells, disks);
  EXPECT_EQ(all[1].plain_ms, 100) << "all are compared to the plain run that steps after backward";
  EXPECT_EQ(all[4].arena_ms, 80);
  EXPECT_EQ(all[4].disk, &disks[1]);
  EXPECT_NE(text(all[4]).find("early"), std::string::npos);
  EXPECT_EQ(text(all[2]).find("early"), std::string::npos);
  EXPECT_TRUE(json(all[4]).at("step_in_backward").get<bool>());
}

TEST(TrainCells, WhereOneOpExceedsTheBudgetNothingIsMetOrMissed) {
  const std::vector<Cell> cells = {cell("", 0, 100), cell("a", 0.2, 90)};
  const std::vector<Disk> disks = {{.share = 0.2}};
  const std::vector<Row> all = rows(cells, disks);
  EXPECT_FALSE(all[1].met);
  EXPECT_NE(text(all[1]).find("no bound"), std::string::npos);
  EXPECT_FALSE(json(all[1]).contains("met"));
}

TEST(TrainCells, ARowThatDidNotRunIsNotMetAndSaysWhy) {
  Cell failed{.model = "m", .policy = "a", .share = 0.2, .failure = "no room"};
  const std::vector<Cell> cells = {cell("", 0, 100), failed};
  const std::vector<Disk> disks = {{.share = 0.2, .moves = BeladyBound{}}};
  const std::vector<Row> all = rows(cells, disks);
  EXPECT_FALSE(all[1].met);
  EXPECT_NE(text(all[1]).find("FAILED: no room"), std::string::npos);
  EXPECT_NE(markdown(all[1]).find("FAILED: no room"), std::string::npos);
}

TEST(TrainCells, DifferentLossesAreSaidInEveryForm) {
  const std::vector<Cell> cells = {cell("", 0, 100), cell("a", 0.5, 100, 2)};
  const std::vector<Disk> disks = {{.share = 0.5, .moves = BeladyBound{}}};
  const std::vector<Row> all = rows(cells, disks);
  EXPECT_NE(text(all[1]).find("LOSSES DIFFER"), std::string::npos);
  EXPECT_NE(markdown(all[1]).find("LOSSES DIFFER"), std::string::npos);
  EXPECT_FALSE(json(all[1]).at("losses_equal").get<bool>());
}

}  // namespace
}  // namespace vedette::bench::train_cells_test
