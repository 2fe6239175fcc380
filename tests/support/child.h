// Child processes, for tests that end a process or change its environment: a body in a forked child under a watchdog,
// its standard error or output, and its end.
#pragma once
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace vedette::testing {

inline bool exited_well(const std::optional<int>& status) {
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}
inline bool exited_with(const std::optional<int>& status, int code) {
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == code;
}
inline bool died_of(const std::optional<int>& status, int signal) {
  return status && WIFSIGNALED(*status) && WTERMSIG(*status) == signal;
}

// Runs `body` in a child. Returns waitpid's status, or nullopt when the child was killed after a minute. The minute is
// counted in tenths of a second, so that a pause of the whole machine stops the watch as well.
inline std::optional<int> in_child(const std::function<void()>& body,
                                   const std::function<void(pid_t)>& meanwhile = {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  if (meanwhile) meanwhile(child);
  int status = 0;
  for (int tenths = 0; tenths < 600; ++tenths) {
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return std::nullopt;
}

struct LastWords {
  std::optional<int> status;  // as in_child
  std::string said;           // to standard error
};

// As in_child, and listens.
inline LastWords listen_to_child(const std::function<void()>& body) {
  LastWords heard;
  int ends[2];
  if (::pipe(ends) != 0) return heard;
  heard.status = in_child(
      [&] {
        ::dup2(ends[1], 2);
        ::close(ends[0]);
        ::close(ends[1]);
        body();
      },
      [&](pid_t child) {
        ::close(ends[1]);
        char buffer[4096];
        for (int tenths = 0; tenths < 600;) {
          pollfd ready{ends[0], POLLIN, 0};
          if (::poll(&ready, 1, 100) <= 0) {
            ++tenths;
            continue;
          }
          const ssize_t bytes = ::read(ends[0], buffer, sizeof buffer);
          if (bytes <= 0) return;
          heard.said.append(buffer, static_cast<std::size_t>(bytes));
        }
        ::kill(child, SIGKILL);
      });
  ::close(ends[0]);
  return heard;
}

struct Told {
  std::string text;  // to standard output
  int status = -1;   // -1: by a signal, which is
  int signal = 0;
};

constexpr int not_entered = 99;

// Five minutes, or VEDETTE_WATCHDOG_SECONDS where every program is slower (an emulated machine).
inline unsigned watchdog_seconds() {
  const char* const text = std::getenv("VEDETTE_WATCHDOG_SECONDS");
  return text == nullptr ? 300 : static_cast<unsigned>(std::max(1, std::atoi(text)));
}

// Runs `body` in a child behind `enter`, which makes the environment; where that fails, the status is not_entered. What
// `body` returns is the status; an alarm kills it after watchdog_seconds().
inline Told inside(const std::function<bool()>& enter, const std::function<int()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(watchdog_seconds());
    ::dup2(ends[1], 1);
    ::close(ends[0]);
    ::close(ends[1]);
    ::_exit(enter() ? body() : not_entered);
  }
  ::close(ends[1]);
  Told told;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    told.text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) told.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) told.signal = WTERMSIG(status);
  return told;
}

// For a body: writes to standard output at once, buffers of the parent's or not.
inline int say(const std::string& text, int status) {
  [[maybe_unused]] const auto written = ::write(1, text.data(), text.size());
  return status;
}

inline void leave_no_core() {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
}

// A foreign fault at an address that a test can recognise.
inline void fault_at(std::uintptr_t where) {
  volatile std::uintptr_t nowhere = where;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

}  // namespace vedette::testing
