// Habits that a reader relies on: functions fit on a screen, sources are ASCII, every source is in the build, and a
// note of work to do has the number of an issue.
#include <gtest/gtest.h>

#include <cctype>
#include <regex>
#include <set>

#include "tidy/cpp_reader.h"
#include "tidy/sources.h"

namespace vedette::testing::tidy_test {
namespace {

constexpr std::size_t most_lines = 70;

const std::vector<std::string> code_folders = {"src", "include", "profiler", "tests", "bench", "examples", "python"};

TEST(TidyTest, MeasuresFunctionsAsAReaderDoes) {
  const std::vector<Function> found = functions(
      "namespace a {\nstruct S {\n  S() : x_{1}, y_(2) {\n  }\n  int x_;\n};\n"
      "// { a brace in a comment\nint f(char c) {\n  if (c == '{') {\n    return 1'000;\n  }\n  return "
      "\"}\"[0];\n}\n}\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].line, 3u);
  EXPECT_EQ(found[0].lines, 2u);
  EXPECT_EQ(found[1].line, 8u);
  EXPECT_EQ(found[1].lines, 6u);
}

TEST(Tidy, FunctionsFitOnAScreen) {
  for (const Source& file : sources(code_folders, {".h", ".cc"})) {
    for (const Function& each : functions(file.text)) {
      EXPECT_LE(each.lines, most_lines) << file.path << ":" << each.line << " has a function of " << each.lines
                                        << " lines";
    }
  }
}

TEST(Tidy, SourcesAreAscii) {
  for (const Source& file :
       sources({"src", "include", "profiler", "tests", "bench", "examples", "python", "scripts", "cmake"},
               {".h", ".cc", ".txt", ".cmake", ".sh"})) {
    std::size_t line = 1;
    for (char c : file.text) {
      if (c == '\n') ++line;
      if (static_cast<unsigned char>(c) < 128) continue;
      ADD_FAILURE() << file.path << ":" << line << " holds a byte that is not ASCII";
      break;
    }
  }
}

bool has_word(const std::string& text, const std::string& word) {
  const auto part_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '.' || c == '-';
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !part_of_word(text[at - 1]);
    const bool ends = at + word.size() >= text.size() || !part_of_word(text[at + word.size()]);
    if (begins && ends) return true;
  }
  return false;
}

// A list names a file by its path from the list's folder or from the project's. It names a test by its path under
// tests/ or its bare name beside it, without ".cc". Or it takes all files that lie beside it.
bool lists(const Source& list, const std::string& file) {
  const std::string folder = list.path.substr(0, list.path.rfind('/') + 1);
  if (list.text.find("_SOURCE_DIR}/" + file) != std::string::npos) return true;
  if (!file.starts_with(folder)) return false;
  const std::string inside = file.substr(folder.size());
  if (has_word(list.text, inside)) return true;
  // file(GLOB sources CONFIGURE_DEPENDS *.cc folder/*.cc)
  const std::size_t glob = list.text.find("file(GLOB sources CONFIGURE_DEPENDS ");
  const std::string globbed = glob == std::string::npos ? "" : list.text.substr(glob, list.text.find(')', glob) - glob);
  if (globbed.find(" " + inside.substr(0, inside.rfind('/') + 1) + "*.cc") != std::string::npos) return true;
  const std::string bare = file.substr(0, file.size() - 3);
  if (!file.starts_with("tests/")) return false;
  return has_word(list.text, bare.substr(6)) || has_word(list.text, inside.substr(0, inside.size() - 3));
}

TEST(Tidy, EverySourceIsInTheBuild) {
  const std::vector<Source> all_lists = sources(code_folders, {"CMakeLists.txt"});
  for (const Source& file : sources(code_folders, {".cc"})) {
    const bool listed =
        std::any_of(all_lists.begin(), all_lists.end(), [&](const Source& list) { return lists(list, file.path); });
    EXPECT_TRUE(listed) << file.path << " is in no CMakeLists.txt";
  }
}

// Such a lock can be given up in the middle of the caller's work.
TEST(Tidy, AFunctionThatTakesItsCallersLockSaysSo) {
  const std::regex takes_lock("(\\w+)\\((const )?std::unique_lock<std::mutex>&");
  const std::regex says_so("(\\w+_)?await(_\\w+)?|\\w+_unlocking");
  for (const Source& file : sources({"src", "profiler"}, {".h", ".cc"})) {
    for (std::sregex_iterator found(file.text.begin(), file.text.end(), takes_lock), end; found != end; ++found)
      EXPECT_TRUE(std::regex_match((*found)[1].str(), says_so))
          << file.path << ": " << (*found)[1] << "() takes a lock of its caller: let it take its own, or say in its "
          << "name that it waits (await) or works without it (_unlocking)";
  }
}

// A program with more rights than its caller (setuid) does nothing that the caller's environment says.
TEST(Tidy, TheEnvironmentIsReadWhereItCanBeTrusted) {
  const std::regex unsafe("(^|[^_\\w])getenv\\(");
  for (const Source& file : sources({"src", "include", "profiler"}, {".h", ".cc"}))
    EXPECT_FALSE(std::regex_search(file.text, unsafe)) << file.path << ": secure_getenv, not getenv";
}

// Processors differ in one file, so that another one is a change of that file.
TEST(Tidy, TheProcessorIsAskedForInOneFile) {
  const std::regex asked("__x86_64__|__aarch64__|__i386__|\\bREG_[A-Z]+\\b|immintrin|__builtin_ia32");
  for (const Source& file : sources({"src", "include", "profiler", "python"}, {".h", ".cc"})) {
    const bool there = file.path.starts_with("src/base/architecture.");
    EXPECT_EQ(std::regex_search(file.text, asked), there) << file.path << ": ask base/architecture.h";
  }
}

// Texts of files could steer the terminal.
TEST(Tidy, TheCommandPrintsThroughOneDoor) {
  const std::regex around("fmt::print|std::cout|std::cerr|\\bf?puts\\(|\\bf?printf\\(|\\bfwrite\\(|\\bputchar\\(");
  const std::set<std::string> doors{"src/cli/print.cc", "src/cli/print.h", "src/cli/output_file.cc",
                                    "src/cli/progress.cc"};
  for (const Source& file : sources({"src/cli"}, {".h", ".cc"})) {
    if (doors.contains(file.path)) continue;
    EXPECT_FALSE(std::regex_search(file.text, around)) << file.path << ": print() of cli/print.h";
  }
}

TEST(Tidy, WhatIsLeftToDoHasAnIssue) {
  const std::regex unnumbered(
      "\\bTO"
      "DO\\b(?!\\s*\\(?#\\d)");
  for (const Source& file : sources({"src", "include", "profiler", "tests", "bench", "examples", "python", "scripts"},
                                    {".h", ".cc", ".txt", ".cmake", ".sh"})) {
    EXPECT_FALSE(std::regex_search(file.text, unnumbered))
        << file.path << " leaves something to do without the number of an issue";
  }
}

}  // namespace
}  // namespace vedette::testing::tidy_test
