// What the driver of the examples writes into a recording when it runs a model plain first: the report's headline compares with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/told_run.h"

namespace vedette {
namespace {

TEST(Driver, TellsTheRecordingWhatAPlainStepTook) {
  const std::string recording = told::fresh_path("compared.vedette"), table = told::fresh_path("table.json");
  const told::Ran ran = told::run(std::string(VEDETTE_TRAIN " --compare --small --model mlp --steps 8 --fast-memory 24MiB --slow host --profile operands")
                                      .append(" --record '" + recording + "' --json '" + table + "'"));
  ASSERT_EQ(ran.status, 0) << ran.output;
  const told::Ran told = told::run(std::string(VEDETTE_CLI) + " report '" + recording + "' --json");
  ASSERT_EQ(told.status, 0) << told.output;
  const auto headline = nlohmann::json::parse(told.output)["run"]["headline"];
  std::ifstream file(table);
  const auto compared = nlohmann::json::parse(file);
  ASSERT_TRUE(headline["plain_step_ns"].is_number()) << headline.dump(2);
  const auto plain = headline["plain_step_ns"].get<double>();
  EXPECT_GT(plain, 0);
  const double speed = plain / headline["median_step_ns"].get<double>();
  EXPECT_NEAR(headline["speed_of_plain"].get<double>(), speed, 1e-4 * speed) << "shares have six digits";
  EXPECT_GT(headline["bound_ns"].get<double>(), 0) << "the bound stands beside it";
  // The table's median is over the steps beside which a plan ran, the recording's over all but the first: of the same run.
  EXPECT_GT(plain, compared["step_ns_plain"].get<double>() / 100);
  EXPECT_LT(plain, compared["step_ns_plain"].get<double>() * 100);
}

}  // namespace
}  // namespace vedette
