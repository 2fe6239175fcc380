// All C++ sources look as clang-format 14 lays them out with .clang-format. Other major versions lay some lines out
// differently, so the test is skipped with them.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/command.h"
#include "tidy/sources.h"

namespace vedette::testing::format_test {
namespace {

constexpr int wanted_version = 14;

// The major version of the clang-format on PATH; 0 where there is none.
int major_version() {
  const std::string text = run("clang-format --version 2>/dev/null").text;
  const std::size_t at = text.find("version ");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 8);
}

// Why the test cannot run here; empty where it can.
std::string missing() {
  const int found = major_version();
  if (found == wanted_version) return {};
  return "clang-format " + std::to_string(wanted_version) + " is wanted" +
         (found == 0 ? ", and none is installed" : ", and " + std::to_string(found) + " is installed");
}

// What clang-format says against these files; empty where it would change none.
std::string would_change(const std::vector<std::string>& files) {
  std::string command = "cd '" VEDETTE_SOURCE_DIR "' && clang-format --style=file --dry-run -Werror";
  for (const std::string& file : files) command += " '" + file + "'";
  const Answer answer = run(command + " 2>&1");
  return answer.status == 0 ? "" : answer.text.empty() ? "clang-format failed" : answer.text;
}

TEST(Format, IsClangFormats) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  std::vector<std::string> files;
  for (const Source& file :
       sources({"src", "include", "profiler", "tests", "bench", "examples", "python"}, {".h", ".cc", ".cu"}))
    files.push_back(file.path);
  ASSERT_GT(files.size(), 300u);
  EXPECT_EQ(would_change(files), "") << "clang-format -i these files";
}

TEST(FormatTest, SeesALineThatClangFormatWouldChange) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "vedette-format";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(std::filesystem::path(VEDETTE_SOURCE_DIR) / ".clang-format", folder / ".clang-format",
                             std::filesystem::copy_options::overwrite_existing);
  const std::filesystem::path file = folder / "a.cc";
  std::ofstream(file) << "int f() { return 1; }\n";
  EXPECT_EQ(would_change({file}), "");
  std::ofstream(file) << "int  f(){return 1;}\n";
  EXPECT_NE(would_change({file}), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace vedette::testing::format_test
