// GNU libsigsegv in one process with a session. It calls no other handler, and lets its user repair a fault or leave
// by a jump. By its own tests (efault1 to efault3) a system call into protected memory fails with EFAULT and calls no
// handler.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sigsegv.h>
#include <sys/mman.h>

#include <csetjmp>

#include "base/fd.h"
#include "neighbours/loop_result.h"
#include "os/chunk_memory.h"

namespace vedette::libsigsegv_test {
namespace {

using namespace testing;

constexpr std::size_t page_bytes = 4096;
std::byte* protected_page = nullptr;
volatile int repaired = 0, foreign = 0;
sigjmp_buf back;

// Opens the protected page; anything else is left by a jump.
int repair_or_leave(void* address, int) {
  const auto* const at = static_cast<std::byte*>(address);
  if (at >= protected_page && at < protected_page + page_bytes) {
    repaired = repaired + 1;
    return ::mprotect(protected_page, page_bytes, PROT_READ | PROT_WRITE) == 0 ? 1 : 0;
  }
  foreign = foreign + 1;
  ::siglongjmp(back, 1);
}

void protect_again() {
  if (::mprotect(protected_page, page_bytes, PROT_NONE) != 0) ::_exit(20);
}

void install_libsigsegv() {
  void* const at = ::mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || sigsegv_install_handler(&repair_or_leave) != 0) ::_exit(21);
  protected_page = static_cast<std::byte*>(at);
}

// Ten faults that libsigsegv's user repairs, ten that he leaves by a jump.
bool foreign_faults_are_repaired_and_left() {
  repaired = 0;
  foreign = 0;
  while (repaired < 10) {
    protect_again();
    *reinterpret_cast<volatile char*>(protected_page) = 1;
    if (::sigsetjmp(back, 1) == 0) fault_at(0x38);
  }
  return repaired == 10 && foreign == 10;
}

class Libsigsegv : public ::testing::TestWithParam<Forbidden> {
 protected:
  void SetUp() override { forbid(GetParam()); }
  void TearDown() override { forbid(Forbidden::nothing); }
  static bool by_signals() { return GetParam() == Forbidden::userfaultfd; }
};

TEST_P(Libsigsegv, InstalledBeforeRepairsAndLeavesForeignFaults) {
  const std::uint64_t right = right_result(5);
  const auto status = in_child([&] {
    install_libsigsegv();
    const auto session = open_session(tight_budget, "host", "vedette");
    if (loop_result(*session, 5) != right || !bytes_survive(*session)) ::_exit(1);
    if (!foreign_faults_are_repaired_and_left()) ::_exit(2);
    if (!bytes_survive(*session)) ::_exit(3);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST_P(Libsigsegv, InstalledLaterStandsBehindOursFromTheNextStepOn) {
  const std::uint64_t right = right_result(5);
  const auto status = in_child([&] {
    const auto session = open_session(tight_budget, "host", "vedette");
    empty_step(*session);
    install_libsigsegv();
    empty_step(*session);
    if (loop_result(*session, 5) != right || !bytes_survive(*session)) ::_exit(1);
    if (!foreign_faults_are_repaired_and_left()) ::_exit(2);
    if (!bytes_survive(*session)) ::_exit(3);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST_P(Libsigsegv, SystemCallsIntoProtectedMemoryFailWithEfaultAndCallNoHandler) {
  const auto status = in_child([] {
    install_libsigsegv();
    const auto session = open_session(tight_budget, "host", "on-demand");
    const Fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC)), null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    protect_again();
    if (::read(zero.get(), protected_page, page_bytes) != -1 || errno != EFAULT) ::_exit(1);
    if (::access(reinterpret_cast<const char*>(protected_page), R_OK) != -1 || errno != EFAULT) ::_exit(2);
    if (repaired != 0 || foreign != 0) ::_exit(3);
    Block first(*session, 500'000), second(*session, 900'000);
    first.fill(1);
    second.fill(2);  // the first is away now
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(4);
    const bool served = ::write(ends[1], &first[1], 8) == 8;
    if (served == by_signals() || (!served && errno != EFAULT)) ::_exit(5);
    if (!first.holds(1) || !second.holds(2)) ::_exit(6);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

INSTANTIATE_TEST_SUITE_P(Faults, Libsigsegv, ::testing::Values(Forbidden::nothing, Forbidden::userfaultfd),
                         [](const auto& forbidden) { return name_of_faults(forbidden.param); });

}  // namespace
}  // namespace vedette::libsigsegv_test
