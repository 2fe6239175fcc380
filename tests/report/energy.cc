// The energy of a run's steps, where a GPU's counter was read beside them, and its tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profiler/report/report.h"
#include "report/hand_made.h"

namespace vedette::report::energy_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Run hand_made() {
  const by_hand::Folder folder;
  return load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
}

// Steps 1 and 2 prepare; 3 to 5 are steady.
Run with_energy() {
  Run run = hand_made();
  run.machine.tiers[0].name = "gpu:0";
  const std::uint64_t millijoules[] = {90000, 90000, 10000, 40000, 12000};
  for (std::size_t i = 0; i < 5; ++i)
    run.steps[i].energy = StepEnergy{.millijoules = millijoules[i], .watched = {200'000'000}};
  return run;
}

// Three steady steps of 100 ms, each of which writes a megabyte to the disk.
TEST(ReportWear, IsWhatADayOfSteadyStepsWrites) {
  report::Run run = hand_made();
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    run.steps[i].began = {static_cast<std::int64_t>(i) * 100'000'000};
    run.steps[i].ended = run.steps[i].began + Nanoseconds{100'000'000};
    run.steps[i].counters.bytes_out = {i < 2 ? 50'000'000u : 1'000'000u};
  }
  const ReportOptions rated{.endurance = read_endurance("600TBW")};
  const Wear wear = wear_of(run, rated);
  ASSERT_TRUE(wear.known);
  EXPECT_EQ(wear.a_step, Bytes{1'000'000}) << "warm-up and profiling happen once";
  EXPECT_DOUBLE_EQ(wear.bytes_a_day, 864e9);
  EXPECT_DOUBLE_EQ(*wear.share_a_day, 864e9 / 600e12);
  EXPECT_EQ(wear.words, "864 GB a day, 0.14 % of its 600 TBW: 694 days");
  EXPECT_EQ(wear_of(run, {}).words, "864 GB a day");
  const Report report = analyse(run, rated);
  EXPECT_THAT(format_text(report, nullptr), HasSubstr("written to the disk       864 GB a day, 0.14 % of its 600 TBW"));
  const auto json = nlohmann::json::parse(format_json(report, nullptr))["run"]["wear"];
  EXPECT_EQ(json["disk_bytes_out"], 1'000'000);
  EXPECT_EQ(json["endurance"], "600 TBW");
  run.machine.tiers[1].name = "host";
  EXPECT_FALSE(wear_of(run, rated).known) << "memory does not wear out";
  EXPECT_TRUE(nlohmann::json::parse(format_json(analyse(run, rated), nullptr))["run"]["wear"].is_null());
}

TEST(ReportEnergy, IsTheSteadySteps) {
  const Energy energy = analyse(with_energy(), {}).energy;
  EXPECT_EQ(energy.steps, 3u);
  EXPECT_EQ(energy.device, "gpu:0");
  EXPECT_DOUBLE_EQ(energy.median_j, 12);
  EXPECT_NEAR(energy.mean_j, 62.0 / 3, 1e-9);
  EXPECT_NEAR(energy.watts, 62 / 0.6, 1e-9);
}

TEST(ReportEnergy, IsToldInTextAndJson) {
  const Report report = analyse(with_energy(), {}), without = analyse(hand_made(), {});
  EXPECT_THAT(format_text(report, nullptr), HasSubstr("energy of a step, median  12.000 J, 103 W, gpu:0\n"));
  EXPECT_THAT(format_text(report, nullptr), HasSubstr("energy of a step, mean    20.667 J of 3\n"));
  EXPECT_THAT(format_text(report, &without), ::testing::ContainsRegex("median +12.000 J, 103 W, gpu:0 +-\n"));
  const auto json = nlohmann::json::parse(format_json(report, nullptr))["run"];
  EXPECT_EQ(json["energy"]["median_j"], 12);
  EXPECT_EQ(json["energy"]["watts"], 103.333333);
  EXPECT_EQ(json["steps"][3]["energy_mj"], 40000);
}

TEST(ReportEnergy, IsAbsentAndNotNoneWhereNoCounterWasRead) {
  const Report report = analyse(hand_made(), {});
  EXPECT_THAT(format_text(report, nullptr), Not(HasSubstr("energy")));
  const auto json = nlohmann::json::parse(format_json(report, nullptr))["run"];
  EXPECT_TRUE(json["energy"].is_null());
  EXPECT_TRUE(json["steps"][3]["energy_mj"].is_null());
}

TEST(ReportTables, AreARemark) {
  report::Run run = hand_made();
  run.origin.tables = {
      .rows_on_device = 95, .rows_on_host = 11, .device_bytes = (2_MiB).value, .host_bytes = (6_MiB).value};
  EXPECT_THAT(analyse(run, {}).remarks,
              ::testing::Contains(AllOf(HasSubstr("Tables of 8.0 MiB have 2.0 MiB in GPU memory"),
                                        HasSubstr("Of 106 rows that ops looked up, 11 lay in the host's memory."))));
  EXPECT_THAT(format_text(analyse(hand_made(), {}), nullptr), Not(HasSubstr("Tables of")));
}

// A step whose counter could not be read counts neither as one nor as none.
TEST(ReportEnergy, LeavesOutStepsWithoutAReading) {
  report::Run run = with_energy();
  run.steps[3].energy = std::nullopt;
  const Energy energy = energy_of(run);
  EXPECT_EQ(energy.steps, 2u);
  EXPECT_DOUBLE_EQ(energy.mean_j, 11);
}

}  // namespace
}  // namespace vedette::report::energy_test
