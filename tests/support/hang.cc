// A test that hangs tells where, before ctest ends it without a word: of each thread its name, what it waits for in the
// kernel, and the addresses of its calls (addr2line -Cfe PROGRAM ADDRESS). Threads that block signals tell no calls.
//
// ctest says in VEDETTE_TEST_TIMEOUT after how many seconds it ends a test; without it nothing happens.
#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace {

constexpr unsigned seconds_before = 10;  // of ctest's end

void say(std::string_view text) { static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size())); }

std::atomic<bool> told = false;  // release in the thread that tells, acquire in the one that asked it

void tell_calls(int) {
  const int error = errno;
  std::array<void*, 48> calls;
  ::backtrace_symbols_fd(calls.data(), ::backtrace(calls.data(), static_cast<int>(calls.size())), STDERR_FILENO);
  told.store(true, std::memory_order_release);
  errno = error;
}

void say_file(int folder, const char* file) {
  std::array<char, 256> text;
  const int fd = ::openat(folder, file, O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = fd < 0 ? -1 : ::read(fd, text.data(), text.size());
  if (fd >= 0) ::close(fd);
  std::string_view found(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  while (!found.empty() && found.back() == '\n') found.remove_suffix(1);
  say(" ");
  say(found);
}

// Reads the folder without the allocator: the thread that hangs may hold its lock.
void tell_threads(int) {
  say("hang: the threads of this test, shortly before its time is over\n");
  const int folder = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) std::array<char, 8192> entries;
  for (long bytes; (bytes = ::syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0;)
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      at += entry->d_reclen;
      pid_t thread = 0;
      const std::string_view name(entry->d_name);
      if (std::from_chars(name.data(), name.data() + name.size(), thread).ec != std::errc{}) continue;
      say("hang: thread ");
      say(name);
      const int of_thread = ::openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      for (const char* file : {"comm", "wchan", "syscall"}) say_file(of_thread, file);
      ::close(of_thread);
      say("\n");
      told.store(false, std::memory_order_relaxed);
      if (::syscall(SYS_tgkill, ::getpid(), thread, SIGRTMAX - 1) != 0) continue;
      for (int turns = 0; turns < 50 && !told.load(std::memory_order_acquire); ++turns) {
        const timespec pause{0, 10'000'000};
        ::nanosleep(&pause, nullptr);
      }
    }
  ::close(folder);
}

[[maybe_unused]] const bool begun = [] {
  const char* const timeout = std::getenv("VEDETTE_TEST_TIMEOUT");
  const unsigned seconds = timeout == nullptr ? 0 : static_cast<unsigned>(std::atoi(timeout));
  if (seconds <= 2 * seconds_before) return false;
  ::unsetenv("VEDETTE_TEST_TIMEOUT");  // programs that the test starts have their own time
  std::array<void*, 1> calls;
  ::backtrace(calls.data(), 1);  // the first call loads a library
  struct sigaction action {};
  action.sa_flags = SA_RESTART;
  action.sa_handler = tell_calls;
  ::sigaction(SIGRTMAX - 1, &action, nullptr);
  action.sa_handler = tell_threads;
  ::sigaction(SIGRTMAX - 2, &action, nullptr);
  // Not alarm(): children of some tests set their own, and must end by it. A child has no timers.
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGRTMAX - 2;
  timer_t timer;
  const itimerspec once{.it_interval = {}, .it_value = {.tv_sec = seconds - seconds_before, .tv_nsec = 0}};
  return ::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && ::timer_settime(timer, 0, &once, nullptr) == 0;
}();

}  // namespace
