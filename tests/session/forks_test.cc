// A child of fork() while a session lives: it does not hang, does not read another program's bytes, and may open a
// session of its own; its parent goes on as if nothing had happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "os/signals.h"
#include "session/loop.h"
#include "support/child.h"
#include "support/sanitized.h"

#if defined(__SANITIZE_THREAD__)
// Threads of the parent are none of its child's, which cannot join them when it ends a session.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "handle_segv=0:handle_sigbus=0:history_size=7:die_after_fork=0:report_thread_leaks=0";
}
#endif

namespace vedette::forks_test {
namespace {

using testing::Block;
using testing::died_of;
using testing::exited_well;
using ::testing::HasSubstr;
using testing::in_child;
using testing::listen_to_child;
using testing::Loop;
using testing::open_session;

constexpr Bytes tight = 2_MiB, plenty = 64_MiB;
constexpr std::size_t block_bytes = 200'000, layers = 8;

std::uint64_t train(Bytes budget, const std::function<void(Session&, std::size_t op)>& in_op = {}) {
  const auto session = open_session(budget, "host", "vedette");
  Loop loop(*session, layers, block_bytes);
  if (in_op) loop.in_op = [&](std::size_t op) { in_op(*session, op); };
  std::uint64_t sum = 0;
  for (std::uint64_t s = 0; s < 6; ++s) sum = sum * 31 + loop.step(s);
  return sum * 31 + loop.state();
}

void use_as_a_child(Session& session) {
  if (!session.in_child()) ::_exit(1);
  auto memory = session.allocate({.bytes = 1_MiB});
  if (memory.ok() || memory.error().message.find("child of fork") == std::string::npos) ::_exit(2);
  {
    auto step = session.step();
    auto layer = session.layer("layer");
    session.mark_layer("mark", Phase::forward);
    auto op = session.op("op", {}, {});
  }
  if (session.counters() != Counters{} || session.smallest_budget().value != 0 || session.trace() != nullptr)
    ::_exit(3);
  if (!session.phase().empty() || !session.planned_steps().empty() || !session.take_error()) ::_exit(4);
  if (session.budget().value != 0) ::_exit(5);  // it takes a lock, which a thread of the parent may have held
}

TEST(Forks, AChildInsideAnOpIsLeftAloneAndItsParentGoesOn) {
  const std::uint64_t expected = train(plenty);
  int children = 0;
  const std::uint64_t got = train(tight, [&](Session& session, std::size_t op) {
    if (op != 5) return;
    const auto status = in_child([&] { use_as_a_child(session); });
    EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
    ++children;
  });
  EXPECT_EQ(got, expected);
  EXPECT_EQ(children, 6);
}

// What the child's descriptors and mappings name of the session.
std::string kept_of_the_session() {
  std::string kept;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    const bool unnamed = target.find("/#") != target.npos || target.find("vedette-") != target.npos;
    if (unnamed || target.find("io_uring") != target.npos) kept += target + "; ";
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("io_uring") != line.npos || line.find("vedette-frames") != line.npos) kept += line + "; ";
  return kept;
}

// The file of the slow tier has no name, a memfd neither: what a child keeps open would take room after its parent's
// end.
TEST(Forks, AChildKeepsNothingOfTheSlowTierOrOfFrames) {
  const auto session = open_session(tight, "nvme:.", "vedette");
  Loop loop(*session, layers, block_bytes);
  for (std::uint64_t s = 0; s < 4; ++s) loop.step(s);
  ASSERT_NE(kept_of_the_session(), "") << "the parent has a file";
  const auto heard = listen_to_child([] {
    const std::string kept = kept_of_the_session();
    [[maybe_unused]] const auto written = ::write(2, kept.data(), kept.size());
    ::_exit(0);
  });
  EXPECT_TRUE(exited_well(heard.status)) << heard.status.value_or(-1);
  EXPECT_EQ(heard.said, "");
  loop.step(4);  // the parent goes on
}

// A child of clone(2) runs no fork handlers: it has all that its parent has, but for the arena and the threads.
TEST(Forks, AChildOfCloneIsLeftAloneTooAndOpensASessionOfItsOwn) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer does not know of a child of clone(2)";
  const std::uint64_t expected = train(plenty);
  auto session = open_session(tight, "nvme:.", "vedette");
  Block block(*session, 1 << 20);
  block.fill(3);
  const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    ::alarm(30);
    use_as_a_child(*session);
    block.drop();
    session.reset();
    if (train(tight) != expected) ::_exit(10);
    if (kept_of_the_session() != "") ::_exit(11);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(exited_well(status)) << status;
  EXPECT_TRUE(block.holds(3));
}

TEST(Forks, AChildEndsASessionAndFreesMemoryWithoutAWord) {
  const auto heard = listen_to_child([] {
    auto session = open_session(tight, "host", "vedette");
    auto block = std::make_unique<Block>(*session, 1 << 20);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      const bool ours = Session::owns(block->address());
      block.reset();
      session.reset();
      ::_exit(ours ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 9);
  });
  EXPECT_TRUE(exited_well(heard.status)) << heard.status.value_or(-1);
  EXPECT_EQ(heard.said, "");
}

TEST(Forks, AChildThatTouchesGuardedMemoryEndsWithASentence) {
  const auto session = open_session(tight, "host", "vedette");
  Block block(*session, 1 << 20);
  block.fill(3);
  const auto heard = listen_to_child([&] {
    testing::leave_no_core();
    if (block[5] == 1) ::_exit(1);
  });
  EXPECT_TRUE(died_of(heard.status, SIGABRT)) << heard.status.value_or(-1);
  EXPECT_THAT(heard.said, HasSubstr("a child of fork() touched a tensor of its parent's guard"));
  EXPECT_TRUE(block.holds(3));
}

TEST(Forks, AForeignFaultOfAChildStillKillsItAsSuch) {
  const auto session = open_session(tight, "host", "vedette");
  const auto heard = listen_to_child([] {
    testing::leave_no_core();
    testing::fault_at(64);
  });
  EXPECT_TRUE(died_of(heard.status, SIGSEGV)) << heard.status.value_or(-1) << heard.said;
}

// The parent's handler, the child's and again the parent's, put in front by the child's own session, end the chain.
TEST(Forks, AForeignFaultOfAChildWithASessionOfItsOwnKillsItToo) {
  auto parents = open_session(tight, "host", "vedette");
  const auto heard = listen_to_child([] {
    testing::leave_no_core();
    ::alarm(30);
    if (!add_fault_handler([](void*, std::byte*, bool) noexcept { return false; }, nullptr)) ::_exit(3);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      if (!add_fault_handler([](void*, std::byte*, bool) noexcept { return false; }, nullptr)) ::_exit(4);
      testing::fault_at(64);
      ::_exit(5);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ::_exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 0 : 1);
  });
  EXPECT_TRUE(exited_well(heard.status)) << heard.status.value_or(-1) << heard.said;
}

TEST(Forks, AChildOpensASessionThoughAThreadOfItsParentOpensAndEndsThem) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a child of which a thread has the id that one of its parent's has";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a child of the address sanitizer waits for its allocator, which another thread held at the fork";
#endif
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) open_session(tight, "host", "vedette");
  });
  for (int i = 0; i < 40; ++i) {
    const auto status = in_child([] {
      ::alarm(20);
      open_session(tight, "host", "vedette");
      ::_exit(0);
    });
    EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
    if (!exited_well(status)) break;
  }
  stop = true;
  other.join();
}

TEST(Forks, AChildTrainsInASessionOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a child of which a thread has the id that one of its parent's has";
#endif
  const std::uint64_t expected = train(plenty);
  const auto session = open_session(tight, "host", "vedette");
  Block block(*session, 1 << 20);
  const auto status = in_child([&] { ::_exit(train(tight) == expected ? 0 : 1); });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

}  // namespace
}  // namespace vedette::forks_test
