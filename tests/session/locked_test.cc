// Programs that lock memory: before a session, and inside the arena.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "session/loop.h"
#include "support/child.h"

namespace vedette::locked_test {
namespace {

using testing::Block;
using testing::exited_well;
using testing::in_child;
using testing::Loop;
using testing::open_session;

constexpr Bytes tight = 2_MiB, plenty = 64_MiB;
constexpr std::size_t block_bytes = 200'000, layers = 8;

std::uint64_t train(Session& session, const std::function<void(std::uint64_t step)>& before_step = {}) {
  Loop loop(session, layers, block_bytes);
  std::uint64_t sum = 0;
  for (std::uint64_t s = 0; s < 6; ++s) {
    if (before_step) before_step(s);
    sum = sum * 31 + loop.step(s);
  }
  return sum * 31 + loop.state();
}

std::uint64_t unlocked() {
  const auto session = open_session(plenty, "host", "vedette");
  return train(*session);
}

Bytes resident() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  return {pages * 4096};
}

// Sanitizers take the call and lock nothing: what is mapped next shows it.
bool lock_all(int flags) {
  constexpr std::size_t bytes = 64 << 10;
  if (::mlockall(flags) != 0) return false;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::ifstream smaps("/proc/self/smaps_rollup");
  std::string word;
  std::uint64_t kib = 0;
  while (smaps >> word)
    if (word == "Locked:") smaps >> kib;
  if (mapped != MAP_FAILED) ::munmap(mapped, bytes);
  return kib > 0;
}

// In a child, because a lock on all memory cannot be undone for one part of it.
std::optional<int> locked(int flags, bool before_session) {
  return in_child([&] {
    const std::uint64_t expected = unlocked();
    const auto lock = [&] {
      if (!lock_all(flags)) ::_exit(77);
    };
    if (before_session) lock();
    const Bytes before = resident();
    const auto session = open_session(tight, "host", "vedette");
    const std::uint64_t got = train(*session, [&](std::uint64_t s) {
      if (s == 3 && !before_session) lock();
    });
    if (got != expected) ::_exit(1);
    if (resident().value > before.value + session_overhead.value + tight.value) ::_exit(2);
  });
}

bool cannot_lock(const std::optional<int>& status) { return testing::exited_with(status, 77); }

TEST(Locked, FutureMemoryBeforeTheSession) {
  const auto status = locked(MCL_FUTURE, true);
  if (cannot_lock(status)) GTEST_SKIP() << "mlockall is not allowed here, or a sanitizer has replaced it";
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST(Locked, AllMemoryBeforeTheSession) {
  const auto status = locked(MCL_CURRENT | MCL_FUTURE, true);
  if (cannot_lock(status)) GTEST_SKIP() << "mlockall is not allowed here, or a sanitizer has replaced it";
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST(Locked, FutureMemoryBetweenSteps) {
  const auto status = locked(MCL_FUTURE, false);
  if (cannot_lock(status)) GTEST_SKIP() << "mlockall is not allowed here, or a sanitizer has replaced it";
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST(Locked, CurrentMemoryBetweenStepsEndsTheProgramWithItsCause) {
  const auto heard = testing::listen_to_child([] {
    testing::leave_no_core();
    const auto session = open_session(tight, "host", "vedette");
    if (session->mechanism().find("UFFDIO_MOVE") == std::string::npos) ::_exit(78);
    train(*session, [](std::uint64_t s) {
      if (s == 3) ::_exit(lock_all(MCL_CURRENT) ? 0 : 77);
    });
  });
  if (cannot_lock(heard.status)) GTEST_SKIP() << "mlockall is not allowed here, or a sanitizer has replaced it";
  if (testing::exited_with(heard.status, 78)) GTEST_SKIP() << "frames are not moved by UFFDIO_MOVE here";
  EXPECT_TRUE(testing::died_of(heard.status, SIGABRT)) << heard.status.value_or(-1);
  EXPECT_NE(heard.said.find("mlockall(MCL_CURRENT)"), std::string::npos) << heard.said;
  EXPECT_NE(heard.said.find("before the session opens"), std::string::npos) << heard.said;
}

TEST(Locked, FutureMemoryWithALimitIsRefusedWithItsCause) {
  const auto status = in_child([] {
    const rlimit low{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_MEMLOCK, &low) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(77);
    std::vector<char> above(2 << 20);  // a sanitizer locks it in spite of the limit
    if (::mlock(above.data(), above.size()) == 0 || ::mlockall(MCL_FUTURE) != 0) ::_exit(77);
    auto session = Session::open({.fast_memory = tight, .slow = "host", .chunk = 64_KiB});
    if (session.ok() || session.error().message.find("ulimit -l") == std::string::npos) ::_exit(1);
  });
  if (cannot_lock(status)) GTEST_SKIP() << "this process cannot become another user, or a sanitizer has replaced mlock";
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST(Locked, ATensorOfTheArenaLosesItsLockAndNothingElse) {
  const auto session = open_session(tight, "host", "vedette");
  Block block(*session, block_bytes, true);
  block.fill(7);
  ASSERT_EQ(::mlock(block.address(), block_bytes), 0) << std::strerror(errno);
  const std::uint64_t got = train(*session);
  EXPECT_TRUE(block.holds(7));
  Block held(*session, block_bytes, true);
  held.fill(9);
  {
    const auto resident = session->resident(held.address());
    ASSERT_EQ(::mlock(held.address(), block_bytes), 0) << std::strerror(errno);
    EXPECT_TRUE(held.holds(9));
  }
  EXPECT_GT(session->counters().bytes_out.value, 0u);
  Block().drop();
  const std::uint64_t again = train(*session);
  EXPECT_EQ(got, again);
  EXPECT_TRUE(held.holds(9) && block.holds(7));
}

}  // namespace
}  // namespace vedette::locked_test
