// bench/gpu_hour where no driver is: what a recorded step tells about the next ones, how places are found and joined,
// and that the program says why it measures nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gpu_hour/places.h"
#include "gpu_hour/step_record.h"
#include "gpu_probe/report.h"
#include "machine.h"

namespace vedette::gpu::gpu_hour_test {
namespace {

BlockName born(std::uint32_t number) { return {.age = Age::born, .number = number}; }
BlockName carried(std::uint32_t number) { return {.age = Age::carried, .number = number}; }
BlockName kept(std::uint32_t number) { return {.age = Age::kept, .number = number}; }

// Ten ops: block 0 is kept and used at 1 and 8. The step's births are number 0, from 2 to 4, and number 1, born at 6
// and used at 1 of the next step.
StepRecord recorded() {
  StepRecord record;
  record.use(1, kept(0));
  record.use(1, carried(1));
  record.birth(2, 0, 100);
  record.use(3, born(0));
  record.use(3, born(0));
  record.death(4, born(0));
  record.birth(6, 1, 30);
  record.use(8, kept(0));
  record.end(10);
  return record;
}

TEST(StepRecord, NextUsesAreInThisStepOrCountedOnIntoTheNext) {
  const StepRecord record = recorded();
  EXPECT_TRUE(record.complete());
  EXPECT_EQ(record.next_use(kept(0), 0), 1u);
  EXPECT_EQ(record.next_use(kept(0), 1), 8u);
  EXPECT_EQ(record.next_use(kept(0), 8), 11u);
  EXPECT_EQ(record.next_use(born(0), 2), 3u);
  EXPECT_EQ(record.next_use(born(0), 3), never);
  EXPECT_EQ(record.next_use(born(1), 6), 11u);  // as a carried one
  EXPECT_EQ(record.next_use(carried(1), 1), never);
  EXPECT_EQ(record.next_use(kept(7), 0), never);
}

TEST(StepRecord, KnowsWhatAnOpUsesOnceAndWhatIsBornForHowLong) {
  const StepRecord record = recorded();
  EXPECT_EQ(record.used_by(3), std::vector<BlockName>{born(0)});
  EXPECT_EQ(record.used_by(1).size(), 2u);
  EXPECT_EQ(record.born_bytes(0, 10), 130u);
  EXPECT_EQ(record.born_bytes(2, 3), 100u);
  EXPECT_EQ(record.born_bytes(3, 6), 0u);
  EXPECT_EQ(record.born_bytes(3, 1000), 30u);
  EXPECT_EQ(record.life(0), 2u);
  EXPECT_EQ(record.life(1), never);
}

struct Tenant {
  double cost = 1;
  bool stays = false;
};
using TestPlaces = Places<Tenant, int>;

std::optional<double> cost_of(const Tenant& tenant) {
  if (tenant.stays) return {};
  return tenant.cost;
}

TEST(Places, HolesAreTakenFromEitherEndAndJoinedWithTheirMarks) {
  TestPlaces places(100);
  Tenant a, b, c;
  EXPECT_EQ(places.take(&a, 30, TestPlaces::From::bottom)->at, 0u);
  EXPECT_EQ(places.take(&b, 30, TestPlaces::From::bottom)->at, 30u);
  EXPECT_EQ(places.take(&c, 10, TestPlaces::From::top)->at, 90u);
  EXPECT_EQ(places.free_bytes(), 30u);
  places.give(30, {7});
  places.give(0, {5});
  const auto whole = places.take(&a, 90, TestPlaces::From::bottom);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->at, 0u);
  EXPECT_EQ(whole->after, (std::vector<int>{5, 7}));
  EXPECT_FALSE(places.take(&b, 1, TestPlaces::From::bottom));
}

TEST(Places, APieceOfAHoleHasItsMarksAndTheRestKeepsThem) {
  TestPlaces places(100);
  Tenant a, b;
  places.take(&a, 100, TestPlaces::From::bottom);
  places.give(0, {3});
  EXPECT_EQ(places.take(&a, 40, TestPlaces::From::bottom)->after, std::vector<int>{3});
  EXPECT_EQ(places.take(&b, 40, TestPlaces::From::top)->after, std::vector<int>{3});
}

TEST(Places, TheCheapestRunLeavesAndNoneThatHasToStay) {
  TestPlaces places(60);
  Tenant tenants[6] = {{.cost = 9}, {.cost = 1}, {.cost = 2}, {.stays = true}, {.cost = 1}, {.cost = 5}};
  for (Tenant& each : tenants) ASSERT_TRUE(places.take(&each, 10, TestPlaces::From::bottom));
  EXPECT_EQ(places.cheapest_run(20, cost_of), (std::vector<Tenant*>{&tenants[1], &tenants[2]}));
  EXPECT_EQ(places.cheapest_run(10, cost_of), std::vector<Tenant*>{&tenants[1]});
  EXPECT_EQ(places.cheapest_run(30, cost_of), (std::vector<Tenant*>{&tenants[0], &tenants[1], &tenants[2]}));
  EXPECT_TRUE(places.cheapest_run(40, cost_of).empty());
  places.give(50, {});  // a hole beside a tenant costs nothing
  EXPECT_EQ(places.cheapest_run(20, cost_of), std::vector<Tenant*>{&tenants[4]});
}

TEST(GpuHour, WithoutADriverEveryGroupSaysSo) {
  const auto folder = std::filesystem::temp_directory_path() / ("gpu_hour_test-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const int status = bench::run_child({GPU_HOUR, "--quick", "--libcuda", "libno-driver-here.so.1", "--json",
                                       folder / "hour.json", "--only", "move,announce,outside_gpt2,train_mlp"},
                                      folder / "said", 50)
                         .status;
  const Json rows = Json::parse(std::ifstream(folder / "hour.json"))["rows"];
  std::filesystem::remove_all(folder);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) EXPECT_EQ(row["refused"], "no driver (libno-driver-here.so.1)");
}

}  // namespace
}  // namespace vedette::gpu::gpu_hour_test
