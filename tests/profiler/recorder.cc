// A run told by hand, recorded and read back: by the reader, by SQLite's own shell, after an overflow and after a kill.
#include "profiler/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "profiler/recording.h"

namespace vedette {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Folder {                      // of this program alone, gone with it
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("vedette_recorder_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string fresh_path(const std::string& name) {
  static const Folder folder;
  return folder.path / name;
}

Trace two_layers() {
  return {.name = "toy",
          .source = "test",
          .device = "cpu",
          .notes = {},
          .tensors = {{.name = "weight", .bytes = 64_KiB, .kind = TensorKind::weight, .persistent = true},
                      {.name = "hidden", .bytes = {10000}}},
          .layers = {{.name = "linear"}, {.name = "linear", .phase = Phase::backward}},
          .ops = {{.name = "mm", .layer = LayerIndex{0}, .time = {1000}, .workspace = {}, .reads = {{0}}, .writes = {{1}}, .frees = {}},
                  {.name = "relu", .layer = LayerIndex{0}, .time = {500}, .workspace = {}, .reads = {{1}}, .writes = {{1}}, .frees = {}},
                  {.name = "mm", .layer = LayerIndex{1}, .phase = Phase::backward, .time = {900}, .workspace = {64}, .reads = {{0}, {1}},
                   .writes = {}, .frees = {{1}}}},
          .pages = {{.op = {0}, .tensor = {0}, .pages = {0, 16}, .read = true},
                    {.op = {0}, .tensor = {1}, .pages = {0, 2}, .read = true, .written = true},
                    {.op = {1}, .tensor = {0}, .pages = {4, 8}, .read = true},
                    {.op = {1}, .tensor = {1}, .pages = {1, 3}, .written = true},
                    {.op = {2}, .tensor = {0}, .pages = {0, 1}, .read = true}}};
}

Machine dram_and_disk() {
  return {.tiers = {{.name = "dram", .capacity = 1_MiB, .addressable = true}, {.name = "nvme", .capacity = 64_MiB}},
          .links = {{.source = {0}, .target = {1}, .bytes_per_s = 1000000000, .latency = {80000}, .shared = 1}},
          .fault_time = {74000}};
}

void tell_step(Observer& observer, std::uint64_t step, const Counters& counters) {
  const auto at = [&](std::int64_t offset) { return Nanoseconds{static_cast<std::int64_t>(step) * 1000000 + offset}; };
  observer.step_began(step, at(0));
  observer.op_began(step, {0}, "mm", at(10));
  observer.stalled({.step = step, .op = {0}, .began = at(11), .ended = at(15)});
  observer.moved({.cause = MoveCause::urgent, .chunk = 3, .bytes = 64_KiB, .issued = at(1), .started = at(2), .ended = at(14)});
  observer.op_ended(step, {0}, at(20));
  observer.faulted({.step = step, .op = {1}, .chunk = 7, .page = 5, .write = true, .began = at(30), .ended = at(40)});
  observer.step_ended(step, at(100), counters);
}

// A run of `steps` steps with one profile and one plan.
void tell_run(Observer& observer, std::uint64_t steps) {
  observer.opened(dram_and_disk(), "sentinel", 1_MiB, 64_KiB);
  observer.profiled(0, 0xF000000000000001, two_layers());
  const Plan plan{.home = {{1}, {0}},
                  .moves = {{.issue = {2}, .due = {0}, .extent = {.tensor = {0}, .part = Span<Bytes>{{0}, 4_KiB}}, .source = {1},
                             .target = {0}}},
                  .in_place = {}, .recomputations = {}, .order = {}, .reserved = 4_KiB};
  observer.planned(1, 0xF000000000000001, two_layers(), plan);
  for (std::uint64_t step = 0; step < steps; ++step) {
    tell_step(observer, step, {.bytes_in = 100, .bytes_out = 50, .stall_count = 1, .stall_ns = 4, .faults = 1,
                               .peak_bytes = 1000 + step, .resident_max_bytes = 900});
  }
}

std::string record_run(const std::string& name, std::uint64_t steps) {
  const std::string path = fresh_path(name);
  auto recorder = Recorder::open({.path = path, .program = "a test"}).value();
  tell_run(*recorder, steps);
  recorder->flush();
  EXPECT_FALSE(recorder->failure().has_value()) << recorder->failure()->message;
  return path;
}

std::string shell(const std::string& path, const std::string& sql) {
  const std::string command = std::string(SQLITE3) + " '" + path + "' \"" + sql + "\" 2>&1";
  std::string out;
  std::array<char, 256> buffer{};
  FILE* pipe = ::popen(command.c_str(), "r");
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) out += buffer.data();
  ::pclose(pipe);
  return out;
}

std::int64_t ask(const std::string& path, const char* sql) {
  auto database = Database::open(path, Database::Mode::read).value();
  Statement statement(database, sql);
  statement.ask();
  return statement.row() ? statement.integer(0) : -1;
}

TEST(Recorder, WritesARunThatTheReaderSumsUp) {
  auto recording = Recording::open(record_run("sum.vedette", 5)).value();
  const Headline h = recording.headline().value();
  EXPECT_EQ(h.program, "a test");
  EXPECT_EQ(h.policy, "sentinel");
  EXPECT_EQ(h.budget, 1_MiB);
  EXPECT_EQ(h.steps, 5u);
  EXPECT_EQ(h.peak, Bytes{1004});
  EXPECT_EQ(h.resident_max, Bytes{900});
  EXPECT_EQ(h.bytes_in, Bytes{500});
  EXPECT_EQ(h.bytes_out, Bytes{250});
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
  if (std::string(SQLITE3).ends_with("NOTFOUND")) GTEST_SKIP() << "the sqlite3 shell is missing (Debian package sqlite3)";
  const std::string path = record_run("shell.vedette", 3);
  EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
  EXPECT_EQ(shell(path, "PRAGMA user_version"), "1\n");
  EXPECT_EQ(shell(path, "SELECT text, COUNT(*), MIN(ended_ns - began_ns) FROM op_times JOIN names USING(name)"), "mm|3|10\n");
  EXPECT_EQ(shell(path, "SELECT * FROM moves WHERE step = 1"), "1|fetch|urgent|3|65536|1000001|1000002|1000014\n");
  EXPECT_EQ(shell(path, "SELECT * FROM stalls WHERE step = 2"), "2|0|0|2000011|2000015\n");
  EXPECT_EQ(shell(path, "SELECT * FROM faults WHERE step = 0"), "0|1|7|5|1|30|40\n");
  EXPECT_EQ(shell(path, "SELECT tier, name, capacity_bytes, addressable FROM tiers"), "0|dram|1048576|1\n1|nvme|67108864|0\n");
  EXPECT_EQ(shell(path, "SELECT * FROM links"), "0|1|1000000000|80000|1\n");
  EXPECT_EQ(shell(path, "SELECT unit, name, home FROM plan_units"), "0|weight|1\n1|hidden|0\n");
  EXPECT_EQ(shell(path, "SELECT * FROM plan_moves"), "1|0|fetch|2|0|0|0|4096|1|0\n");
  EXPECT_EQ(shell(path, "SELECT op, role, tensor FROM operands WHERE op = 2"), "2|free|1\n2|read|0\n2|read|1\n");
}

TEST(Recorder, CountsWhatFoundTheRingFull) {
  const std::string path = fresh_path("overflow.vedette");
  constexpr std::uint64_t told = 1000000;
  std::uint64_t dropped = 0;
  {
    auto recorder = Recorder::open({.path = path, .ring_records = 8}).value();
    for (std::uint64_t i = 0; i < told; ++i) recorder->faulted({.step = 1, .chunk = i});
    dropped = recorder->dropped();
    EXPECT_GT(dropped, 0u);
  }
  auto recording = Recording::open(path).value();
  EXPECT_EQ(recording.headline().value().dropped_events, dropped);
  EXPECT_EQ(static_cast<std::uint64_t>(ask(path, "SELECT COUNT(*) FROM faults")) + dropped, told);
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
}  // namespace vedette
