// Files that verbs write: none is a file that the verb reads, a failure leaves the old one, and what is no plain file
// stays what it is.
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "cli/sentences.h"
#include "profiler/sqlite.h"

namespace vedette::output_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string copy_of(const std::string& file, const std::string& name) {
  const std::string path = told::fresh_path(name);
  fs::copy_file(file, path, fs::copy_options::overwrite_existing);
  return path;
}

void expect_untouched(const std::string& arguments, const std::string& input) {
  SCOPED_TRACE(arguments);
  const std::string before = text_of(input);
  expect_one_sentence(vedette(arguments), 1, "is read here, and writing it would destroy it");
  EXPECT_EQ(text_of(input), before);
}

// Escapes, bells, a C1 control in UTF-8 and as a byte, right to left, an end of line.
const std::string steering = "\x1b]0;title\x07\x1b[2J \xc2\x9b \x9b \xe2\x80\xae\x7f\r\nforged";

void expect_no_control(const std::string& says, const std::string& what) {
  SCOPED_TRACE(what);
  for (const char c : says) {
    const auto byte = static_cast<unsigned char>(c);
    EXPECT_TRUE(byte == '\n' || (byte >= 0x20 && byte < 0x7f)) << static_cast<int>(byte) << " in " << says;
    if (byte != '\n' && (byte < 0x20 || byte >= 0x7f)) return;
  }
  if (!what.starts_with("export --to csv")) {  // cells have lines
    EXPECT_THAT(says, Not(HasSubstr("\nforged")));
  }
}

void change(const std::string& recording, const std::string& sql, const std::string& text) {
  auto database = Database::open(recording, Database::Mode::create).value();
  Statement(database, sql).run(text);
  ASSERT_FALSE(database.failure()) << database.failure()->message;
}

// What a command writes to a terminal, whose line ends are "\r\n", but for lines of progress, which a slow machine
// sees.
std::string on_a_terminal(const std::string& arguments) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", (std::string(VEDETTE_CLI) + " " + arguments).c_str(), nullptr);
    ::_exit(127);
  }
  std::string text;
  char some[4096];
  for (ssize_t got = 0; (got = ::read(terminal, some, sizeof some)) > 0;)
    text.append(some, static_cast<std::size_t>(got));
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  std::erase(text, '\r');
  static const std::regex progress("\x1b\\[K(vedette [a-z]+: [ -~]*, [0-9]+ s)?");
  return std::regex_replace(text, progress, "");
}

TEST(ATerminal, IsNotSteeredByARecording) {
  const std::vector<std::string> sentences{"UPDATE names SET text = ?",
                                           "UPDATE layers SET name = ?",
                                           "UPDATE layers SET name = ? || layer",
                                           "UPDATE tensors SET name = ?",
                                           "UPDATE tiers SET name = ?",
                                           "UPDATE plan_reasons SET text = ?",
                                           "UPDATE plan_moves SET reason = ?",
                                           "UPDATE plan_units SET name = ?",
                                           "UPDATE notes SET text = ?",
                                           "UPDATE ops SET name = ?",
                                           "UPDATE steps SET phase = ?",
                                           "UPDATE ops SET phase = ?",
                                           "UPDATE tensors SET kind = ?",
                                           "UPDATE meta SET value = ?1 WHERE key IN ('program', 'policy', 'command', "
                                           "'started', 'vedette', 'cpu', 'commit')"};
  for (const std::string& sql : sentences) {
    const std::string recording = told::record_run("steering.vedette", 3);
    change(recording, sql, steering);
    for (const char* verb : {"info ", "report --text --no-simulation ", "plan ", "replay ", "check ", "pack "})
      expect_no_control(vedette(verb + recording).output, verb + sql);
    for (const char* verb : {"export --to csv --table names ", "export --to perfetto ", "export --to trace ",
                             "report --json --no-simulation -o - "})
      expect_no_control(on_a_terminal(verb + recording), verb + sql);
  }
}

TEST(ATerminal, IsNotSteeredByATraceAMachineOrAPlan) {
  const std::string json = "\\u001b[2J\\u009b\\u202e\\u007f\\nforged",
                    trace = written("steering.json", trace_with("\"x\"", "\"" + json + "\"")),
                    ops = written("ops.json", trace_with("\"make\"", "\"" + json + "\"")),
                    whole = written("whole.json", trace_with("\"two\"", "\"" + json + "\"")),
                    key = written("key.json", trace_with("\"notes\"", "\"" + json + "\""));
  for (const std::string& file : {trace, ops, whole, key, written("raw.json", steering)}) {
    for (const char* words : {"plan ", "plan --explain 1 ", "plan --explain nothing ", "check ", "replay ", "compare ",
                              "compare --json --policy lru ", "pack ", "check --policy on-demand --fast-memory 84 ",
                              "replay --fast-memory 70 ", "replay --machine "})
      expect_no_control(vedette(words + file).output, words + file);
    expect_no_control(vedette("check " + toy("chain4") + " " + file).output, "a plan " + file);
    expect_no_control(vedette("replay " + toy("chain4") + " --rows " + file).output, "rows " + file);
    expect_no_control(vedette("import " + file + " -o " + told::fresh_path("no.vedette")).output, "import " + file);
    expect_no_control(on_a_terminal("plan -o /dev/stdout " + file), "a plan on a terminal " + file);
  }
  expect_no_control(vedette("plan $'" + std::string("\\x1b[2J") + "'").output, "a name on the command line");
}

TEST(AnOutput, IsNoFileThatTheVerbReads) {
  const std::string trace = copy_of(toy("chain4"), "step.json"), recording = told::record_run("read.vedette", 1),
                    lives = written("lives.csv", "id,lower,upper,size\n0,0,2,8\n"),
                    machine = told::fresh_path("machine.json");
  for (const char* verb : {"plan", "compare"}) expect_untouched(verb + (" " + trace + " -o " + trace), trace);
  expect_untouched("plan " + trace + " --settled " + trace, trace);
  expect_untouched("replay " + trace + " --timeline " + trace, trace);
  expect_untouched("pack " + lives + " -o " + lives, lives);
  expect_untouched("import " + trace + " -o " + trace, trace);
  expect_untouched("report " + recording + " -o " + recording, recording);
  expect_untouched("export " + recording + " --to trace -o " + recording, recording);
  expect_untouched("export " + recording + " --to csv -o " + recording, recording);
  expect_untouched("export " + recording + " --to csv --table moves -o " + recording, recording);
  std::ofstream(machine) << "{}";
  expect_untouched("plan " + trace + " --machine " + machine + " -o " + machine, machine);
  expect_one_sentence(vedette("plan " + trace + " -o p.json --settled p.json"), 1, "-o and --settled name one file");
}

TEST(AnOutput, IsNoInputByAnotherNameEither) {
  const std::string trace = copy_of(toy("chain4"), "named.json"), link = told::fresh_path("link.json"),
                    hard = told::fresh_path("hard.json");
  fs::create_symlink(trace, link);
  fs::create_hard_link(trace, hard);
  expect_untouched("plan " + trace + " -o " + link, trace);
  expect_untouched("plan " + link + " -o " + trace, trace);
  expect_untouched("plan " + trace + " -o " + hard, trace);
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST(AnOutput, OfAVerbThatFailsLeavesTheOldFile) {
  const std::string old = written("old.json", "what was there");
  EXPECT_EQ(vedette("plan " + toy("chain4") + " --fast 1000 -o " + old).status, 1);
  EXPECT_EQ(vedette("compare /nowhere.json -o " + old).status, 1);
  EXPECT_EQ(vedette("export /nowhere.vedette --to trace -o " + old).status, 1);
  EXPECT_EQ(text_of(old), "what was there");
  EXPECT_EQ(vedette("plan " + toy("chain4") + " --fast 60% -o " + old).status, 0);
  EXPECT_THAT(text_of(old), StartsWith("{\"format\": \"vedette-plan-1\""));
  for (const auto& entry : fs::directory_iterator(fs::path(old).parent_path()))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("unfinished")));
}

TEST(AnOutput, StaysALinkAndKeepsTheModeOfTheFileBehindIt) {
  const std::string file = written("behind.json", "old"), link = told::fresh_path("before.json"),
                    dangling = told::fresh_path("dangling.json"), made = told::fresh_path("made.json");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("behind.json", link);
  fs::create_symlink("made.json", dangling);
  for (const std::string& name : {link, dangling})
    EXPECT_EQ(vedette("plan " + toy("chain4") + " --fast 60% -o " + name).status, 0);
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(dangling));
  EXPECT_THAT(text_of(file), StartsWith("{\"format\""));
  EXPECT_EQ(text_of(made), text_of(file));
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AnOutput, GoesStraightToDevicesPipesAndStandardOutput) {
  const std::string recording = told::record_run("devices.vedette", 1), pipe = told::fresh_path("pipe"),
                    plan = "plan " + toy("chain4") + " --fast 60% -o ";
  EXPECT_EQ(vedette("export " + recording + " --to trace -o /dev/null").status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  expect_one_sentence(vedette(plan + "/dev/full"), 1, "/dev/full cannot be written: No space left on device");
  expect_one_sentence(vedette(plan + "/"), 1, "/ cannot be written: it is a directory");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const told::Ran through =
      told::run("(" + std::string(VEDETTE_CLI) + " " + plan + pipe + " > /dev/null &) ; timeout 60 cat " + pipe);
  EXPECT_THAT(through.output, StartsWith("{\"format\""));
  EXPECT_TRUE(fs::is_fifo(pipe));
  const std::string shown = told::fresh_path("shown.txt");
  EXPECT_EQ(told::run(std::string(VEDETTE_CLI) + " " + plan + "/dev/stdout > " + shown).status, 0);
  EXPECT_EQ(text_of(shown), through.output + vedette(plan + "/dev/null").output);
}

}  // namespace
}  // namespace vedette::output_test
