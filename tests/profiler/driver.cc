// The driver of the examples: what it refuses before anything runs, and what it writes into a recording when it runs a
// model plain first: the report's headline compares with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/told_run.h"

namespace vedette::driver_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Driver, SaysInOneSentenceWhatItCannotDoBeforeItTrains) {
  const std::string letter = told::fresh_path("letter.pt"), train = VEDETTE_TRAIN " --small --model mlp --steps 1 ";
  std::ofstream(letter) << "Dear reader";
  struct Wrong {
    std::string words;
    int status;
    const char* says;
  };
  const Wrong wrongs[] = {{"--loud", 2, "--loud (train --help says more)"},
                          {"--threads 0 --batch -1", 2, " not in range "},
                          {"--policy nobody", 1, "there is no policy 'nobody'; there are on-demand, "},
                          {"--fast-memory 99999999999GiB", 1, "'99999999999GiB' is no budget"},
                          {"--slow nvme:/nowhere", 1, "'/nowhere' is no directory"},
                          {"--chunk 5000", 1, "--chunk is a power of two"},
                          {"--json /nowhere/table.json", 1, "/nowhere/table.json cannot be written"},
                          {"--compare --record '" + letter + "'", 1, "exists and is no recording"},
                          {"--plain --record run.vedette", 1, "a plain run has no --record"},
                          {"--plain --compare", 1, "--compare trains plain and then under a guard: leave out --plain"},
                          {"--lag 3", 1, "--lag is of ranks: add --ranks, or leave it out"},
                          {"--shard-optimizer", 1, "--shard-optimizer is of ranks: add --ranks"},
                          {"--every 3", 1, "--every is of checkpoints: add --checkpoint"},
                          {"--fast-memory much", 1, "'much' is no budget: write 25% of the plain run's peak, 500MiB"},
                          {"--fast-memory 2TiB --plain --compare", 1, "leave out --plain"},
                          {"--amp --step-in-backward", 1, "leave out --step-in-backward, which has freed them"},
                          {"--amp --ranks 2 --shard-optimizer", 1, "where no rank has all of them"},
                          {"--script '" + letter + "'", 1, "leave out --model mlp"}};
  for (const Wrong& wrong : wrongs) {
    const told::Ran ran = told::run(train + wrong.words);
    EXPECT_EQ(ran.status, wrong.status) << ran.output;
    EXPECT_THAT(ran.output, AllOf(StartsWith("train: "), HasSubstr(wrong.says)));
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
  EXPECT_THAT(told::run(VEDETTE_TRAIN " --model nobody").output,
              StartsWith("train: there is no model 'nobody'; there are mlp, "));
  EXPECT_THAT(told::run(VEDETTE_TRAIN " --small --plain --script '" + letter + "'").output,
              HasSubstr("letter.pt cannot be loaded as TorchScript ("));
}

TEST(Driver, TellsTheRecordingWhatAPlainStepTook) {
  const std::string recording = told::fresh_path("compared.vedette"), table = told::fresh_path("table.json");
  const told::Ran ran = told::run(
      std::string(VEDETTE_TRAIN
                  " --compare --small --model mlp --steps 8 --fast-memory 24MiB --slow host --profile operands")
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
  // The table's median is over the steps beside which a plan ran, the recording's over all but the first: of the same
  // run.
  EXPECT_GT(plain, compared["step_ns_plain"].get<double>() / 100);
  EXPECT_LT(plain, compared["step_ns_plain"].get<double>() * 100);
}

TEST(Driver, TrainsInMixedPrecisionWithThePlainRunsBits) {
  for (const std::string model : {"gpt", "mlp"}) {
    const std::string table = told::fresh_path("table.json"), result = told::fresh_path("result.json");
    const std::string words = VEDETTE_TRAIN " --small --steps 8 --slow host --chunk 64KiB --model " + model;
    const told::Ran ran = told::run(words + " --compare --amp --fast-memory 50% --json '" + table + "'");
    ASSERT_EQ(ran.status, 0) << ran.output;
    std::ifstream file(table);
    const auto compared = nlohmann::json::parse(file);
    EXPECT_EQ(compared["amp"], true);
    EXPECT_EQ(compared["losses_equal"], true);
    EXPECT_EQ(compared["first_difference"], "");
    EXPECT_GT(compared["bytes_out"], 0);
    std::vector<nlohmann::json> losses;
    for (const std::string amp : {"", " --amp"}) {
      ASSERT_EQ(told::run(words + amp + " --plain --json '" + result + "'").status, 0);
      std::ifstream told(result);
      losses.push_back(nlohmann::json::parse(told)["losses"]);
    }
    EXPECT_NE(losses[0], losses[1]) << "nothing ran in bf16";
  }
}

TEST(Driver, GoesOnFromACheckpointInMixedPrecision) {
  const std::string result = told::fresh_path("result.json"), folder = told::fresh_path("checkpoint");
  const auto trained = [&](const std::string& words) {
    const told::Ran ran =
        told::run(VEDETTE_TRAIN " --small --amp --model mlp --state --json '" + result + "' " + words);
    EXPECT_EQ(ran.status, 0) << ran.output;
    std::ifstream file(result);
    return nlohmann::json::parse(file);
  };
  const auto whole = trained("--plain --steps 6");
  trained("--plain --steps 3 --every 3 --checkpoint '" + folder + "'");
  const auto rest = trained("--fast-memory 4MiB --slow host --chunk 64KiB --steps 6 --checkpoint '" + folder + "'");
  ASSERT_EQ(rest["losses"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest["losses"][i], whole["losses"][i + 3]) << i;
  EXPECT_EQ(rest["state"], whole["state"]);
  EXPECT_EQ(rest["loss_scale"], whole["loss_scale"]);
}

TEST(Driver, TellsThePhasesThatTheRecordingTells) {
  const std::string recording = told::fresh_path("phases.vedette"), result = told::fresh_path("phases.json");
  const told::Ran ran =
      told::run(std::string(VEDETTE_TRAIN " --small --model mlp --steps 7 --fast-memory 8MiB --chunk 16KiB --slow host")
                    .append(" --profile operands --record '" + recording + "' --json '" + result + "'"));
  ASSERT_EQ(ran.status, 0) << ran.output;
  const told::Ran told = told::run(std::string(VEDETTE_CLI) + " report '" + recording + "' --json --no-simulation");
  ASSERT_EQ(told.status, 0) << told.output;
  const auto report = nlohmann::json::parse(told.output);
  std::vector<std::string> recorded;
  for (const auto& step : report["run"]["steps"]) recorded.push_back(step["phase"]);
  std::ifstream file(result);
  EXPECT_EQ(nlohmann::json::parse(file)["step_phase"].get<std::vector<std::string>>(), recorded);
  EXPECT_THAT(recorded, ::testing::Contains("planned"));
  // Only where a planned step is followed by one that looks into ops can the two differ.
  if (std::count(recorded.begin(), recorded.end(), "profiling") < 2)
    GTEST_SKIP() << "no op was looked into: this machine has no userfaultfd";
}

TEST(Driver, ComparesTrainingThatStepsInBackwardWithTrainingAsItIs) {
  const std::string recording = told::fresh_path("early.vedette");
  const told::Ran ran = told::run(std::string(VEDETTE_TRAIN " --compare --small --model mlp --steps 6 --fast-memory "
                                                            "24MiB --slow host --profile operands --step-in-backward")
                                      .append(" --record '" + recording + "'"));
  ASSERT_EQ(ran.status, 0) << ran.output;
  EXPECT_THAT(ran.output, ::testing::ContainsRegex("losses equal, bit by bit +yes"));
  const told::Ran told = told::run(std::string(VEDETTE_CLI) + " report '" + recording + "' --json");
  ASSERT_EQ(told.status, 0) << told.output;
  const auto report = nlohmann::json::parse(told.output);
  for (const auto& layer : report["run"]["layers"])
    EXPECT_NE(layer["phase"], "optimizer") << "every parameter is updated in its layer's backward pass: " << layer;
}

}  // namespace
}  // namespace vedette::driver_test
