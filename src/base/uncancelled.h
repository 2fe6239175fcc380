// pthread_cancel() of a thread that is inside the library waits until the call has ended: it would unwind through
// functions that hold locks and promise not to throw.
#pragma once
#include <pthread.h>

namespace vedette {

class [[nodiscard]] Uncancelled {
 public:
  Uncancelled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace vedette
