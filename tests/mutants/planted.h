// Bugs that draw.py compiles into a program side by side: is(17) holds where VEDETTE_PLANTED is 17, and nowhere else.
// Where VEDETTE_REACHED names a file, each bug that the program comes by writes its number there, once. Any thread may
// ask, a handler of a signal, too. Nothing here calls what tests let fail (tests/support/broken_calls.cc).
#pragma once

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

// A bug that a warning alone would refuse is run. The library without one compiles with all of them.
#pragma GCC diagnostic ignored "-Wmisleading-indentation"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wnarrowing"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace vedette_planted {

inline constexpr int unknown = -1, none = 0, reaching = 1 << 20;
inline std::atomic<int> asked{unknown};

inline int ask() noexcept {
  const char* number = std::getenv("VEDETTE_PLANTED");
  const int found = std::getenv("VEDETTE_REACHED") != nullptr ? reaching : number != nullptr ? std::atoi(number) : none;
  asked.store(found, std::memory_order_relaxed);
  return found;
}

template <int number>
void reach() noexcept {
  static std::atomic<bool> told{false};
  if (told.exchange(true, std::memory_order_relaxed)) return;
  char text[12];
  std::size_t size = sizeof text;
  text[--size] = '\n';
  for (int left = number; left > 0; left /= 10) text[--size] = static_cast<char>('0' + left % 10);
  const char* path = std::getenv("VEDETTE_REACHED");
  const int file = path == nullptr ? -1 : ::openat(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  const iovec line{text + size, sizeof text - size};
  [[maybe_unused]] const auto written = ::writev(file, &line, 1);
  ::close(file);
}

template <int number>
bool is() noexcept {
  const int now = asked.load(std::memory_order_relaxed);
  const int found = now == unknown ? ask() : now;
  if (found == reaching) reach<number>();
  return found == number;
}

}  // namespace vedette_planted
