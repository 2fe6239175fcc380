// Sessions in several processes that share one memory by a daemon: their sums are those of a run alone, and what the
// kernel counts stays within the memory, and what sessions may need beside it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "cli/memory_daemon.h"
#include "os/local_socket.h"
#include "session/kernel_memory.h"
#include "session/loop.h"

namespace vedette::shared_session_test {
namespace {

constexpr std::size_t layers = 8, bytes = 2'000'000;  // 70 MB at the peak
constexpr int steps = 8;

struct Result {
  std::atomic<std::uint64_t> hash{0}, done{0}, waits{0}, base{0};
};

void train(const std::string& share, Result& result) {
  result.base = testing::resident_bytes(::getpid());
  const auto session = Session::open({.fast_memory = 80_MiB,
                                      .slow = "nvme:.",
                                      .on_message =
                                          [&result](std::string_view said) {
                                            if (said.find("waits for its turn") != said.npos) ++result.waits;
                                          },
                                      .share = share})
                           .value();
  testing::Loop loop(*session, layers, bytes);
  std::uint64_t hash = 0;
  for (int s = 0; s < steps; ++s) hash = hash * 31 + loop.step(static_cast<std::uint64_t>(s));
  result.hash = hash * 31 + loop.state();
  ++result.done;
}

template <class Body>
pid_t in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(250);
  body();
  ::_exit(0);
}

class Shared : public ::testing::TestWithParam<const char*> {};

TEST_P(Shared, ThreeProcessesKeepTheirSumsInOneMemory) {
  constexpr Bytes all = 80_MiB;
  constexpr int count = 3;
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const results = new (memory) Result[count + 1];
  const std::string path = std::filesystem::temp_directory_path() / ("vedette-shared-" + std::to_string(::getpid()));
  const pid_t alone = in_child([&] { train("", results[count]); });
  ::waitpid(alone, nullptr, 0);
  ASSERT_EQ(results[count].done, 1u);
  const pid_t daemon = in_child([&] {
    auto opened = cli::MemoryDaemon::open(path, *share::policy_named(GetParam()), all);
    const std::atomic<bool> never = false;
    if (opened) opened->serve(never);
  });
  while (!connect_to(path)) ::usleep(1000);
  pid_t trains[count];
  for (int t = 0; t < count; ++t) trains[t] = in_child([&] { train(path, results[t]); });
  std::uint64_t most = 0;
  for (int left = count; left > 0; ::usleep(5000)) {
    std::uint64_t now = 0;
    for (int t = 0; t < count; ++t) {
      const std::uint64_t there = trains[t] > 0 ? testing::resident_bytes(trains[t]) : 0;
      now += there - std::min(there, results[t].base.load());
      if (trains[t] > 0 && ::waitpid(trains[t], nullptr, WNOHANG) == trains[t]) trains[t] = 0, --left;
    }
    most = std::max(most, now);
  }
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  std::filesystem::remove(path);
  std::printf("%s: at most %.0f MiB resident\n", GetParam(), static_cast<double>(most) / (1 << 20));
  for (int t = 0; t < count; ++t) {
    EXPECT_EQ(results[t].done, 1u) << t;
    EXPECT_EQ(results[t].hash, results[count].hash) << t;
  }
  EXPECT_LE(most, all.value + count * session_overhead.value);
  ::munmap(memory, 4096);
}

INSTANTIATE_TEST_SUITE_P(Policies, Shared, ::testing::Values("fifo", "fair", "pack"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace vedette::shared_session_test
