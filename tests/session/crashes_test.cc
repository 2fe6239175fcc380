// A program crashes, forks or is stopped while its memory moves. No file is left behind and no process hangs. A foreign
// fault keeps its signal and address, whether faults are served by userfaultfd or by SIGSEGV. Each case has processes
// of its own.
#include <elf.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "session/loop.h"
#include "support/broken_calls.h"
#include "support/child.h"

namespace vedette::crashes_test {
namespace {

using testing::Block;
using testing::died_of;
using testing::exited_well;
using testing::Forbidden;
using testing::in_child;
using testing::Loop;
using testing::open_session;

constexpr Bytes tight = 1_MiB;
constexpr std::size_t layers = 5, block_bytes = 120'000;

// A folder of its own, which must be empty at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::current_path() / "vedette-crash-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

std::uint64_t run_loop(Session& session, std::uint64_t steps) {
  Loop loop(session, layers, block_bytes);
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < steps; ++s) all = all * 31 + loop.step(s);
  return all * 31 + loop.state();
}

std::uint64_t right_result(std::uint64_t steps) {
  const auto session = open_session(64_MiB, "host", "on-demand");
  return run_loop(*session, steps);
}

class Crashes : public ::testing::TestWithParam<Forbidden> {
 protected:
  void SetUp() override {
    testing::forbid(GetParam());
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers have handlers of their own, and dislike forks of programs with threads";
#endif
  }
  void TearDown() override { testing::forbid(Forbidden::nothing); }
  bool by_signals() const { return GetParam() == Forbidden::userfaultfd; }
};

TEST_P(Crashes, KilledAtAnyMomentLeavesNothingBehind) {
  const Folder folder;
  for (int again = 0; again < 15; ++again) {
    const auto status = in_child([&] { run_loop(*open_session(tight, "nvme:" + folder.path(), "vedette"), 100'000); },
                                 [&](pid_t child) {
                                   std::this_thread::sleep_for(std::chrono::milliseconds(again * 23 % 190));
                                   ::kill(child, SIGKILL);
                                 });
    EXPECT_TRUE(died_of(status, SIGKILL));
    EXPECT_TRUE(folder.empty());
  }
  const std::uint64_t right = right_result(5);
  EXPECT_TRUE(exited_well(in_child(
      [&] { ::_exit(run_loop(*open_session(tight, "nvme:" + folder.path(), "vedette"), 5) == right ? 0 : 1); })));
}

TEST_P(Crashes, ANullDereferenceDiesAsItself) {
  const auto status = in_child([] {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const auto session = open_session(tight, "host", "on-demand");
    run_loop(*session, 2);
    volatile int* volatile nowhere = nullptr;
    *nowhere = 1;
  });
  EXPECT_TRUE(died_of(status, SIGSEGV));
}

std::atomic<int> passed_on{0};
struct sigaction chained_to {};

void note_and_leave(int, siginfo_t* info, void*) {
  ::_exit(reinterpret_cast<std::uintptr_t>(info->si_addr) == 0x38 ? 0 : 1);
}

TEST_P(Crashes, AHandlerThatWasThereBeforeSeesForeignFaultsWithTheirAddress) {
  const auto status = in_child([] {
    struct sigaction action {};
    action.sa_sigaction = note_and_leave;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
    const auto session = open_session(tight, "host", "on-demand");
    run_loop(*session, 2);
    volatile std::uintptr_t nowhere = 0x38;
    *reinterpret_cast<volatile int*>(nowhere) = 1;
  });
  EXPECT_TRUE(exited_well(status));
}

// As glog, Abseil and the like do: their own is installed over ours, and calls what was there for what it does not
// know.
void pass_on(int signal, siginfo_t* info, void* context) {
  ++passed_on;
  if ((chained_to.sa_flags & SA_SIGINFO) != 0) return chained_to.sa_sigaction(signal, info, context);
  ::_exit(9);
}

TEST_P(Crashes, AHandlerInstalledLaterThatCallsOursDoesNoHarm) {
  const std::uint64_t right = right_result(6);
  const auto status = in_child([&] {
    const auto session = open_session(tight, "host", "vedette");
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &chained_to);
    if (run_loop(*session, 6) != right) ::_exit(1);
    Block away(*session, 500'000), more(*session, 900'000);
    away.fill(1);
    more.fill(2);
    ::_exit(away.holds(1) && more.holds(2) ? 0 : 2);
  });
  EXPECT_TRUE(exited_well(status));
}

TEST_P(Crashes, AThreadWithAllSignalsBlockedIsServedByUserfaultfdAndKilledWithoutIt) {
  const auto status = in_child([] {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const auto session = open_session(tight, "host", "on-demand");
    Block first(*session, 500'000), second(*session, 900'000);
    first.fill(1);
    second.fill(2);  // the first is away now
    bool right = false;
    std::thread([&] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      right = first.holds(1);
    }).join();
    ::_exit(right ? 0 : 1);
  });
  EXPECT_TRUE(by_signals() ? died_of(status, SIGSEGV) : exited_well(status));
}

TEST_P(Crashes, ForksInTheMiddleOfMovesHarmNeitherSide) {
  const std::uint64_t right = right_result(40);
  const auto status = in_child([&] {
    const auto session = open_session(tight, "nvme:.", "vedette");
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0}, forks{0};
    std::thread forker([&] {
      while (!stop) {
        const pid_t child = ::fork();
        if (child == 0) {
          if (forks % 2 == 0) ::execl("/bin/true", "true", static_cast<char*>(nullptr));
          ::_exit(0);  // and without exec: as a worker that ends
        }
        int ended = 0;
        if (child < 0 || ::waitpid(child, &ended, 0) != child || ended != 0) ++wrong;
        ++forks;
      }
    });
    const bool same = run_loop(*session, 40) == right;
    while (forks < 3) std::this_thread::yield();
    stop = true;
    forker.join();
    ::_exit(same && wrong == 0 ? 0 : 1);
  });
  EXPECT_TRUE(exited_well(status));
}

// Of abort, behind the sentence that tests/session/forks_test looks at.
TEST_P(Crashes, AForkedChildThatTouchesTheArenaDiesAtOnce) {
  const auto status = in_child([] {
    const auto session = open_session(tight, "host", "on-demand");
    Block block(*session, 500'000);
    block.fill(1);
    const auto grandchild = in_child([&] {
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      ::_exit(block.holds(1) ? 1 : 2);
    });
    ::_exit(died_of(grandchild, SIGABRT) && block.holds(1) ? 0 : 1);
  });
  EXPECT_TRUE(exited_well(status));
}

TEST_P(Crashes, StoppedAndContinuedItGoesOn) {
  const std::uint64_t right = right_result(60);
  const auto status =
      in_child([&] { ::_exit(run_loop(*open_session(tight, "nvme:.", "vedette"), 60) == right ? 0 : 1); },
               [](pid_t child) {
                 for (int again = 0; again < 20; ++again) {
                   std::this_thread::sleep_for(std::chrono::milliseconds(7));
                   ::kill(child, SIGSTOP);
                   std::this_thread::sleep_for(std::chrono::milliseconds(3));
                   ::kill(child, SIGCONT);
                 }
               });
  EXPECT_TRUE(exited_well(status));
}

// As the JVM, Julia and test programs do: a handler that never returns.
sigjmp_buf way_out;
void jump_out(int, siginfo_t*, void*) { ::siglongjmp(way_out, 1); }

TEST_P(Crashes, AHandlerThatLeavesByAJumpIsCalledAgainAndAgain) {
  const auto status = in_child([] {
    struct sigaction action {};
    action.sa_sigaction = jump_out;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
    const auto session = open_session(tight, "host", "on-demand");
    static int left = 0;  // static: a jump leaves it as it is
    while (left < 40) {
      if (::sigsetjmp(way_out, 1) == 0) testing::fault_at(0x38);
      ++left;
    }
    Block away(*session, 500'000), more(*session, 900'000);
    away.fill(1);
    more.fill(2);
    ::_exit(away.holds(1) && more.holds(2) ? 0 : 1);
  });
  EXPECT_TRUE(exited_well(status));
}

struct Shared {  // between a child and its judge
  std::atomic<std::uintptr_t> address{0};
  std::uint64_t word = 0;  // what is there
};

class SharedPage {
 public:
  SharedPage() : at_(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedPage() { ::munmap(at_, 4096); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  bool is_there() const { return at_ != MAP_FAILED; }
  Shared& operator*() const { return *static_cast<Shared*>(at_); }
  Shared* operator->() const { return static_cast<Shared*>(at_); }

 private:
  void* at_;
};

// The word at `address` in a core file; nullopt: the file does not hold it.
std::optional<std::uint64_t> word_in_core(const std::filesystem::path& path, std::uintptr_t address) {
  std::ifstream core(path, std::ios::binary);
  Elf64_Ehdr header{};
  core.read(reinterpret_cast<char*>(&header), sizeof header);
  for (std::uint64_t i = 0; i < header.e_phnum && core; ++i) {
    Elf64_Phdr part{};
    core.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof part));
    core.read(reinterpret_cast<char*>(&part), sizeof part);
    if (!core || part.p_type != PT_LOAD || address < part.p_vaddr || address + 8 > part.p_vaddr + part.p_filesz)
      continue;
    std::uint64_t word = 0;
    core.seekg(static_cast<std::streamoff>(part.p_offset + (address - part.p_vaddr)));
    if (core.read(reinterpret_cast<char*>(&word), sizeof word)) return word;
  }
  return std::nullopt;
}

TEST_P(Crashes, ACoreDumpEndsAndHoldsNothingWrongWhereMemoryIsAway) {
  std::ifstream pattern("/proc/sys/kernel/core_pattern");
  std::string where;
  std::getline(pattern, where);
  if (where.empty() || where.starts_with("|") || where.starts_with("/"))
    GTEST_SKIP() << "core dumps go elsewhere here: " << where;
  const Folder folder;
  const SharedPage shared;
  ASSERT_TRUE(shared.is_there());
  const auto status = in_child([&] {
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_CORE, &unlimited) != 0 || ::chdir(folder.path().c_str()) != 0) ::_exit(1);
    const auto session = open_session(tight, "host", "on-demand");
    Block first(*session, 500'000), second(*session, 900'000);
    first.fill(1);
    shared->word = first[100];
    shared->address = reinterpret_cast<std::uintptr_t>(&first[100]);
    second.fill(2);  // the first is away now
    std::abort();
  });
  if (status && WIFEXITED(*status)) GTEST_SKIP() << "core dumps are not allowed here (ulimit -c)";
  EXPECT_TRUE(died_of(status, SIGABRT));
  std::size_t cores = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    ++cores;
    EXPECT_GT(std::filesystem::file_size(file), 0u);
    const auto word = word_in_core(file.path(), shared->address);
    EXPECT_TRUE(!word || *word == 0 || *word == shared->word) << "at memory that is away: " << *word;
  }
  std::printf("%zu core files\n", cores);
}

// What MADV_DONTNEED promises of private memory: where the tensor is, and after it has left and come back.
TEST_P(Crashes, PagesThatTheProgramDiscardsHoldZeros) {
  const auto status = in_child([] {
    ::alarm(30);
    const auto session = open_session(tight, "host", "on-demand");
    Block block(*session, 500'000);
    const auto discard = [&](std::size_t word) {  // its page
      const auto page = reinterpret_cast<std::uintptr_t>(&block[word]) & ~std::uintptr_t{4095};
      ::madvise(reinterpret_cast<void*>(page), 4096, MADV_DONTNEED);
    };
    block.fill(1);
    const std::uint64_t far = block[50'000];
    discard(2'000);
    if (block[2'000] != 0 || block[50'000] != far) ::_exit(1);
    discard(30'000);
    Block(*session, 900'000).fill(2);  // the first is away now
    if (block[30'000] != 0 || block[2'000] != 0 || block[50'000] != far) ::_exit(2);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

// As gdb, gcore and strace do.
TEST_P(Crashes, AnotherProcessReadsMemoryThatIsAwayOrIsToldItCannot) {
  const SharedPage shared;
  ASSERT_TRUE(shared.is_there());
  std::uint64_t word = 0;
  ssize_t got = 0;
  int why = 0;
  const auto status = in_child(
      [&] {
        const auto session = open_session(tight, "host", "on-demand");
        Block first(*session, 500'000), second(*session, 900'000);
        first.fill(1);
        shared->word = first[100];
        second.fill(2);  // the first is away now
        shared->address = reinterpret_cast<std::uintptr_t>(&first[100]);
        for (;;) ::pause();
      },
      [&](pid_t child) {
        for (int tenths = 0; tenths < 600 && shared->address == 0; ++tenths)
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const iovec here{&word, sizeof word}, there{reinterpret_cast<void*>(shared->address.load()), sizeof word};
        got = ::process_vm_readv(child, &here, 1, &there, 1, 0);
        why = errno;
        ::kill(child, SIGKILL);
      });
  EXPECT_TRUE(died_of(status, SIGKILL));
  if (got < 0 && (why == EPERM || why == ENOSYS)) GTEST_SKIP() << "process_vm_readv is forbidden here";
  if (by_signals()) {
    EXPECT_EQ(got, -1);
    EXPECT_EQ(why, EFAULT);
  } else {
    EXPECT_EQ(got, ssize_t{sizeof word});
    EXPECT_EQ(word, shared->word);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Crashes, ::testing::Values(Forbidden::nothing, Forbidden::userfaultfd),
                         [](const auto& forbidden) {
                           return forbidden.param == Forbidden::nothing ? "served_by_userfaultfd" : "served_by_signals";
                         });

}  // namespace
}  // namespace vedette::crashes_test
