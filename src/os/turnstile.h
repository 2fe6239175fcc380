// Keeps threads that serve faults and the thread that changes the tracked set apart: a fault is served wholly before a
// change or wholly after it. So no answer to an old fault opens a page that has been closed again, or has gone away,
// since.
//
// Everything is async-signal-safe: a thread that waits yields. A child of fork() that finds the turnstile closed by its
// parent goes through.
//
// Thread rule: enter() and leave() from any thread or signal handler, close() and open() by one at a time.
#pragma once
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace vedette {

class Turnstile {
 public:
  // seq_cst on both counters: each side writes its own before it reads the other's.
  void enter() noexcept {
    for (;;) {
      inside_.fetch_add(1);
      if (closed_by_.load() == 0) return;
      if (closed_by_.load() != ::getpid()) return;
      inside_.fetch_sub(1);
      while (closed_by_.load() != 0) ::sched_yield();
    }
  }
  void leave() noexcept { inside_.fetch_sub(1); }

  void close() noexcept {
    closed_by_.store(::getpid());
    while (inside_.load() != 0) ::sched_yield();
  }
  void open() noexcept { closed_by_.store(0); }

 private:
  std::atomic<std::uint32_t> inside_{0};
  std::atomic<pid_t> closed_by_{0};
};

class [[nodiscard("the turnstile is closed while this lives")]] Closed {
 public:
  explicit Closed(Turnstile & turnstile) noexcept : turnstile_(turnstile) { turnstile_.close(); }
  ~Closed() { turnstile_.open(); }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;

 private:
  Turnstile& turnstile_;
};

class [[nodiscard("a fault is served while this lives")]] Serving {
 public:
  explicit Serving(Turnstile & turnstile) noexcept : turnstile_(turnstile) { turnstile_.enter(); }
  ~Serving() { turnstile_.leave(); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

 private:
  Turnstile& turnstile_;
};

}  // namespace vedette
