// A guarded loop runs right beside stress-ng's stressors of userfaultfd, SIGSEGV and madvise, half a minute of each
// together. Memory moves to the disk, and faults are served either way.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "neighbours/loop_result.h"

namespace vedette::stress_ng_test {
namespace {

using namespace testing;

const std::string seconds = "30";

// Runs stress-ng until its time is over; its exit status, 2 where a stressor could not start.
pid_t start_stressors(const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TMPDIR", folder.c_str(), 1);
    ::execl(STRESS_NG, "stress-ng", "--quiet", "--temp-path", folder.c_str(), "--userfaultfd", "1",
            "--userfaultfd-bytes", "64m", "--sigsegv", "1", "--madvise", "1", "--timeout", seconds.c_str(),
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  return child;
}

class StressNg : public ::testing::TestWithParam<Forbidden> {
 protected:
  void SetUp() override { forbid(GetParam()); }
  void TearDown() override { forbid(Forbidden::nothing); }
};

TEST_P(StressNg, HarmsNoGuardedLoopBesideIt) {
  const std::string folder = (std::filesystem::current_path() / ("stress-ng-" + std::to_string(::getpid()))).string();
  std::filesystem::create_directory(folder);
  const std::uint64_t right = right_result(20);
  const pid_t stressors = start_stressors(folder);
  ASSERT_GT(stressors, 0);
  int ended = 0, rounds = 0;
  while (::waitpid(stressors, &ended, WNOHANG) == 0) {
    const auto session = open_session(tight_budget, "nvme:.", rounds % 2 == 0 ? "vedette" : "on-demand");
    ASSERT_EQ(loop_result(*session, 20), right) << "round " << rounds;
    ASSERT_TRUE(bytes_survive(*session)) << "round " << rounds;
    ASSERT_FALSE(session->take_error());
    ++rounds;
  }
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(exited_well(ended)) << "stress-ng ended with status " << ended;
  EXPECT_GT(rounds, 2);
  std::printf("%d rounds of 20 steps\n", rounds);
}

INSTANTIATE_TEST_SUITE_P(Faults, StressNg, ::testing::Values(Forbidden::nothing, Forbidden::userfaultfd),
                         [](const auto& forbidden) { return name_of_faults(forbidden.param); });

}  // namespace
}  // namespace vedette::stress_ng_test
