// The table of docs/g10.md is what `vedette reproduce g10` prints, byte for byte.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "support/command.h"
#include "support/traces.h"

namespace vedette::g10_docs_test {
namespace {

TEST(G10Docs, ShowTheTableThatTheCommandGivesByteForByte) {
  const std::string data = testing::data_folder();
  const auto folder = std::filesystem::path(data) / "traces" / "g10";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "there is no folder " << folder << "; VEDETTE_DATA names it";
  const auto made = std::filesystem::path(::testing::TempDir()) / ("reproduced" + std::to_string(::getpid()));
  const auto ran = testing::run(VEDETTE_CLI " reproduce g10 --traces '" + data + "' -o '" + made.string() + "'");
  ASSERT_EQ(ran.status, 0);
  const std::string page = testing::read_text(VEDETTE_SOURCE_DIR "/docs/g10.md");
  const std::size_t begin = page.find("| network |"), end = page.find("\n\n", begin);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(ran.text, page.substr(begin, end + 1 - begin));
  std::filesystem::remove_all(made);
}

TEST(G10Docs, SayWhatTheCommandGivesForTheTraceAsItIs) {
  const auto trace = std::filesystem::path(testing::data_folder()) / "traces" / "g10" / "vit-1024.json";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "there is no " << trace << "; VEDETTE_DATA names its folder";
  const std::string page = testing::read_text(VEDETTE_SOURCE_DIR "/docs/g10.md");
  const std::regex sentence("Asked for `g10\\+`, the same command gives ([0-9.]+) on ViT-1024");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(page, found, sentence));
  const auto ran = testing::run(VEDETTE_CLI " compare '" + trace.string() + "' --policies g10+ --json");
  ASSERT_EQ(ran.status, 0);
  EXPECT_NEAR(nlohmann::json::parse(ran.text).at(0)["percent_of_ideal"].get<double>(), std::stod(found[1]), 0.0501);
}

// It once read a tensor that was dropped and that nothing made again.
TEST(G10Docs, DtrRunsBertWithTheMachinesMemoryAndSaysWhatItNeedsElsewhere) {
  const auto trace = std::filesystem::path(testing::data_folder()) / "traces" / "g10" / "bert_base-256.json";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "there is no " << trace << "; VEDETTE_DATA names its folder";
  const auto ran = testing::run(VEDETTE_CLI " compare '" + trace.string() + "' --policy dtr --json");
  ASSERT_EQ(ran.status, 0);
  const auto row = nlohmann::json::parse(ran.text).at(0);
  EXPECT_TRUE(row["error"].is_null()) << row["error"];
  EXPECT_GT(row["percent_of_ideal"].get<double>(), 99);
  const auto less =
      testing::run(VEDETTE_CLI " compare '" + trace.string() + "' --policy dtr,vedette --fast-memory 60% --json");
  EXPECT_EQ(less.status, 0) << "that a policy needs more memory is an answer";
  const auto told = nlohmann::json::parse(less.text).at(0);
  EXPECT_TRUE(told["error"].is_null() || told["error"].get<std::string>().starts_with("infeasible: ")) << told["error"];
}

}  // namespace
}  // namespace vedette::g10_docs_test
