// The column `vedette` of docs/g10.md is what `vedette compare` gives; tests/policy/g10_table has the other columns.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "support/command.h"
#include "support/traces.h"

namespace vedette {
namespace {

TEST(G10Docs, ShowWhatTheCommandGives) {
  const auto folder = std::filesystem::path(testing::data_folder()) / "traces" / "g10";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "there is no folder " << folder << "; VEDETTE_DATA names it";
  const std::string page = testing::read_text(VEDETTE_SOURCE_DIR "/docs/g10.md");
  const std::regex row("\\n\\| ([a-z0-9_]+-[0-9]+) \\|[^\\n]*\\| ([0-9.]+) \\|(?=\\n)");
  int rows = 0;
  for (auto at = std::sregex_iterator(page.begin(), page.end(), row); at != std::sregex_iterator(); ++at, ++rows) {
    const auto trace = folder / ((*at)[1].str() + ".json");
    const auto ran = testing::run(VEDETTE_CLI " compare '" + trace.string() + "' --policies vedette --json");
    ASSERT_EQ(ran.status, 0) << trace;
    const double percent = nlohmann::json::parse(ran.text).at(0)["percent_of_ideal"].get<double>();
    EXPECT_NEAR(percent, std::stod((*at)[2]), 0.0501) << (*at)[1];
  }
  EXPECT_EQ(rows, 16);
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

}  // namespace
}  // namespace vedette
