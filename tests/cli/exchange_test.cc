// vedette export, import, info and top, as commands: files, standard output, exit statuses, sentences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/live.h"
#include "profiler/schema.h"
#include "profiler/told_run.h"

namespace vedette::exchange_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

told::Ran vedette(const std::string& arguments) { return told::run(std::string(VEDETTE_CLI) + " " + arguments); }

TEST(ExportCommand, WritesAFileOrStandardOutput) {
  const std::string recording = told::record_run("a run.vedette", 2), out = told::fresh_path("requests.txt");
  const told::Ran shown = vedette("export '" + recording + "' --to mqsim");
  EXPECT_EQ(shown.status, 0);
  EXPECT_THAT(shown.output, StartsWith("0 0 0 128 1\n"));
  EXPECT_EQ(vedette("export '" + recording + "' --to mqsim -o '" + out + "'").status, 0);
  std::ifstream file(out);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), shown.output);
  const std::string folder = told::fresh_path("tables");
  EXPECT_EQ(vedette("export '" + recording + "' --to csv -o '" + folder + "'").status, 0);
  for (const std::string_view table : recording_tables())
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + std::string(table) + ".csv")) << table;
}

TEST(ExportCommand, SaysWhatItCannotDoAndLeavesNoFile) {
  const std::string recording = told::record_run("refused.vedette", 1), out = told::fresh_path("none");
  const told::Ran foreign = vedette("export '" + recording + "' --to word -o '" + out + "'");
  EXPECT_EQ(foreign.status, 1);
  EXPECT_THAT(foreign.output, HasSubstr("there is no format 'word'; there are: trace, perfetto"));
  EXPECT_EQ(vedette("export /nowhere.vedette --to trace -o '" + out + "'").output,
            "vedette: /nowhere.vedette: no such file\n");
  EXPECT_FALSE(std::filesystem::exists(out));
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(out).parent_path()))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("unfinished")));
}

TEST(ImportCommand, MakesARecordingThatInfoReads) {
  const std::string recording = told::record_run("source.vedette", 1), trace = told::fresh_path("step.json"),
                    made = told::fresh_path("made.vedette");
  ASSERT_EQ(vedette("export '" + recording + "' --to trace -o '" + trace + "'").status, 0);
  ASSERT_EQ(vedette("import '" + trace + "' -o '" + made + "'").status, 0);
  const told::Ran info = vedette("info '" + made + "'");
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.output, HasSubstr("imported from  vedette-trace-1"));
  EXPECT_THAT(info.output, HasSubstr("\nbudget         -\n"));
  EXPECT_THAT(info.output, HasSubstr("program        toy"));
  EXPECT_THAT(vedette("import /dev/null -o '" + made + "'").output, HasSubstr("/dev/null: it is empty"));
}

TEST(WhoeverReadsRecordings, SaysWhyAFileIsNone) {
  const std::string whole = told::record_run("whole.vedette", 20), cut = told::fresh_path("cut.vedette"),
                    empty = told::fresh_path("empty.vedette"), letter = told::fresh_path("letter.vedette");
  std::filesystem::copy_file(whole, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  std::ofstream(empty).flush();
  std::ofstream(letter) << "Dear reader";
  const std::string folder = std::filesystem::path(whole).parent_path().string();
  for (const std::string verb : {"info ", "report --text ", "export --to trace "}) {
    SCOPED_TRACE(verb);
    EXPECT_EQ(vedette(verb + "'" + folder + "'").output,
              "vedette: " + folder + " is a directory; name a recording in it\n");
    EXPECT_EQ(vedette(verb + "'" + empty + "'").output, "vedette: " + empty + " is empty\n");
    EXPECT_EQ(vedette(verb + "'" + letter + "'").output, "vedette: " + letter + " is not a recording of vedette\n");
    const told::Ran of_half = vedette(verb + "'" + cut + "'");
    EXPECT_EQ(of_half.status, 1);
    EXPECT_THAT(of_half.output, StartsWith("vedette: " + cut + " is cut short or damaged"));
  }
  EXPECT_EQ(vedette("import '" + folder + "' -o '" + cut + "'").output,
            "vedette: " + folder + ": is a directory; name a file in it\n");
}

TEST(InfoCommand, TellsAPlannedRun) {
  Trace trace = told::two_layers();
  trace.layers[0].name = "esc\x1b[2J";
  const told::Ran info = vedette("info '" + told::record_run("info.vedette", 4, trace) + "'");
  EXPECT_THAT(info.output, HasSubstr("steps          4 (0 warm-up, 0 profiling, 4 planned)"));
  EXPECT_THAT(info.output, HasSubstr("tier 1         nvme, 64.0 MiB, reached by copying"));
  EXPECT_THAT(info.output, HasSubstr("it does not fit"));
  EXPECT_THAT(info.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(info.output, Not(HasSubstr("not closed")));
}

TEST(InfoCommand, SaysThatARunStillLives) {
  const std::string path = told::fresh_path("lives.vedette");
  const auto recorder = Recorder::open({.path = path, .live = false}).value();
  told::tell_run(*recorder, 1);
  recorder->flush();
  EXPECT_THAT(vedette("info '" + path + "'").output, HasSubstr("not closed"));
}

TEST(TopCommand, ShowsAProcessThatRecords) {
  const auto recorder = Recorder::open({.path = told::fresh_path("top.vedette"), .program = "a shown program"}).value();
  told::tell_run(*recorder, 3);
  if (!read_live(::getpid())) GTEST_SKIP() << "no page can be shown in " << live_directory;
  const told::Ran shown = vedette("top --once " + std::to_string(::getpid()));
  EXPECT_EQ(shown.status, 0);
  EXPECT_THAT(shown.output, HasSubstr("a shown program, policy sentinel, step 3 (planned)"));
  EXPECT_THAT(shown.output, AllOf(HasSubstr("KiB of 1.0 MiB, alive"), HasSubstr("moved in"), HasSubstr("a second")));
  const told::Ran twice = vedette("top --count 2 --interval 0.05 " + std::to_string(::getpid()));
  EXPECT_EQ(twice.status, 0);
  const auto json = nlohmann::json::parse(vedette("top --once --json " + std::to_string(::getpid())).output);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["program"], "a shown program");
  EXPECT_EQ(json[0]["phase"], "planned");
  EXPECT_EQ(json[0]["step"], 3);
  const told::Ran nobody = vedette("top --once 999999999");
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.output, HasSubstr("shows no counters"));
}

}  // namespace
}  // namespace vedette::exchange_test
