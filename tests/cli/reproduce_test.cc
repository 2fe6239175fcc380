// `vedette reproduce`: what it writes, where that came from, and that it goes on where it stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/sha256.h"
#include "profiler/told_run.h"
#include "support/command.h"
#include "support/traces.h"

namespace vedette::reproduce_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Reproduce : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_ / "traces"); }
  void TearDown() override { fs::remove_all(folder_); }

  void give(const std::string& trace) {
    fs::copy_file(fs::path(TOY_TRACES) / (trace + ".json"), folder_ / "traces" / (trace + ".json"));
  }
  testing::Answer run(const std::string& words) const {
    return testing::run("env -u VEDETTE_DATA " VEDETTE_CLI " reproduce " + words + " --traces '" + folder_.string() +
                        "' -o '" + (folder_ / "made").string() + "' 2>&1");
  }
  std::string made(const std::string& name) const { return testing::read_text(folder_ / "made" / name); }

  const fs::path folder_ = fs::path(::testing::TempDir()) / ("reproduce" + std::to_string(::getpid()));
};

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(cli::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(cli::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(cli::sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // around the border at which the length needs a block of its own
  EXPECT_EQ(cli::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_F(Reproduce, WritesATableAChartAPageAndWhereTheyCameFrom) {
  give("chain4");
  const auto ran = run("policies --policy vedette,on-demand --fast-memory 80%");
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("| vedette |"));
  for (const char* file : {"policies.csv", "policies.svg", "policies.md", "published.csv", "index.html"})
    EXPECT_FALSE(made(file).empty()) << file;
  EXPECT_THAT(made("policies.csv"), HasSubstr("chain4,0.8000,vedette,"));
  for (const char* system : {"DeepUM", "Capuchin", "SwapAdvisor", "AutoTM", "DTR", "vDNN", "Sentinel"})
    EXPECT_THAT(made("published.csv"), HasSubstr(std::string("\n") + system + ","));
  EXPECT_THAT(made("index.html"), Not(HasSubstr("<script")));
  const auto provenance = nlohmann::json::parse(made("provenance.json"));
  EXPECT_EQ(provenance["experiment"], "policies");
  EXPECT_EQ(provenance["vedette"], VEDETTE_VERSION);
  EXPECT_EQ(provenance["seeds"][0], 1);
  EXPECT_FALSE(provenance["commit"].get<std::string>().empty());
  ASSERT_EQ(provenance["inputs"].size(), 1);
  EXPECT_EQ(provenance["inputs"][0]["sha256"], cli::sha256(testing::read_text(folder_ / "traces" / "chain4.json")));
  EXPECT_EQ(provenance["machines"][0]["name"], "a100-g10");
  for (const auto& output : provenance["outputs"])
    EXPECT_EQ(output["sha256"], cli::sha256(made(output["name"].get<std::string>()))) << output["name"];
}

TEST_F(Reproduce, GoesOnWhereItStoppedAndComputesAnewWhatChanged) {
  give("chain4");
  const std::string words = "policies --policy vedette,on-demand --fast-memory 80% --jobs 2";
  const auto first = run(words);
  ASSERT_EQ(first.status, 0) << first.text;
  EXPECT_THAT(first.text, HasSubstr(", 0 kept from before"));
  const std::string csv = made("policies.csv");
  fs::remove(folder_ / "made" / "policies.csv");
  fs::remove(folder_ / "made" / "cells" / "chain4.a100-g10.80.0.vedette.json");
  std::ofstream(folder_ / "made" / "cells" / "chain4.a100-g10.80.0.on-demand.json") << "{\"inp";  // cut off
  EXPECT_THAT(run(words).text, HasSubstr(": 2 results computed"));
  EXPECT_EQ(made("policies.csv"), csv);
  EXPECT_THAT(run(words).text, HasSubstr(": 0 results computed"));
  std::ofstream(folder_ / "traces" / "chain4.json", std::ios::app) << "\n";  // other bytes, so another hash
  EXPECT_THAT(run(words).text, HasSubstr(", 0 kept from before"));
}

TEST_F(Reproduce, PacksLifetimesWithinTheirCapacity) {
  fs::create_directories(folder_ / "pack");
  std::ofstream(folder_ / "pack" / "two.8.csv") << "id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,4,4\n";
  const auto ran = run("pack");
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_THAT(made("pack.csv"), HasSubstr("two.8,3,8,8,8,1.0000,"));
  EXPECT_THAT(ran.text, HasSubstr("| geometric mean |"));
}

TEST_F(Reproduce, SetsRecordedRunsBesideTheirSimulation) {
  const std::string recording = told::record_run("run.vedette", 4);
  const auto ran = run("sim-vs-live --recording '" + recording + "'");
  ASSERT_EQ(ran.status, 0) << ran.text;
  std::istringstream lines(made("sim-vs-live.csv"));
  std::string row;
  std::getline(lines, row);
  EXPECT_EQ(row, "recording,program,policy,budget,steps,measured ms,quartiles,simulated ms,off by");
  std::getline(lines, row);
  // Four planned steps of 100 ns. All fits, so that the simulated one is the ops' times, each from the end of the one
  // before, without the stall of 4 ns: 16 + 25 + 25.
  EXPECT_EQ(row, "run.vedette,a test,sentinel,1.0 MiB,4,0.0,0.0 to 0.0,0.0,-34.0 %");
  EXPECT_THAT(made("sim-vs-live.svg"), HasSubstr("run.vedette"));
  EXPECT_EQ(nlohmann::json::parse(made("provenance.json"))["inputs"][0]["name"], "run.vedette");
}

TEST_F(Reproduce, SaysInOneSentenceWhatIsMissing) {
  EXPECT_THAT(run("g10").text, HasSubstr("there is no folder traces/g10 in"));
  EXPECT_EQ(run("g10").status, 1);
  EXPECT_THAT(run("sim-vs-live").text, HasSubstr("name the recordings of runs with --recording"));
  EXPECT_EQ(run("nothing").status, 2);
  give("chain4");
  EXPECT_THAT(run("policies --fast-memory 20").text, HasSubstr("'20' is no share of the peak; write 20%"));
}

TEST_F(Reproduce, PlaysGivenTracesAsTheTableDoes) {
  const fs::path given = fs::path(testing::data_folder()) / "traces";
  if (!fs::exists(given / "g10" / "vit-256.json")) GTEST_SKIP() << "there is no vit-256 in " << given;
  fs::create_directories(folder_ / "traces" / "g10");
  fs::copy_file(given / "g10" / "vit-256.json", folder_ / "traces" / "g10" / "vit-256.json");
  fs::copy_file(given / "g10_published.csv", folder_ / "traces" / "g10_published.csv");
  const auto ran = run("g10 --only vit-256");
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("| vit-256 | 100.0 / 100.0 | 100.0 / 100.0 | 100.0 / 100.0 | 100.0 / 100.0 | "
                                  "100.0 |\n"));
  EXPECT_THAT(made("g10.csv"), HasSubstr("vit-256,G10,g10+,"));
}

}  // namespace
}  // namespace vedette::reproduce_test
