// AddressSanitizer in one process with a session: this program alone is instrumented, as a user's would be. Its handler
// of SIGSEGV stands behind ours and still reports what is not ours; told to stand alone (handle_segv=2), it lets nobody
// else in, and we say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "neighbours/loop_result.h"

extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "exitcode=99:detect_leaks=0:allocator_may_return_null=1"; }

namespace vedette::asan_test {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class AddressSanitizer : public ::testing::TestWithParam<Forbidden> {
 protected:
  void SetUp() override { forbid(GetParam()); }
  void TearDown() override { forbid(Forbidden::nothing); }
};

TEST_P(AddressSanitizer, ReportsForeignFaultsWhileALoopRuns) {
  const std::uint64_t right = right_result(5);
  const LastWords heard = listen_to_child([&] {
    leave_no_core();
    const auto session = open_session(tight_budget, "host", "vedette");
    if (loop_result(*session, 5) != right || !bytes_survive(*session)) ::_exit(1);
    fault_at(0x38);
  });
  EXPECT_TRUE(exited_with(heard.status, 99)) << heard.said;
  EXPECT_THAT(heard.said, HasSubstr("AddressSanitizer: SEGV on unknown address 0x000000000038"));
}

TEST_P(AddressSanitizer, StillFindsAnOverflowBesideTheArena) {
  const LastWords heard = listen_to_child([&] {
    leave_no_core();
    const auto session = open_session(tight_budget, "host", "on-demand");
    if (!bytes_survive(*session)) ::_exit(1);
    const std::unique_ptr<char[]> small(new char[10]);
    volatile std::size_t index = 10;
    static_cast<volatile char*>(small.get())[index] = 1;
  });
  EXPECT_TRUE(exited_with(heard.status, 99)) << heard.said;
  EXPECT_THAT(heard.said, HasSubstr("heap-buffer-overflow"));
}

// Its options are read when a program starts: this test starts its own program again.
TEST_P(AddressSanitizer, ThatStandsAloneIsNamedWhereOurHandlerIsNeeded) {
  const char* const options = std::getenv("ASAN_OPTIONS");
  if (options != nullptr && std::string(options).find("handle_segv=2") != std::string::npos) {
    const auto session =
        Session::open({.fast_memory = tight_budget, .slow = "host", .policy = "on-demand", .chunk = {64 << 10}});
    if (GetParam() == Forbidden::nothing) {
      ASSERT_TRUE(session.ok()) << session.error().message;
      EXPECT_TRUE(bytes_survive(**session));
    } else {
      ASSERT_FALSE(session.ok());
      EXPECT_THAT(session.error().message, HasSubstr("handle_segv"));
    }
    return;
  }
  const std::string mine =
      std::string("--gtest_filter=").append(::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name());
  const std::string filter = mine + "." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const LastWords heard = listen_to_child([&] {
    ::setenv("ASAN_OPTIONS", "handle_segv=2", 1);
    ::dup2(2, 1);
    ::execl("/proc/self/exe", "asan_test", filter.c_str(), static_cast<char*>(nullptr));
  });
  EXPECT_TRUE(exited_well(heard.status)) << heard.said;
  EXPECT_THAT(heard.said, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(Faults, AddressSanitizer, ::testing::Values(Forbidden::nothing, Forbidden::userfaultfd),
                         [](const auto& forbidden) { return name_of_faults(forbidden.param); });

}  // namespace
}  // namespace vedette::asan_test
