// A run told by hand, recorded and read back: by the reader, by SQLite's own shell, after an overflow and after a kill.
#include "profiler/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "profiler/recording.h"
#include "profiler/told_run.h"
#include "support/thread_masks.h"

namespace vedette::recorder_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using told::dram_and_disk;
using told::fresh_path;
using told::record_run;
using told::tell_run;
using told::two_layers;

std::string shell(const std::string& path, const std::string& sql) {
  return told::run(std::string(SQLITE3) + " '" + path + "' \"" + sql + "\"").output;
}

std::int64_t ask(const std::string& path, const char* sql) {
  auto database = Database::open(path, Database::Mode::read).value();
  Statement statement(database, sql);
  statement.ask();
  return statement.row() ? statement.integer(0) : -1;
}

TEST(Recorder, ItsWriterRunsNoSignalHandlerOfTheProgram) {
  const int before = threads_open_to(SIGUSR1), faulting_before = threads_open_to(SIGSEGV),
            filtered_before = threads_open_to(SIGSYS);
  auto recorder = Recorder::open({.path = fresh_path("quiet.vedette")}).value();
  EXPECT_TRUE(come_to_be_open_to(SIGSEGV, faulting_before + 1)) << "a fault of the thread itself ends the program";
  EXPECT_TRUE(come_to_be_open_to(SIGSYS, filtered_before + 1)) << "as does a system call that a filter traps";
  EXPECT_EQ(threads_open_to(SIGUSR1), before);
}

TEST(Recorder, WritesARunThatTheReaderSumsUp) {
  auto recording = Recording::open(record_run("sum.vedette", 5)).value();
  const Headline h = recording.headline().value();
  EXPECT_EQ(h.program, "a test");
  EXPECT_EQ(h.policy, "sentinel");
  EXPECT_EQ(h.budget, 1_MiB);
  EXPECT_EQ(h.steps, 5u);
  EXPECT_EQ(h.peak, Bytes{75541});
  EXPECT_EQ(h.resident_max, Bytes{131072});
  EXPECT_EQ(h.moved.in, Bytes{5 * 65536});
  EXPECT_EQ(h.moved.out, Bytes{5 * 65536});
  EXPECT_EQ(h.stall_count, 5u);
  EXPECT_EQ(h.stall_time, Nanoseconds{20});
  EXPECT_EQ(h.faults, 5u);
  EXPECT_EQ(h.median_step, Nanoseconds{100});
  EXPECT_EQ(h.dropped_events, 0u);
  EXPECT_EQ(h.profiles, 1u);
  EXPECT_EQ(h.plans, 1u);
}

TEST(Recorder, CountsForEachPageAndLayerTheTicksThatTouchedIt) {
  auto recording = Recording::open(record_run("pages.vedette", 1)).value();
  const auto profiles = recording.profiles().value();
  ASSERT_EQ(profiles.size(), 1u);
  EXPECT_EQ(profiles[0].bucket, "17293822569102704641");
  EXPECT_TRUE(profiles[0].tracked);
  using F = PageFrequency;
  EXPECT_THAT(recording.page_frequencies(profiles[0]).value(),
              ElementsAre(F{.layer = 0, .tensor = {0}, .pages = {0, 4}, .ticks = 1, .reads = 1},
                          F{.layer = 0, .tensor = {0}, .pages = {4, 8}, .ticks = 2, .reads = 2},
                          F{.layer = 0, .tensor = {0}, .pages = {8, 16}, .ticks = 1, .reads = 1},
                          F{.layer = 0, .tensor = {1}, .pages = {0, 1}, .ticks = 1, .reads = 1, .writes = 1},
                          F{.layer = 0, .tensor = {1}, .pages = {1, 2}, .ticks = 2, .reads = 1, .writes = 2},
                          F{.layer = 0, .tensor = {1}, .pages = {2, 3}, .ticks = 1, .writes = 1},
                          F{.layer = 1, .tensor = {0}, .pages = {0, 1}, .ticks = 1, .reads = 1}));
  const auto layers = recording.layers_by_pages(profiles[0]).value();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].name, "linear");
  EXPECT_EQ(layers[0].phase, "forward");
  EXPECT_EQ(layers[0].pages, 19u);
  EXPECT_EQ(layers[0].touches, 24u);
  EXPECT_EQ(layers[0].written_pages, 3u);
  EXPECT_EQ(layers[0].hottest, 2u);
  EXPECT_EQ(layers[1].phase, "backward");
}

TEST(Recorder, TakesWholeOperandsWhereNoPagesWereTracked) {
  const std::string path = fresh_path("operands.vedette");
  Trace trace = two_layers();
  trace.pages.clear();
  Recorder::open({.path = path}).value()->profiled(0, 1, trace);
  auto recording = Recording::open(path).value();
  const auto profiles = recording.profiles().value();
  ASSERT_EQ(profiles.size(), 1u);
  EXPECT_FALSE(profiles[0].tracked);
  const auto layers = recording.layers_by_pages(profiles[0]).value();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].pages, 16u + 3u);
  EXPECT_EQ(layers[0].touches, 16u + 3u + 3u);
}

TEST(Recorder, LeavesOneFileThatSqlitesOwnShellReads) {
  if (std::string(SQLITE3).ends_with("NOTFOUND"))
    GTEST_SKIP() << "the sqlite3 shell is missing (Debian package sqlite3)";
  const std::string path = record_run("shell.vedette", 3);
  EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
  EXPECT_EQ(shell(path, "PRAGMA user_version"), "8\n");
  EXPECT_EQ(
      shell(path, "SELECT text, COUNT(*), MIN(ended_ns - began_ns) FROM op_times JOIN names USING(name) GROUP BY text"),
      "mm|6|10\nrelu|3|20\n");
  EXPECT_EQ(shell(path, "SELECT op, resident_bytes, live_bytes FROM op_times WHERE step = 1"),
            "0|131072|75536\n1|131072|75536\n2|65536|65536\n");
  EXPECT_EQ(
      shell(path, "SELECT * FROM moves WHERE step = 2"),
      "2|3|fetch|urgent|0|65536|2000001|2000002|2000014|1\n2|4|evict|planned|0|65536|2000071|2000072|2000080|1\n");
  EXPECT_EQ(shell(path, "SELECT * FROM stalls WHERE step = 2"), "2|2|0|0|2000011|2000015\n");
  EXPECT_EQ(shell(path, "SELECT * FROM recomputations WHERE step = 1"), "1|1|2|1|1|2|1000046|1000049\n");
  EXPECT_EQ(shell(path, "SELECT * FROM faults WHERE step = 1"), "1|1|1|7|5|1|1000030|1000040\n");
  EXPECT_EQ(shell(path, "SELECT tier, name, capacity_bytes, addressable FROM tiers"),
            "0|dram|1048576|1\n1|nvme|67108864|0\n");
  EXPECT_EQ(shell(path, "SELECT * FROM links"), "0|1|1000000000|80000|1|0\n1|0|2000000000|80000|1|3000000000\n");
  EXPECT_EQ(shell(path, "SELECT tensor, shape, site_layer, site_op FROM tensors"), "0|128x128||\n1|2500|linear|mm\n");
  EXPECT_EQ(shell(path, "SELECT * FROM tensor_places"), "1|0|0|65536\n1|1|65536|75536\n");
  EXPECT_EQ(shell(path, "SELECT unit, name, home, begin_byte, end_byte FROM plan_units"),
            "0|weight|1|0|65536\n1|hidden|0|65536|131072\n");
  EXPECT_EQ(
      shell(path,
            "SELECT plan, position, verb, issue, due, unit, begin_byte, end_byte, source, target FROM plan_moves"),
      "1|0|fetch|0|0|0|0|4096|1|0\n1|1|evict|2|0|0|||0|1\n");
  EXPECT_EQ(shell(path, "SELECT text FROM plan_reasons"), "it does not fit\n");
  EXPECT_EQ(shell(path, "SELECT op, role, tensor FROM operands WHERE op = 2"), "2|free|1\n2|read|0\n2|read|1\n");
  EXPECT_EQ(shell(path, "SELECT step, phase, bucket, process_bytes > 0 FROM steps WHERE step = 1"),
            "1|planned|17293822569102704641|1\n");
  EXPECT_EQ(shell(path, "SELECT value FROM meta WHERE key = 'complete'"), "1\n");
}

TEST(Recorder, SaysWhatEachPlannedMoveRestsOn) {
  if (std::string(SQLITE3).ends_with("NOTFOUND"))
    GTEST_SKIP() << "the sqlite3 shell is missing (Debian package sqlite3)";
  const std::string path = record_run("basis.vedette", 1);
  // weight is used by ops 0 and 2: between them op 1 (500 ns). The fetch is due before op 0, a step after op 2: nothing
  // between. 4 KiB take 80 us and 2.048 us to come, 64 KiB 80 us and 65.536 us to leave.
  EXPECT_EQ(shell(path, "SELECT last_use, next_use, gap_ns, transfer_ns, slack_ns FROM plan_moves"),
            "2|0|0|82048|0\n2|0|0|145536|0\n");
  EXPECT_THAT(shell(path, "SELECT reason FROM plan_moves WHERE verb = 'evict'"), HasSubstr("(after op 2, until op 0)"));
}

// What a step of ResNet-18 tells at a quarter of its memory, measured: 680 ops, 400 moves, 25 stalls.
TEST(Recorder, StaysUnderAHundredMegabytesPerThousandStepsOfResNet18) {
  const std::string path = fresh_path("size.vedette");
  constexpr std::uint64_t steps = 100;
  {
    auto recorder = Recorder::open({.path = path, .live = false}).value();
    std::int64_t now = 40'000'000'000'000;
    const auto later = [&now](std::int64_t by) { return Nanoseconds{now += by}; };
    for (std::uint64_t step = 1; step <= steps; ++step) {
      recorder->step_began(step, later(1000));
      for (std::uint32_t op = 0; op < 680; ++op) {
        recorder->op_began(step, {op}, "aten::some_operator " + std::to_string(op % 40), later(1'000'000));
        const std::uint64_t bytes = 200'000'000 + op * 2'097'152ULL % 100'000'000;
        if (op < 400)
          recorder->moved({.verb = op % 2 == 0 ? Verb::fetch : Verb::evict,
                           .chunk = op * 7,
                           .bytes = {2097152},
                           .issued = later(1),
                           .started = later(1),
                           .ended = later(1)});
        if (op < 25) recorder->stalled({.step = step, .op = {op}, .began = later(1), .ended = later(900'000)});
        recorder->sampled(step, {op}, {bytes}, {bytes * 3});
        recorder->op_ended(step, {op}, later(700'000));
      }
      recorder->step_ran(step, "planned", 0xF000000000000001);
      recorder->step_ended(step, later(1), {.bytes_in = {400'000'000}, .ops = 680});
      if (step % 10 == 0) recorder->flush();
    }
    EXPECT_EQ(recorder->dropped(), 0u);
  }
  EXPECT_LT(std::filesystem::file_size(path), steps * 100'000);
}

// Of events of one kind, whose rows are in that table.
void overflow_by(const std::string& table, void (*tell)(Recorder&, std::uint64_t)) {
  SCOPED_TRACE(table);
  const std::string path = fresh_path("overflow.vedette");
  constexpr std::uint64_t told = 300000;
  std::uint64_t dropped = 0;
  {
    auto recorder = Recorder::open({.path = path, .ring_records = 8}).value();
    for (std::uint64_t i = 0; i < told; ++i) tell(*recorder, i);
    dropped = recorder->dropped();
    EXPECT_GT(dropped, 0u);
  }
  auto recording = Recording::open(path).value();
  EXPECT_EQ(recording.headline().value().dropped_events, dropped);
  EXPECT_EQ(static_cast<std::uint64_t>(ask(path, ("SELECT COUNT(*) FROM " + table).c_str())) + dropped, told);
}

TEST(Recorder, CountsWhatFoundTheRingFull) {
  overflow_by("faults", [](Recorder& recorder, std::uint64_t i) { recorder.faulted({.step = 1, .chunk = i}); });
  overflow_by("moves", [](Recorder& recorder, std::uint64_t i) { recorder.moved({.chunk = i, .bytes = {1}}); });
  overflow_by("stalls", [](Recorder& recorder, std::uint64_t i) { recorder.stalled({.step = i}); });
  overflow_by("op_times", [](Recorder& recorder, std::uint64_t i) { recorder.op_ended(i, {0}, {1}); });
}

TEST(Recorder, HearsTheEngineAndTheProgramAtOnce) {
  const std::string path = fresh_path("both.vedette");
  constexpr std::int64_t each = 20000;
  std::uint64_t dropped = 0;
  {
    auto recorder = Recorder::open({.path = path}).value();
    std::jthread engine([&recorder] {
      for (std::int64_t i = 0; i < each; ++i) recorder->moved({.chunk = static_cast<std::uint64_t>(i), .bytes = {1}});
    });
    for (std::uint32_t i = 0; i < each; ++i) {
      if (i % 1000 == 0) recorder->step_began(i / 1000, {});
      recorder->op_began(i / 1000, {i}, "op " + std::to_string(i % 7), {i});
      recorder->op_ended(i / 1000, {i}, {i + 1});
    }
    engine.join();
    dropped = recorder->dropped();
  }
  EXPECT_EQ(dropped, 0u);
  EXPECT_EQ(ask(path, "SELECT SUM(chunk) FROM moves"), each * (each - 1) / 2);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM op_times JOIN names USING(name) WHERE text = 'op ' || (op % 7)"), each);
}

TEST(Recorder, TellsTwoSlowTiersApart) {
  const std::string path = fresh_path("tiers.vedette");
  {
    auto recorder = Recorder::open({.path = path, .live = false}).value();
    Machine machine;
    machine.tiers = {{.name = "dram", .capacity = {1 << 20}},
                     {.name = "host", .capacity = {1 << 20}},
                     {.name = "nvme", .capacity = {1 << 30}}};
    recorder->opened(machine, "vedette", {1 << 20}, {65536});
    recorder->step_began(0, {1});
    recorder->moved({.verb = Verb::evict, .slow = 1, .chunk = 1, .bytes = {65536}});
    recorder->moved({.verb = Verb::fetch, .slow = 2, .chunk = 2, .bytes = {65536}});
    recorder->step_ended(0, {2},
                         {.bytes_in = {65536},
                          .bytes_out = {65536},
                          .far_bytes_in = {65536},
                          .far_bytes_out = {0},
                          .moved_between_slow_tiers = {131072}});
  }
  if (!std::string(SQLITE3).ends_with("NOTFOUND")) {
    EXPECT_EQ(shell(path, "SELECT verb, tier FROM moves"), "evict|1\nfetch|2\n");
  }
  const Headline read = Recording::open(path).value().headline().value();
  EXPECT_EQ(read.far.in, Bytes{65536});
  EXPECT_EQ(read.far.out, Bytes{0});
  EXPECT_EQ(read.far.between, Bytes{131072});
}

TEST(Recorder, LeavesAReadableFileWhenTheProgramIsKilled) {
  const std::string path = fresh_path("killed.vedette");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto recorder = Recorder::open({.path = path}).value();
    tell_run(*recorder, 4);
    recorder->flush();
    recorder->step_began(4, {5000000});  // a step that never ends
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Recording::open(path).value().headline().value().steps, 4u);
  // Everything told before the flush, in every table, and nothing broken.
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM op_times"), 12);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM moves"), 8);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM stalls"), 4);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM faults"), 4);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM page_accesses"), 5);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM plan_moves"), 2);
  EXPECT_EQ(ask(path, "SELECT COUNT(*) FROM meta WHERE key = 'complete'"), 0);
  EXPECT_EQ(ask(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
}

TEST(Recorder, IsInTheFileSoonAfterAStepEndsWithoutBeingAsked) {
  const std::string path = fresh_path("soon.vedette");
  auto recorder = Recorder::open({.path = path}).value();
  tell_run(*recorder, 1);
  std::uint64_t steps = 0;
  for (int attempt = 0; attempt < 200 && steps == 0; ++attempt) {
    ::usleep(20000);
    steps = Recording::open(path).value().headline().value().steps;
  }
  EXPECT_EQ(steps, 1u);
}

TEST(Recorder, ReplacesAnEarlierRecordingOnly) {
  const std::string path = record_run("again.vedette", 3);
  tell_run(*Recorder::open({.path = path}).value(), 2);
  EXPECT_EQ(Recording::open(path).value().headline().value().steps, 2u);

  const std::string thesis = fresh_path("thesis.txt");
  std::ofstream(thesis) << "years of work";
  const auto refused = Recorder::open({.path = thesis});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("is no recording"));
  EXPECT_EQ(std::filesystem::file_size(thesis), 13u);
}

// Two ranks of a job, for instance. A child of the first writer is none.
TEST(Recorder, RefusesAFileThatAnotherProcessRecords) {
  const std::string path = fresh_path("shared.vedette");
  const auto opens_in_a_child = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto second = Recorder::open({.path = path});
      const bool refused =
          !second.ok() && second.error().cause == Cause::unavailable &&
          second.error().message.ends_with(" is being recorded by process " + std::to_string(::getppid()) +
                                           "; name another file for this one");
      ::_exit(second.ok() ? 0 : refused ? 1 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  {
    const auto first = Recorder::open({.path = path}).value();
    EXPECT_EQ(opens_in_a_child(), 1);
    tell_run(*first, 2);
  }
  EXPECT_EQ(Recording::open(path).value().headline().value().steps, 2u);
  EXPECT_EQ(opens_in_a_child(), 0);
}

// Over nothing, over an earlier recording, and over one whose recorder has ended.
TEST(Recorder, OneOfSeveralThatOpenAFileAtOnceRecordsIt) {
  constexpr std::size_t several = 6;
  const std::string path = fresh_path("raced.vedette");
  for (int round = 0; round < 40; ++round) {
    std::barrier at_once(several);
    std::mutex mutex;
    std::vector<std::unique_ptr<Recorder>> opened;
    std::vector<std::string> refused;
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < several; ++i)
      threads.emplace_back([&] {
        at_once.arrive_and_wait();
        auto recorder = Recorder::open({.path = path});
        const std::lock_guard lock(mutex);
        recorder ? opened.push_back(std::move(recorder).value()) : refused.push_back(recorder.error().message);
      });
    threads.clear();
    ASSERT_EQ(opened.size(), 1u) << "round " << round << ::testing::PrintToString(refused);
    EXPECT_THAT(refused, Each(HasSubstr(" is being recorded by ")));
    tell_run(*opened[0], 2);
    opened.clear();
    EXPECT_EQ(Recording::open(path).value().headline().value().steps, 2u);
  }
}

TEST(Recorder, SaysInASentenceWhereItCannotWrite) {
  const auto refused = Recorder::open({.path = fresh_path("missing/folder.vedette")});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("unable to open database file"));
}

TEST(Recording, RefusesFilesItCannotRead) {
  EXPECT_THAT(Recording::open(fresh_path("none.vedette")).error().message, HasSubstr("no such file"));
  const std::string text = fresh_path("text.vedette");
  std::ofstream(text) << "this is a letter, and not at all a database of any kind";
  EXPECT_EQ(Recording::open(text).error().cause, Cause::malformed_input);
  const std::string path = record_run("future.vedette", 1);
  {
    auto database = Database::open(path, Database::Mode::read).value();
    database.run("PRAGMA user_version=99");
  }
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("schema 99"));
}

}  // namespace
}  // namespace vedette::recorder_test
