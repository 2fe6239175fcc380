// The questions that profiler/FORMAT.md asks in SQL, run by SQLite's own shell on a recording whose answers are known.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "profiler/schema.h"
#include "profiler/told_run.h"

namespace vedette::format_queries_test {
namespace {

std::string text_of_the_page() {
  std::ifstream file(FORMAT_PAGE);
  return {std::istreambuf_iterator<char>(file), {}};
}

// By the sentence before it.
std::map<std::string, std::string> queries() {
  const std::string text = text_of_the_page(), open = ":\n\n```sql\n", close = "```";
  std::map<std::string, std::string> found;
  for (std::size_t at = text.find(open); at != text.npos; at = text.find(open, at + 1)) {
    const std::size_t begin = at + open.size(), line = text.rfind("\n\n", at) + 2;
    found[text.substr(line, at - line)] = text.substr(begin, text.find(close, begin) - begin);
  }
  return found;
}

TEST(Format, AnswersItsQuestionsAsItSays) {
  if (std::string(SQLITE3).ends_with("NOTFOUND"))
    GTEST_SKIP() << "the sqlite3 shell is missing (Debian package sqlite3)";
  const std::map<std::string, std::string> answers = {
      {"Bytes moved, by verb and cause", "evict|planned|3|196608\nfetch|urgent|3|196608\n"},
      {"The steps, how long they took and how much of that was waiting",
       "1|planned|0|0|1\n2|planned|0|0|1\n3|planned|0|0|1\n"},
      {"The ops that took longest, over all steps", "mm|6|90\nrelu|3|60\n"},
      {"Most bytes resident and alive at an op's end, by step", "1|131072|75536\n2|131072|75536\n3|131072|75536\n"},
      {"The pages each layer read and wrote in the last profile (ranges counted once per tick)",
       "linear|forward|22|4\nlinear|backward|1|0\n"},
      {"Which tensors a moved chunk belonged to", "weight|6|393216\n"},
      {"Why a unit leaves, and when it comes back",
       "weight|fetch|0|0|op 0 needs it; 4.0 KiB take 0.1 ms, issued 0.0 ms ahead\n"
       "weight|evict|2|0|not used for 0.0 ms (after op 2, until op 0); 64.0 KiB take 0.1 ms to leave\n"},
  };
  const std::string path = told::record_run("questions.vedette", 3), script = told::fresh_path("question.sql");
  const auto asked = queries();
  EXPECT_EQ(asked.size(), answers.size());
  for (const auto& [question, sql] : asked) {
    const auto answer = answers.find(question);
    ASSERT_NE(answer, answers.end()) << "'" << question << "' has no known answer";
    std::ofstream(script) << sql;
    const told::Ran ran = told::run(std::string(SQLITE3) + " '" + path + "' < '" + script + "'");
    EXPECT_EQ(ran.output, answer->second) << question;
  }
}

// Each table has a row in the page that names each of its columns.
TEST(Format, NamesEveryTableAndColumn) {
  if (std::string(SQLITE3).ends_with("NOTFOUND"))
    GTEST_SKIP() << "the sqlite3 shell is missing (Debian package sqlite3)";
  const std::string path = told::record_run("columns.vedette", 1), text = text_of_the_page();
  for (const std::string_view table : recording_tables()) {
    const std::size_t row = text.find("| `" + std::string(table) + "` |");
    ASSERT_NE(row, text.npos) << table << " is not in the page";
    const std::string line = text.substr(row, text.find('\n', row) - row);
    const std::string columns = told::run(std::string(SQLITE3) + " '" + path +
                                          "' \"SELECT name FROM pragma_table_info('" + std::string(table) + "')\"")
                                    .output;
    for (std::size_t at = 0, end; (end = columns.find('\n', at)) != columns.npos; at = end + 1)
      EXPECT_NE(line.find(columns.substr(at, end - at)), line.npos) << table << "." << columns.substr(at, end - at);
  }
  const std::string tables =
      told::run(std::string(SQLITE3) + " '" + path + "' \"SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'\"")
          .output;
  EXPECT_EQ(tables, std::to_string(recording_tables().size()) + "\n");
}

TEST(Format, NamesEveryFactAboutARun) {
  if (std::string(SQLITE3).ends_with("NOTFOUND"))
    GTEST_SKIP() << "the sqlite3 shell is missing (Debian package sqlite3)";
  const std::string path = told::record_run("facts.vedette", 1), text = text_of_the_page();
  const std::size_t begin = text.find("Keys of `meta`");
  const std::string keys = text.substr(begin, text.find("\n\n", begin) - begin);
  const std::string written = told::run(std::string(SQLITE3) + " '" + path + "' 'SELECT key FROM meta'").output;
  EXPECT_NE(written, "");
  for (std::size_t at = 0, end; (end = written.find('\n', at)) != written.npos; at = end + 1)
    EXPECT_NE(keys.find(written.substr(at, end - at)), keys.npos) << written.substr(at, end - at);
}

}  // namespace
}  // namespace vedette::format_queries_test
