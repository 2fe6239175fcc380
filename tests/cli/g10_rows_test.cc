// Two rows of the table of docs/g10.md are what `vedette reproduce g10` prints; g10_docs_test has all of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/command.h"
#include "support/traces.h"

namespace vedette::g10_rows_test {
namespace {

TEST(G10Rows, AreThoseOfTheDocs) {
  const std::string data = testing::data_folder();
  const auto folder = std::filesystem::path(data) / "traces" / "g10";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "there is no folder " << folder << "; VEDETTE_DATA names it";
  const auto made = std::filesystem::path(::testing::TempDir()) / ("g10_rows" + std::to_string(::getpid()));
  const auto ran = testing::run(VEDETTE_CLI " reproduce g10 --only bert_base-256,vit-256 --traces '" + data + "' -o '" +
                                made.string() + "'");
  ASSERT_EQ(ran.status, 0);
  const std::string page = testing::read_text(VEDETTE_SOURCE_DIR "/docs/g10.md");
  int rows = 0;
  for (const char* network : {"bert_base-256", "vit-256"}) {
    const std::string begin = std::string("| ") + network + " |";
    const std::size_t at = ran.text.find(begin);
    ASSERT_NE(at, std::string::npos) << ran.text;
    const std::string row = ran.text.substr(at, ran.text.find('\n', at) + 1 - at);
    EXPECT_NE(page.find(row), std::string::npos) << row;
    ++rows;
  }
  EXPECT_EQ(rows, 2);
  std::filesystem::remove_all(made);
}

}  // namespace
}  // namespace vedette::g10_rows_test
