// A file that would exceed the limit of a file's size (ulimit -f): the kernel sends SIGXFSZ beside EFBIG, which ends a
// program that does not ignore it. While this lives the calling thread gets the error alone.
#pragma once
#include <pthread.h>

#include <csignal>
#include <ctime>

namespace vedette {

class [[nodiscard]] SizeLimitIsAnError {
 public:
  SizeLimitIsAnError() noexcept {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeLimitIsAnError() {
    const timespec none{};
    if (::sigismember(&before_, SIGXFSZ) == 0) ::sigtimedwait(&signal_, nullptr, &none);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SizeLimitIsAnError(const SizeLimitIsAnError&) = delete;
  SizeLimitIsAnError& operator=(const SizeLimitIsAnError&) = delete;

 private:
  sigset_t signal_, before_;
};

}  // namespace vedette
