// Threads of the library. They block every signal that comes from outside: a signal that all threads of the program
// block would else run its handler on one of them. That handler may touch a chunk that only this thread can bring back.
// Signals that the thread itself raises (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS) stay open: where
// one is blocked the kernel kills the program. SIGSYS comes from a seccomp filter, whose handler does the call instead.
#pragma once
#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace vedette {

// Blocks those signals in the calling thread while it lives; a thread that is started meanwhile inherits the mask.
class [[nodiscard]] QuietStart {
 public:
  QuietStart() noexcept {
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) ::sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~QuietStart() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  QuietStart(const QuietStart&) = delete;
  QuietStart& operator=(const QuietStart&) = delete;

 private:
  sigset_t before_;
};

// Throws std::system_error where there are too many threads (ulimit -u).
template <class Thread = std::thread, class Body>
Thread start_quiet_thread(Body&& body) {
  const QuietStart quiet;
  return Thread(std::forward<Body>(body));
}

}  // namespace vedette
