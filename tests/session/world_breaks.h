// Fault injection at every single call. A scripted three-step program runs once for every system call and every disk
// transfer that the engine makes in it. That one call fails, stops half-way, comes late or brings other bytes. Each run
// is a process of its own under a watchdog, and may end in three ways only: with the right numbers, with an error that
// names the cause, or with one last sentence. A wrong number, a signal of the memory itself or a hang is a failure.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>

#include "session/loop.h"
#include "support/broken_calls.h"

namespace vedette::testing {

struct World {
  const char* name;
  Forbidden forbidden;
  std::uint64_t part = 0, parts = 1;  // which calls of it: every parts-th, from this one on
};
// `parts` disjoint parts of each world, which together are every call of it.
inline std::vector<World> worlds_in_parts(std::uint64_t parts) {
  std::vector<World> all;
  for (const World& world : {World{"uring", Forbidden::nothing}, World{"threads", Forbidden::io_uring},
                             World{"signals", Forbidden::userfaultfd}})
    for (std::uint64_t part = 0; part < parts; ++part) all.push_back({world.name, world.forbidden, part, parts});
  return all;
}
inline std::string name_of(const ::testing::TestParamInfo<World>& world) {
  std::string name = world.param.name;
  if (world.param.parts > 1) name.append("_").append(std::to_string(world.param.part));
  return name;
}
inline void PrintTo(const World& world, std::ostream* out) { *out << world.name << " " << world.part; }

struct Shared {                                    // between a run and its judge
  std::uint64_t calls = 0, reads = 0, result = 0;  // reads: of the disk
  CallNames names;                                 // of a calm run
  std::atomic<const char*> broken{nullptr};        // a literal, at the same address in every fork
  char sentence[400] = {};
};

constexpr int right = 0, refused = 7, silent = 8;

// Three steps: warm-up, profiling, planned; chunks leave and come in each of them. The budget is the smallest there is,
// 8 chunks; at most 18 live. Some 1,500 calls, a quarter of them while the disk's speed is measured.
inline std::uint64_t program() {
  const auto session =
      Session::open(
          {.fast_memory = {128 << 10}, .slow = "nvme:.", .policy = "vedette", .chunk = {16 << 10}, .checksums = true})
          .value();
  Loop loop(*session, 2, 30'000);
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < 3; ++s) all = all * 31 + loop.step(s);
  all = all * 31 + loop.state();
  if (auto error = session->take_error()) throw std::runtime_error(error->message);
  return all;
}

[[noreturn]] inline void child(const World& world, std::optional<BreakAt> at, Shared& shared) {
  forbid(world.forbidden);
  tell_broken(&shared.broken);
  if (!at) tell_names(&shared.names);
  arm(at);
  int status = right;
  try {
    shared.result = program();
  } catch (const std::exception& error) {
    std::snprintf(shared.sentence, sizeof shared.sentence, "%s", error.what());
    status = shared.sentence[0] == 0 ? silent : refused;
  }
  shared.calls = calls_made(Break::fail);
  shared.reads = calls_made(Break::corrupt);
  ::_exit(status);
}

struct Ended {
  bool in_time = false;
  int status = 0;
  std::string said;  // to standard error
};

// Somebody has sent it SIGSTOP: that it stands still is no fault of its own.
inline bool stands_stopped(pid_t run) {
  std::ifstream file("/proc/" + std::to_string(run) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end != text.npos && name_end + 2 < text.size() && text[name_end + 2] == 'T';
}

// Reads the run's output until it ends or its minute is over. The minute is counted in tenths of a second, so that a
// pause of the whole machine stops the watch as well.
inline Ended watch(pid_t run, int said) {
  Ended ended;
  char buffer[512];
  for (int turns = 0; turns < 600;) {
    pollfd ready{said, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) {
      turns += stands_stopped(run) ? 0 : 1;
      continue;
    }
    const ssize_t bytes = ::read(said, buffer, sizeof buffer);
    if (bytes <= 0) {  // every end of the pipe is closed: the process has ended
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
    shared_ = static_cast<Shared*>(
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(shared_), MAP_FAILED);
    for (int again = 0; again < 3; ++again) {  // threads meet differently each time
      const Ended calm = run(std::nullopt);
      ASSERT_TRUE(calm.in_time && calm.status == 0) << calm.said << shared_->sentence;
      calls_ = std::max(calls_, shared_->calls);
      reads_ = std::max(reads_, shared_->reads);
    }
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

  // False: the run made fewer calls than that.
  bool break_call(std::uint64_t n, Break how) {
    const char* const name = break_names[static_cast<std::size_t>(how)];
    const Ended ended = run(BreakAt{.nth = n, .how = how, .seed = n / 3 + 1 + static_cast<std::uint64_t>(how)});
    const std::string wrong = judge(ended);
    EXPECT_EQ(wrong, "") << "call " << n << " (" << (shared_->broken == nullptr ? "none" : shared_->broken.load())
                         << ") " << name << "; " << ended.said << shared_->sentence;
    const bool reached = shared_->broken != nullptr;
    if (!reached)
      ++endings_["not reached"];
    else
      ++endings_[WIFSIGNALED(ended.status)            ? "last words"
                 : WEXITSTATUS(ended.status) == right ? "right numbers"
                                                      : "error"];
    return reached;
  }

  void tell_endings() const {
    const auto kinds = std::count_if(std::begin(shared_->names.entries), std::end(shared_->names.entries),
                                     [](const auto& entry) { return entry.calls > 0; });
    std::printf("%lu calls of %ld kinds, %lu of them reads of the disk;", calls_, kinds, reads_);
    for (const auto& [ending, count] : endings_) std::printf(" %s: %d", ending.c_str(), count);
    std::printf("\n");
  }

  // The first calls closer together: they open the session.
  void break_sparsely(std::uint64_t stride) {
    for (const Break how : every_break)
      for (std::uint64_t n = 5 * static_cast<std::uint64_t>(how); n < calls_of(how); n += n < 60 ? 7 : stride)
        break_call(n, how);
    tell_endings();
  }

  // The calls of this part, to the last one. Some runs make more calls than the calm ones did, some fewer: those are
  // recomputed.
  void break_part() {
    for (const Break how : every_break) {
      for (std::uint64_t n = GetParam().part;; n += GetParam().parts) {
        bool reached = false;
        for (int again = 0; again < 5 && !reached; ++again) reached = break_call(n, how);
        if (!reached && n >= calls_of(how)) break;
      }
    }
    tell_endings();
  }

  std::uint64_t calls_of(Break how) const { return how == Break::corrupt ? reads_ : calls_; }

  Shared* shared_ = nullptr;
  std::uint64_t calls_ = 0, reads_ = 0, result_ = 0;
  std::map<std::string, int> endings_;

 private:
  static constexpr Break every_break[] = {Break::fail, Break::brief, Break::late, Break::corrupt};
};

}  // namespace vedette::testing
