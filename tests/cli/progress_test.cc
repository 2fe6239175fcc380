// The line that says what a verb is doing: to a terminal, from the second second on, and gone at the end.
#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace vedette::cli::progress_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// What a child writes to its standard error.
template <class Work>
std::string written(bool terminal, Work work) {
  int read_from = -1, ends[2] = {-1, -1};
  if (!terminal && ::pipe(ends) != 0) return "no pipe";
  const pid_t child = terminal ? ::forkpty(&read_from, nullptr, nullptr, nullptr) : ::fork();
  if (child == 0) {
    if (!terminal) ::dup2(ends[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  if (!terminal) ::close(ends[1]), read_from = ends[0];
  std::string text;
  char some[256];
  for (ssize_t got = 0; (got = ::read(read_from, some, sizeof some)) > 0;)
    text.append(some, static_cast<std::size_t>(got));
  ::close(read_from);
  ::waitpid(child, nullptr, 0);
  return text;
}

void work_for(std::chrono::milliseconds time) {
  Progress progress("report");
  progress.say("simulates other budgets");
  std::this_thread::sleep_for(time);
}

TEST(ProgressLine, TellsATerminalWhatTakesLongAndGoesAway) {
  const std::string text = written(true, [] { work_for(std::chrono::milliseconds(1400)); });
  EXPECT_THAT(text, HasSubstr("vedette report: simulates other budgets, 1 s"));
  EXPECT_THAT(text, EndsWith("\r\x1b[K"));
}

TEST(ProgressLine, SaysNothingOfWhatIsQuick) {
  EXPECT_EQ(written(true, [] { work_for(std::chrono::milliseconds(50)); }), "");
}

TEST(ProgressLine, SaysNothingToAFile) {
  EXPECT_EQ(written(false, [] { work_for(std::chrono::milliseconds(1200)); }), "");
}

}  // namespace
}  // namespace vedette::cli::progress_test
