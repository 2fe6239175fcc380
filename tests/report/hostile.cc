// Reports on recordings that are damaged, foreign, of other versions, still being written, or made to harm: an error
// that says why, or a correct report, and nothing a name says is ever run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "profiler/recording.h"
#include "profiler/report/report.h"
#include "profiler/sqlite.h"
#include "report/hand_made.h"

namespace vedette::report::hostile_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportOf : public ::testing::Test {
 protected:
  std::string recorded(const by_hand::Names& names = {}) {
    return by_hand::record_by_hand(folder_.file("run.vedette"), names);
  }
  void change(const std::string& path, const std::string& sql) {
    auto database = Database::open(path, Database::Mode::create).value();
    database.run(sql.c_str());
    ASSERT_FALSE(database.failure()) << database.failure()->message;
  }
  std::string error_after(const std::string& sql) {
    const std::string path = recorded();
    change(path, sql);
    const auto run = load_run(path);
    return run ? std::string("no error") : run.error().message;
  }
  by_hand::Folder folder_;
};

TEST_F(ReportOf, NothingSaysThatTheFileIsMissing) {
  EXPECT_THAT(load_run(folder_.file("none")).error().message, HasSubstr("no such file"));
}

TEST_F(ReportOf, AForeignFileIsRefused) {
  std::ofstream(folder_.file("text")) << "no recording, but long enough to have a header of one hundred bytes: "
                                      << std::string(200, '.');
  EXPECT_FALSE(load_run(folder_.file("text")).ok());
  auto database = Database::open(folder_.file("other"), Database::Mode::create).value();
  database.run("CREATE TABLE t(x)");
  EXPECT_THAT(load_run(folder_.file("other")).error().message, HasSubstr("not a recording"));
}

TEST_F(ReportOf, OtherVersionsAreRefusedByNumber) {
  for (const char* version : {"1", "9"})
    EXPECT_THAT(error_after(std::string("PRAGMA user_version=") + version),
                HasSubstr(std::string("schema ") + version));
}

TEST_F(ReportOf, ClaimsThatCannotBeAreRefused) {
  for (const char* sql :
       {"UPDATE operands SET tensor = 99 WHERE op = 1", "UPDATE operands SET op = -1 WHERE op = 1 AND role = 'read'",
        "DELETE FROM tensors WHERE tensor = 0", "UPDATE tensors SET bytes = -5",
        "UPDATE tensors SET bytes = 9000000000000000000", "UPDATE tensors SET kind = 'cake'",
        "UPDATE ops SET layer = 4", "UPDATE ops SET time_ns = 1125899906842624", "UPDATE ops SET phase = ''",
        "UPDATE page_accesses SET end_page = 1000000000", "UPDATE page_accesses SET first_page = end_page",
        "UPDATE plan_units SET end_byte = 1125899906842624", "UPDATE plan_moves SET unit = 77",
        "UPDATE links SET target = 9", "UPDATE profiles SET page_bytes = 0",
        "UPDATE meta SET value = '1' WHERE key = 'chunk_bytes'; UPDATE tensors SET bytes = 1000000000"})
    EXPECT_THAT(error_after(sql), HasSubstr("damaged")) << sql;
}

TEST_F(ReportOf, WhatTakesMoreMemoryThanGivenIsRefused) {
  const std::string path = by_hand::record_by_hand(folder_.file("large"));
  EXPECT_TRUE(load_run(path, {.most_memory = {1 << 20}}).ok());
  const auto refused = load_run(path, {.most_memory = {2000}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().cause, Cause::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("is too large"));
}

TEST_F(ReportOf, ATextOfManyMegabytesIsRefused) {
  const std::string path = by_hand::record_by_hand(folder_.file("long"));
  change(path, "UPDATE names SET text = printf('%.*c', 30000000, 'x')");
  const auto refused = load_run(path);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("too big"));
}

TEST_F(ReportOf, OddTimesGiveAReport) {
  for (const char* sql :
       {"UPDATE steps SET ended_ns = 9223372036854775807", "UPDATE op_times SET began_ns = -9223372036854775807",
        "DELETE FROM op_times", "DELETE FROM steps", "DELETE FROM plans", "DELETE FROM tiers; DELETE FROM links",
        "UPDATE plan_moves SET due = 4000000000, issue = 3999999999", "DELETE FROM profiles",
        "UPDATE meta SET value = '0' WHERE key = 'budget_bytes'", "DELETE FROM operands", "DELETE FROM tensor_places",
        "UPDATE moves SET chunk = 12345678", "UPDATE stalls SET op = 4000000000", "UPDATE faults SET op = 4000000000",
        "DELETE FROM meta WHERE key = 'complete'"}) {
    const std::string path = recorded();
    change(path, sql);
    const auto run = load_run(path);
    ASSERT_TRUE(run.ok()) << sql << ": " << run.error().message;
    const Report report = analyse(*run, {});
    EXPECT_FALSE(format_text(report, nullptr).empty());
    EXPECT_TRUE(nlohmann::json::accept(format_json(report, &report))) << sql;
  }
}

TEST_F(ReportOf, ARunThatStillWritesShowsWhatIsThere) {
  auto recorder = Recorder::open({.path = folder_.file("live.vedette")}).value();
  by_hand::tell_run(*recorder);
  recorder->flush();
  const Report report = analyse(load_run(folder_.file("live.vedette")).value(), {});
  EXPECT_EQ(report.headline.steps, 5u);
  ASSERT_EQ(report.remarks.size(), 1u);
  EXPECT_THAT(report.remarks[0], HasSubstr("no end"));
}

TEST_F(ReportOf, TruncatedFilesGiveAnErrorOrAReportAndNeverACrash) {
  const std::string path = recorded();
  const auto whole = std::filesystem::file_size(path);
  for (std::uintmax_t kept = 0; kept < whole; kept += whole / 23 + 1) {
    const std::string cut = folder_.file("cut.vedette");
    std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, kept);
    const auto run = load_run(cut);
    if (run)
      analyse(*run, {});
    else
      EXPECT_FALSE(run.error().message.empty());
  }
}

// Bytes changed at random, where they are rows as well as where they are SQLite's own.
TEST_F(ReportOf, FilesWithBytesChangedGiveAnErrorOrAReportAndNeverACrash) {
  const std::string path = recorded();
  std::ifstream in(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  std::mt19937_64 random(5);
  int read = 0;
  for (int round = 0; round < 200; ++round) {
    std::string changed = whole;
    for (int i = 0; i < 12; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    std::copy_n(whole.begin(), 100, changed.begin());
    const std::string copy = folder_.file("changed.vedette");
    std::ofstream(copy, std::ios::binary) << changed;
    const auto run = load_run(copy);
    if (run)
      ++read, format_json(analyse(*run, {}), nullptr);
    else
      EXPECT_FALSE(run.error().message.empty());
  }
  EXPECT_GT(read, 0) << "some changes hit nothing that matters";
}

by_hand::Names hostile_names() {
  return {.program = "</script><script>alert(1)</script>",
          .weight = "</script><img src=x onerror=alert(1)>",
          .hidden = "<!--<script>",
          .brief = "\x1b[2J\x1b]0;owned\x07\x9b",
          .layer = "<a href=\"javascript:alert(1)\">layer</a>",
          .op =
              "a\xff\xfe"
              "b",
          .unit = "]]>'\";alert(1)//"};
}

TEST_F(ReportOf, HostileNamesStayText) {
  const Report report = analyse(load_run(recorded(hostile_names())).value(), {});
  const std::string page = format_page(report, nullptr);
  const std::size_t begin = page.find("id=\"data\">") + 10, end = page.find("</script>", begin);
  const auto json = nlohmann::json::parse(page.substr(begin, end - begin));
  EXPECT_EQ(json["run"]["tensors"][0]["name"], "</script><img src=x onerror=alert(1)>")
      << "the data ends where it should";
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
}

TEST_F(ReportOf, HostileNamesDoNotControlATerminal) {
  const std::string text = format_text(analyse(load_run(recorded(hostile_names())).value(), {}), nullptr);
  for (const char control : {'\x1b', '\x07', '\x9b'}) EXPECT_EQ(text.find(control), std::string::npos);
  by_hand::Names names = hostile_names();
  names.op = "one\nforged line";
  names.brief = "\xc3\xa4 \xc2\x9b \xe2\x80\xae \xd7\x90";  // a letter, CSI, right to left, a letter
  const std::string lines = format_text(analyse(load_run(recorded(names)).value(), {}), nullptr);
  EXPECT_THAT(lines, Not(HasSubstr("\nforged")));
  EXPECT_THAT(lines, HasSubstr("\xc3\xa4 ? ? \xd7\x90"));
}

// SQLite does what a rollback journal beside a file says, and one that names a super-journal removes that file.
TEST_F(ReportOf, AJournalBesideTheFileIsNotFollowed) {
  const std::string path = recorded(), another = folder_.file("another.txt"), link = folder_.file("link.vedette");
  std::ofstream(another) << "a file of the reader";
  const auto big_endian = [](std::uint32_t number) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
    return bytes;
  };
  std::uint32_t sum = 0;
  for (const char c : another) sum += static_cast<unsigned char>(c);
  const std::string magic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  const auto pages = static_cast<std::uint32_t>(std::filesystem::file_size(path) / 4096);
  std::string journal = magic + big_endian(0) + big_endian(1) + big_endian(pages) + big_endian(512) + big_endian(4096);
  journal.resize(512);
  journal += big_endian(0x40000000 / 4096 + 1) + another + big_endian(static_cast<std::uint32_t>(another.size())) +
             big_endian(sum) + magic;
  std::ofstream(path + "-journal", std::ios::binary) << journal;
  std::filesystem::create_symlink(path, link);
  for (const std::string& name : {path, link}) {
    EXPECT_THAT(load_run(name).error().message, HasSubstr("has a journal beside it"));
    EXPECT_THAT(Recording::open(name).error().message, HasSubstr("remove " + path + "-journal"));
    EXPECT_TRUE(std::filesystem::exists(another));
  }
}

TEST_F(ReportOf, AViewInATablesPlaceIsRefused) {
  EXPECT_THAT(error_after("ALTER TABLE steps RENAME TO kept; CREATE VIEW steps AS SELECT * FROM kept"),
              HasSubstr("is damaged: it lacks the table steps"));
  EXPECT_THAT(error_after("ALTER TABLE moves ADD COLUMN more"), HasSubstr("is damaged: its table moves is not that"));
}

TEST_F(ReportOf, SchemasThatRunSomethingDoNot) {
  const std::string path = recorded();
  change(path, "DROP TABLE names; CREATE VIEW names AS SELECT 1 AS name, load_extension('/nowhere') AS text");
  EXPECT_FALSE(load_run(path).ok());
}

}  // namespace
}  // namespace vedette::report::hostile_test
