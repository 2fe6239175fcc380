// The daemon and its clients as processes: a client that is killed, one that is stopped, a daemon that dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "cli/memory_daemon.h"
#include "os/local_socket.h"
#include "session/forks.h"
#include "session/lease.h"

namespace vedette::live_test {
namespace {

using detail::Lease;
using ::testing::HasSubstr;

constexpr Bytes all = 256_MiB;

// What processes show each other: each fills its lease by a number.
struct Board {
  struct Place {
    std::atomic<std::uint64_t> fills{0}, steps{0};
  };
  Place clients[4];
  std::uint64_t filled() const {
    std::uint64_t sum = 0;
    for (const Place& each : clients) sum += each.fills.load();
    return sum;
  }
};

class Live : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("vedette-live-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board;
  }
  void TearDown() override {
    while (!started_.empty()) end(started_.back());
    std::filesystem::remove_all(folder_);
  }

  std::string path() const { return folder_ / "socket"; }

  pid_t in_child(const std::function<void()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(100);
      body();
      ::_exit(0);
    }
    started_.push_back(pid);
    return pid;
  }

  void end(pid_t pid) {
    if (std::erase(started_, pid) == 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  pid_t start_daemon(const char* policy) {
    const pid_t pid = in_child([&] {
      auto daemon = cli::MemoryDaemon::open(path(), *share::policy_named(policy), all);
      const std::atomic<bool> never = false;
      if (daemon) daemon->serve(never);
    });
    EXPECT_TRUE(soon([&] { return connect_to(path()).ok(); }));
    return pid;
  }

  // Steps of 5 ms until it is ended. Memory is given back before the daemon hears so, and taken after it was told.
  pid_t start_client(std::size_t place, detail::Needs needs) {
    return in_child([this, place, needs] {
      Board::Place& own = board_->clients[place];
      auto lease = Lease::ask(path(), "job" + std::to_string(place), needs, {});
      if (!lease || *lease == nullptr) return;
      own.fills = (*lease)->now().value;
      (*lease)->follow([&own](Bytes size, bool) {
        own.fills = size.value;
        return size;
      });
      for (;;) {
        (*lease)->begin_step();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++own.steps;
        (*lease)->end_step({}, needs);
      }
    });
  }

  static bool soon(const std::function<bool()>& holds, std::chrono::milliseconds within = std::chrono::seconds(40)) {
    const auto until = std::chrono::steady_clock::now() + within;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  bool steps_on(std::size_t place) {
    const std::uint64_t before = board_->clients[place].steps;
    return soon([&] { return board_->clients[place].steps > before + 2; });
  }

  std::filesystem::path folder_;
  Board* board_ = nullptr;
  std::vector<pid_t> started_;
};

TEST_F(Live, AKilledClientsMemoryIsGivenOn) {
  start_daemon("pack");
  const detail::Needs needs{.floor = 64_MiB, .want = 256_MiB, .rest = 16_MiB};
  const pid_t first = start_client(0, needs);
  ASSERT_TRUE(steps_on(0));
  start_client(1, needs);
  ASSERT_TRUE(steps_on(1));
  EXPECT_LE(board_->filled(), all.value);
  end(first);
  board_->clients[0].fills = 0;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(soon([&] { return board_->clients[1].fills == all.value; }));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("given on after %.0f ms\n", took.count());
  EXPECT_TRUE(steps_on(1));
}

TEST_F(Live, AKilledClientsMemoryIsGivenOnThoughAForkedChildOfItLives) {
  start_daemon("pack");
  const detail::Needs needs{.floor = 64_MiB, .want = 256_MiB, .rest = 16_MiB};
  std::atomic<std::uint64_t>& grandchild = board_->clients[3].steps;
  const pid_t first = in_child([&] {
    if (!detail::watch_forks()) return;  // as a session does
    const auto lease = Lease::ask(path(), "parent", needs, {});
    const pid_t child = ::fork();
    if (child > 0) grandchild = static_cast<std::uint64_t>(child);
    ::alarm(60);
    ::pause();
  });
  ASSERT_TRUE(soon([&] { return grandchild != 0; }));
  end(first);
  start_client(1, needs);
  EXPECT_TRUE(steps_on(1));
  EXPECT_TRUE(soon([&] { return board_->clients[1].fills == all.value; }));
  EXPECT_EQ(::kill(static_cast<pid_t>(grandchild), SIGKILL), 0) << "it lived";
}

TEST_F(Live, AStoppedClientKeepsItsLeaseAndHoldsNobodyUp) {
  start_daemon("pack");
  const detail::Needs needs{.floor = 64_MiB, .want = 96_MiB, .rest = 16_MiB};
  const pid_t first = start_client(0, needs);
  ASSERT_TRUE(steps_on(0));
  ::kill(first, SIGSTOP);
  start_client(1, needs);
  ASSERT_TRUE(steps_on(1));
  start_client(2, needs);  // 96 + 96 + 64
  ASSERT_TRUE(steps_on(2));
  EXPECT_GE(board_->clients[0].fills, needs.floor.value);
  EXPECT_LE(board_->filled(), all.value);
  ::kill(first, SIGCONT);
  EXPECT_TRUE(steps_on(0));
  EXPECT_LE(board_->filled(), all.value);
}

TEST_F(Live, WithoutTheDaemonAllStaysAsItWasAndNothingWaits) {
  const pid_t daemon = start_daemon("fifo");
  const detail::Needs needs{.floor = 64_MiB, .want = 160_MiB, .rest = 32_MiB};
  start_client(0, needs);
  ASSERT_TRUE(steps_on(0));
  const std::uint64_t had = board_->clients[0].fills;
  EXPECT_EQ(had, needs.want.value);
  start_client(1, needs);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(board_->clients[1].steps, 0u) << "it waits";
  end(daemon);
  EXPECT_TRUE(steps_on(0));
  EXPECT_EQ(board_->clients[0].fills, had);
}

TEST_F(Live, TurnsPassAtTheEndOfAStep) {
  start_daemon("fair");
  const detail::Needs needs{.floor = 200_MiB, .want = 256_MiB, .rest = 32_MiB};
  start_client(0, needs);
  start_client(1, needs);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(steps_on(0));
    ASSERT_TRUE(steps_on(1));
    EXPECT_LE(board_->filled(), all.value);
  }
}

TEST_F(Live, SaysForWhomItWaits) {
  start_daemon("fifo");
  const detail::Needs needs{.floor = 64_MiB, .want = 160_MiB, .rest = 32_MiB};
  const pid_t first = start_client(0, needs);
  ASSERT_TRUE(steps_on(0));
  std::vector<std::string> words;
  std::thread ender([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::kill(first, SIGKILL);
  });
  const auto lease = Lease::ask(path(), "second", needs, [&](std::string_view said) { words.emplace_back(said); });
  ender.join();
  ASSERT_TRUE(lease.ok());
  ASSERT_GE(words.size(), 1u);
  EXPECT_THAT(words[0], HasSubstr("waits for its turn in the shared memory of 256.0 MiB: job0 (process " +
                                  std::to_string(first) + ") holds 160.0 MiB, and a step of it takes "));
}

TEST_F(Live, RefusesWhatCannotBe) {
  const detail::Needs needs{.floor = 300_MiB, .want = 400_MiB, .rest = 32_MiB};
  EXPECT_EQ(*Lease::ask(path(), "alone", needs, {}), nullptr) << "no daemon";
  start_daemon("fifo");
  const auto refused = Lease::ask(path(), "large", needs, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("the shared memory has 256.0 MiB"));
  const auto second = listen_at(path());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("listens at"));
}

TEST_F(Live, OneListensWhereTwoBeginAtOnce) {
  for (int round = 0; round < 100; ++round) {  // a socket of the round before, whose program is gone, lies there
    std::barrier together(2);
    std::array<std::optional<Fd>, 2> listening;
    const auto listen = [&](std::size_t which) {
      together.arrive_and_wait();
      if (auto socket = listen_at(path())) listening[which] = std::move(socket).value();
    };
    std::thread other(listen, 1);
    listen(0);
    other.join();
    ASSERT_NE(listening[0].has_value(), listening[1].has_value()) << "round " << round;
    ASSERT_TRUE(connect_to(path()).ok());
  }
}

}  // namespace
}  // namespace vedette::live_test
