// The page that a recording process shows, and those who look at it.
#include "profiler/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

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
}

}  // namespace
}  // namespace vedette::live_test
