// The page that a recording process shows, and those who look at it.
#include "profiler/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "profiler/live_heat.h"
#include "profiler/told_run.h"

namespace vedette::live_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string fresh_directory(const std::string& name) {
  const std::string path = told::fresh_path(name);
  std::filesystem::create_directories(path);
  return path;
}

TEST(Live, ShowsWhatWasCounted) {
  const std::string directory = fresh_directory("shown");
  const auto page = LivePage::make("a program\x1b[31m", directory);
  ASSERT_NE(page, nullptr);
  page->policy("sentinel");
  page->set(Live::step, 7);
  page->add(Live::bytes_in, 100);
  page->add(Live::bytes_in, 23);
  EXPECT_THAT(live_processes(directory), Contains(::getpid()));
  const LiveReading reading = read_live(::getpid(), directory).value();
  EXPECT_EQ(reading.program, "a program?[31m");
  EXPECT_EQ(reading.policy, "sentinel");
  EXPECT_EQ(reading[Live::step], 7u);
  EXPECT_EQ(reading[Live::bytes_in], 123u);
  EXPECT_EQ(reading[Live::faults], 0u);
  struct stat mode {};
  ASSERT_EQ(::stat(page->path().c_str(), &mode), 0);
  EXPECT_EQ(mode.st_mode & 0777, 0600u);
}

TEST(Live, IsGoneWithItsProcess) {
  const std::string directory = fresh_directory("gone");
  LivePage::make("short", directory).reset();
  EXPECT_FALSE(read_live(::getpid(), directory).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto page = LivePage::make("killed", directory);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(read_live(child, directory).ok());  // its file stays
  EXPECT_THAT(live_processes(directory), Not(Contains(child)));
  const auto next = LivePage::make("next", directory);  // until somebody shows a page again
  EXPECT_FALSE(read_live(child, directory).ok());
}

TEST(Live, RefusesPagesItDoesNotKnow) {
  const std::string directory = fresh_directory("foreign"), path = directory + "/vedette-1";
  std::ofstream(path) << "short";
  EXPECT_THAT(read_live(1, directory).error().message, HasSubstr("holds no counters"));
  std::ofstream(path) << std::string(8192, 'x');
  EXPECT_THAT(read_live(1, directory).error().message, HasSubstr("holds no counters"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_FALSE(read_live(1, directory).ok());
  EXPECT_THAT(read_live(999999999, directory).error().message, HasSubstr("shows no counters"));
  EXPECT_EQ(LivePage::make("nowhere", directory + "/none"), nullptr);
}

TEST(Live, IsPublishedByTheRecorder) {
  const auto recorder = Recorder::open({.path = told::fresh_path("live.vedette"), .program = "told"}).value();
  told::tell_run(*recorder, 3);
  const auto reading = read_live(::getpid());
  if (!reading) GTEST_SKIP() << "no page can be shown in " << live_directory;
  EXPECT_EQ(reading->program, "told");
  EXPECT_EQ((*reading)[Live::step], 3u);
  EXPECT_EQ((*reading)[Live::last_step_ns], 100u);
  EXPECT_EQ((*reading)[Live::phase], 3u);
  EXPECT_EQ((*reading)[Live::ops], 9u);
  EXPECT_EQ((*reading)[Live::bytes_in], 3u * 65536);
  EXPECT_EQ((*reading)[Live::bytes_out], 3u * 65536);
  EXPECT_EQ((*reading)[Live::stall_ns], 12u);
  EXPECT_EQ((*reading)[Live::faults], 3u);
  EXPECT_EQ((*reading)[Live::resident_bytes], 65536u);
  EXPECT_EQ((*reading)[Live::budget_bytes], 1048576u);
  EXPECT_EQ((*reading)[Live::disk_bytes_out], 3u * 65536);
  EXPECT_EQ((*reading)[Live::steps_ns], 2'000'100u) << "from the first one's begin";
  EXPECT_EQ((*reading)[Live::bytes_in_place], 3u * 4096);
  EXPECT_EQ((*reading)[Live::bound_ns], 0u) << "LiveSession adds it";
  EXPECT_EQ((*reading)[heat_bin(0)], 75536u) << "the last op reads both tensors";
  EXPECT_EQ((*reading)[heat_bin(heat_bins - 1)], 0u);
}

TEST(Live, HeatIsOfTheTimeSinceTheLastUse) {
  // 64 ops of 100 ns. `w` outlives the step and is used by op 0 alone, `x` lives from op 8 to op 40, used at both ends.
  Trace step{.tensors = {{.name = "w", .bytes = {1000}, .persistent = true}, {.name = "x", .bytes = {10}}}};
  for (int i = 0; i < 64; ++i) step.ops.push_back({.name = "op", .time = {100}});
  step.ops[0].reads = {{0}};
  step.ops[8].writes = {{1}};
  step.ops[40].reads = {{1}};
  const LiveHeat heat(step);
  EXPECT_EQ(heat.place_of(63), 31u);
  EXPECT_EQ(heat.place_of(1000), 31u) << "another step's ops";
  EXPECT_EQ(heat.at(0)[0], 1000u) << "op 0 uses it";
  EXPECT_EQ(heat.at(1)[1], 1000u) << "a 64th of the step ago";
  EXPECT_EQ(heat.at(4)[0], 10u);
  EXPECT_EQ(heat.at(4)[4], 1000u) << "7 of 64 ops ago: more than a sixteenth, no more than an eighth";
  EXPECT_EQ(heat.at(20)[5], 0u);
  EXPECT_EQ(heat.at(20)[7], 1000u) << "39 ops ago";
  EXPECT_EQ(heat.at(20)[0], 10u);
  EXPECT_EQ(heat.at(19)[6], 10u) << "29 ops ago";
  EXPECT_EQ(heat.at(21)[0] + heat.at(21)[6], 0u) << "it is dead";
  EXPECT_TRUE(LiveHeat().empty());
}

}  // namespace
}  // namespace vedette::live_test
