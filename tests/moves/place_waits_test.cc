// The time of a step in places, by hand: four ops of a microsecond each, links of a byte a nanosecond.
#include "moves/place_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vedette::detail::place_waits_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::uint32_t ops = 4;
constexpr std::uint64_t chunk = 4096, bytes = 2000;  // whose copy takes 2 us

// Op i makes tensor i, which lives to the step's end.
TensorUnits four_births() {
  StepLog log;
  for (std::uint32_t i = 0; i < ops; ++i) {
    log.tensors.push_back({.name = "t", .bytes = {bytes}, .offset = i * chunk, .birth = i + 1, .birth_op = i});
    log.tensors.back().dies_at_seam = true;
    log.ops.push_back({.name = "op", .time = {1000}, .reads = {}, .writes = {i}, .events = {i, i + 1}});
  }
  return tensor_units(log, {chunk});
}

Machine over(std::uint64_t bytes_per_s) {
  return {.tiers = {{.name = "gpu", .capacity = {}, .addressable = true}, {.name = "host", .capacity = {1 << 30}}},
          .links = {{.source = {1}, .target = {0}, .bytes_per_s = bytes_per_s},
                    {.source = {0}, .target = {1}, .bytes_per_s = bytes_per_s}},
          .granule = {512},
          .whole_tensors = true};
}

struct Leaving {
  std::uint32_t tensor = 0, due = 0;  // behind its op
};

// Births at these offsets.
TimeInPlaces in_places(const std::vector<std::uint64_t>& offsets, const std::vector<Leaving>& leaving) {
  const TensorUnits step = four_births();
  Plan plan;
  for (const Leaving& each : leaving)
    plan.moves.push_back({.issue = {each.tensor},
                          .due = {each.due},
                          .extent = {{each.tensor}, {}},
                          .source = {0},
                          .target = {1},
                          .verb = Verb::evict});
  const MoveTable parts = tabulate(step.units, plan, {chunk}, Fetches::as_planned);
  PlannedPlaces places;
  for (std::uint32_t t = 0; t < ops; ++t) places.births[step.units.where[t].first] = offsets[t];
  return time_in_places({step.units, step.moments}, parts, places, over(1'000'000'000));
}
Nanoseconds time_of(const std::vector<std::uint64_t>& offsets, const std::vector<Leaving>& leaving) {
  return in_places(offsets, leaving).step;
}

TEST(PlaceWaits, AStepThatMovesNothingTakesItsOps) { EXPECT_EQ(time_of({0, 2048, 4096, 6144}, {}), Nanoseconds{4000}); }

TEST(PlaceWaits, ABirthWaitsForTheCopyOutOfItsPlace) {
  EXPECT_EQ(time_of({0, 0, 4096, 6144}, {{0, 1}}), Nanoseconds{6000}) << "2 us";
  EXPECT_EQ(time_of({0, 2048, 0, 6144}, {{0, 2}}), Nanoseconds{5000}) << "an op runs beside the copy";
  EXPECT_EQ(time_of({0, 2048, 4096, 0}, {{0, 3}}), Nanoseconds{4000}) << "two do";
  EXPECT_EQ(time_of({0, 2048, 1024, 6144}, {{0, 2}}), Nanoseconds{5000}) << "of a part of its place";
}

TEST(PlaceWaits, CopiesOutRunOneAfterTheOther) {
  EXPECT_EQ(time_of({0, 2048, 4096, 2048}, {{0, 2}, {1, 3}}), Nanoseconds{6000}) << "the second ends 4 us after op 0";
}

TEST(PlaceWaits, ACopyOutWaitsForTheLastUseOfItsTensor) {
  EXPECT_THAT(in_places({0, 2048, 4096, 6144}, {}).waited_for, Each(false)) << "births wait for nothing";
  EXPECT_THAT(in_places({0, 2048, 4096, 6144}, {{0, 1}}).waited_for, ElementsAre(true, false, false, false));
  EXPECT_THAT(in_places({0, 2048, 0, 6144}, {{0, 2}, {1, 2}}).waited_for, ElementsAre(true, true, false, false));
}

// A weight leaves behind the first op and comes back for the last one.
TimeInPlaces of_a_round_trip(bool changes, std::uint64_t fetched_to, std::uint64_t born_at) {
  StepLog log;
  log.tensors.push_back({.name = "weight", .bytes = {bytes}, .offset = 0});
  log.tensors.push_back(
      {.name = "t", .bytes = {bytes}, .offset = chunk, .birth = 1, .death = 2, .birth_op = 1, .death_op = 1});
  log.ops.push_back({.name = "uses", .time = {1000}, .reads = {0}, .writes = {}, .events = {0, 0}});
  if (changes) log.ops[0].writes.push_back(0);
  log.ops.push_back({.name = "makes", .time = {1000}, .reads = {}, .writes = {1}, .events = {0, 1}});
  log.ops.push_back({.name = "last", .time = {1000}, .reads = {0}, .writes = {}, .events = {2, 2}});
  const TensorUnits step = tensor_units(log, {chunk});
  Plan plan;
  plan.moves = {{.issue = {0}, .due = {1}, .extent = {{0}, {}}, .source = {0}, .target = {1}, .verb = Verb::evict},
                {.issue = {1}, .due = {2}, .extent = {{0}, {}}, .source = {1}, .target = {0}, .verb = Verb::fetch}};
  MoveTable parts = tabulate(step.units, plan, {chunk}, Fetches::as_planned);
  PlannedPlaces places;
  places.at_start = {{ChunkRange::of({step.units.where[0].first}, step.units.where[0].count), 0}};
  parts.fetches_to_place(1)[0].place = fetched_to;
  places.births[step.units.where[1].first] = born_at;
  return time_in_places({step.units, step.moments}, parts, places, over(1'000'000'000));
}
Nanoseconds time_of_a_round_trip(bool changes, std::uint64_t fetched_to, std::uint64_t born_at) {
  return of_a_round_trip(changes, fetched_to, born_at).step;
}

TEST(PlaceWaits, AnOpWaitsForAFetchBehindTheCopyOut) {
  EXPECT_EQ(time_of_a_round_trip(true, 4096, 8192), Nanoseconds{6000}) << "4 us, of which an op takes one";
  EXPECT_EQ(time_of_a_round_trip(true, 0, 8192), Nanoseconds{6000}) << "its own place is free when it is away";
  EXPECT_EQ(time_of_a_round_trip(true, 4096, 0), Nanoseconds{6000}) << "a birth waits meanwhile";
}

TEST(PlaceWaits, WhatNothingChangesLeavesWithoutACopy) {
  EXPECT_EQ(time_of_a_round_trip(false, 4096, 8192), Nanoseconds{4000});
}

TEST(PlaceWaits, AFetchWaitsForTheLastUseInItsPlace) {
  EXPECT_THAT(of_a_round_trip(false, 0, 8192).waited_for, ElementsAre(true, false, false))
      << "it left without a copy, and comes back to its own place";
}

// A tensor of op 0 dies behind op 1, and the weight that left behind op 0 comes into its place for op 3.
TEST(PlaceWaits, AFetchWaitsForTheOpBehindWhichItsPlaceIsFree) {
  StepLog log;
  log.tensors.push_back({.name = "weight", .bytes = {bytes}, .offset = 0});
  log.tensors.push_back(
      {.name = "t", .bytes = {bytes}, .offset = chunk, .birth = 1, .death = 2, .birth_op = 0, .death_op = 1});
  for (std::uint32_t op = 0; op < ops; ++op)
    log.ops.push_back(
        {.name = "op", .time = {1000}, .reads = {}, .writes = {}, .events = {op < 2 ? op : 2, op < 2 ? op + 1 : 2}});
  log.ops[0].reads = {0};
  log.ops[1].reads = {1};
  log.ops[3].writes = {0};
  const TensorUnits step = tensor_units(log, {chunk});
  Plan plan;
  plan.moves = {{.issue = {0}, .due = {1}, .extent = {{0}, {}}, .source = {0}, .target = {1}, .verb = Verb::evict},
                {.issue = {2}, .due = {3}, .extent = {{0}, {}}, .source = {1}, .target = {0}, .verb = Verb::fetch}};
  MoveTable parts = tabulate(step.units, plan, {chunk}, Fetches::as_planned);
  parts.fetches_to_place(2)[0].place = 8192;
  PlannedPlaces places;
  places.births[step.units.where[1].first] = 8192;
  const TimeInPlaces times = time_in_places({step.units, step.moments}, parts, places, over(1'000'000'000));
  EXPECT_THAT(times.waited_for, ElementsAre(true, true, false, false)) << "0: the copy out";
}

}  // namespace
}  // namespace vedette::detail::place_waits_test
