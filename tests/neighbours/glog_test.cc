// Google's glog in one process with a session. Its failure handler calls no other handler and ends the process. So it
// must never see a fault of the session's memory, and must see all others with their own address, whichever of the two
// was installed first.
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "neighbours/loop_result.h"

namespace vedette::glog_test {
namespace {

using namespace testing;
using ::testing::HasSubstr;

void to_standard_error(const char* data, std::size_t size) {
  if (::write(2, data, size) < 0) ::_exit(3);
}

void install_glog() {
  google::InitGoogleLogging("glog_test");
  google::InstallFailureSignalHandler();
  google::InstallFailureWriter(&to_standard_error);
}

class Glog : public ::testing::TestWithParam<Forbidden> {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers report a foreign fault themselves";
#endif
    forbid(GetParam());
  }
  void TearDown() override { forbid(Forbidden::nothing); }
};

TEST_P(Glog, InstalledBeforeSeesForeignFaultsOnly) {
  const std::uint64_t right = right_result(5);
  const LastWords heard = listen_to_child([&] {
    leave_no_core();
    install_glog();
    const auto session = open_session(tight_budget, "host", "vedette");
    if (loop_result(*session, 5) != right || !bytes_survive(*session)) ::_exit(1);
    fault_at(0x38);
  });
  EXPECT_TRUE(died_of(heard.status, SIGSEGV)) << heard.said;
  EXPECT_THAT(heard.said, HasSubstr("*** SIGSEGV (@0x38) received by PID"));
}

TEST_P(Glog, InstalledLaterStandsBehindOursFromTheNextStepOn) {
  const std::uint64_t right = right_result(5);
  const LastWords heard = listen_to_child([&] {
    leave_no_core();
    const auto session = open_session(tight_budget, "host", "vedette");
    empty_step(*session);
    install_glog();
    empty_step(*session);
    if (loop_result(*session, 5) != right || !bytes_survive(*session)) ::_exit(1);
    fault_at(0x38);
  });
  EXPECT_TRUE(died_of(heard.status, SIGSEGV)) << heard.said;
  EXPECT_THAT(heard.said, HasSubstr("*** SIGSEGV (@0x38) received by PID"));
}

INSTANTIATE_TEST_SUITE_P(Faults, Glog, ::testing::Values(Forbidden::nothing, Forbidden::userfaultfd),
                         [](const auto& forbidden) { return name_of_faults(forbidden.param); });

}  // namespace
}  // namespace vedette::glog_test
