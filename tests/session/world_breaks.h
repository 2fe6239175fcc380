// The world breaks at every single call: a scripted three-step program runs once for every system call and every disk transfer that the
// engine makes in it, and that one call fails, stops half-way, comes late or brings other bytes. Each run is a process of its own under a
// watchdog, and may end in three ways only: with the right numbers; with an error that says why; with one sentence of last words. Never
// with a wrong number, never in a signal of the memory itself, never not at all.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "session/loop.h"
#include "support/broken_calls.h"

namespace vedette::testing {

struct World {
  const char* name;
  std::string slow;
  Forbidden forbidden;
};
inline const World worlds[] = {
    {"uring", "nvme:.", Forbidden::nothing},
    {"threads", "nvme:.", Forbidden::io_uring},
    {"signals", "nvme:.", Forbidden::userfaultfd},
};
inline void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

struct Shared {                      // between a run and its judge
  std::uint64_t calls = 0, result = 0;
  std::atomic<const char*> broken{nullptr};  // a literal, at the same address in every fork
  char sentence[400] = {};
};

constexpr int right = 0, refused = 7, silent = 8;

// Three steps: warm-up, profiling, planned. The budget holds a half of what lives.
inline std::uint64_t program(const World& world) {
  const auto session = Session::open({.fast_memory = {std::uint64_t{384} << 10}, .slow = world.slow, .policy = "vedette", .chunk = {32 << 10},
                                      .checksums = true})
                           .value();
  Loop loop(*session, 3, 50'000);
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < 3; ++s) all = all * 31 + loop.step(s);
  all = all * 31 + loop.state();
  if (auto error = session->take_error()) throw std::runtime_error(error->message);
  return all;
}

[[noreturn]] inline void child(const World& world, std::optional<BreakAt> at, Shared& shared) {
  forbid(world.forbidden);
  tell_broken(&shared.broken);
  arm(at);
  int status = right;
  try {
    shared.result = program(world);
  } catch (const std::exception& error) {
    std::snprintf(shared.sentence, sizeof shared.sentence, "%s", error.what());
    status = shared.sentence[0] == 0 ? silent : refused;
  }
  shared.calls = calls_made();
  ::_exit(status);
}

struct Ended {
  bool in_time = false;
  int status = 0;
  std::string said;                  // to standard error
};

// Reads what the run says until it ends or its time is over: a minute, counted in turns of a tenth of a second, so that a machine that stops
// everybody for a while stops the watch as well.
inline Ended watch(pid_t run, int said) {
  Ended ended;
  char buffer[512];
  for (int turns = 0; turns < 600;) {
    pollfd ready{said, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) {
      ++turns;
      continue;
    }
    const ssize_t bytes = ::read(said, buffer, sizeof buffer);
    if (bytes <= 0) {                // every end of the pipe is closed: the process has ended
      ended.in_time = true;
      break;
    }
    ended.said.append(buffer, static_cast<std::size_t>(bytes));
  }
  if (!ended.in_time) ::kill(run, SIGKILL);
  ::waitpid(run, &ended.status, 0);
  return ended;
}

class WorldBreaks : public ::testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    shared_ = static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(shared_), MAP_FAILED);
    const Ended calm = run(std::nullopt);
    ASSERT_TRUE(calm.in_time && calm.status == 0) << calm.said << shared_->sentence;
    calls_ = shared_->calls;
    result_ = shared_->result;
  }

  Ended run(std::optional<BreakAt> at) {
    shared_->calls = shared_->result = 0;
    shared_->broken = nullptr;
    shared_->sentence[0] = 0;
    int ends[2];
    if (::pipe(ends) != 0) return {};
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], 2);
      ::close(ends[0]);
      ::close(ends[1]);
      child(GetParam(), at, *shared_);
    }
    ::close(ends[1]);
    const Ended ended = watch(pid, ends[0]);
    ::close(ends[0]);
    return ended;
  }

  // What is wrong with how a run ended; empty: nothing.
  std::string judge(const Ended& ended) {
    if (!ended.in_time) return "hangs";
    if (WIFEXITED(ended.status)) {
      if (WEXITSTATUS(ended.status) == right && shared_->result != result_) return "a wrong number";
      if (WEXITSTATUS(ended.status) == right || WEXITSTATUS(ended.status) == refused) return {};
      return "ends without a word, status " + std::to_string(WEXITSTATUS(ended.status));
    }
    if (WTERMSIG(ended.status) != SIGABRT) return std::string("dies of ") + ::strsignal(WTERMSIG(ended.status));
    if (ended.said.find("vedette: ") == std::string::npos) return "aborts without last words";
    if (ended.said.find("broken promise") != std::string::npos) return "last words that help nobody";
    return {};
  }

  void break_call(std::uint64_t n, Break how) {
    const char* const name = break_names[static_cast<std::size_t>(how)];
    const Ended ended = run(BreakAt{.nth = n, .how = how, .seed = n / 3 + 1});
    const std::string wrong = judge(ended);
    EXPECT_EQ(wrong, "") << "call " << n << " (" << (shared_->broken == nullptr ? "none" : shared_->broken.load()) << ") " << name << "; " << ended.said << shared_->sentence;
    ++endings_[WIFSIGNALED(ended.status) ? "last words" : WEXITSTATUS(ended.status) == right ? "right numbers" : "error"];
  }

  void tell_endings() const {
    std::printf("%lu calls;", calls_);
    for (const auto& [ending, count] : endings_) std::printf(" %s: %d", ending.c_str(), count);
    std::printf("\n");
  }

  // The first calls closer together: they open the session.
  void break_sparsely(std::uint64_t stride) {
    for (const Break how : every_break)
      for (std::uint64_t n = 5 * static_cast<std::uint64_t>(how); n < calls_; n += n < 60 ? 7 : stride) break_call(n, how);
    tell_endings();
  }

  // One of `parts` disjoint parts that together are every call broken in every way.
  void break_part(std::uint64_t part, std::uint64_t parts) {
    for (const Break how : every_break)
      for (std::uint64_t n = (part + static_cast<std::uint64_t>(how)) % parts; n < calls_; n += parts) break_call(n, how);
    tell_endings();
  }

  Shared* shared_ = nullptr;
  std::uint64_t calls_ = 0, result_ = 0;
  std::map<std::string, int> endings_;

 private:
  static constexpr Break every_break[] = {Break::fail, Break::brief, Break::late, Break::corrupt};
};

}  // namespace vedette::testing
