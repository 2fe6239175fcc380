// A table of descriptors that a fork handler can read: see children.h.
#include "base/children.h"

#include <unistd.h>

#include <array>
#include <atomic>

namespace vedette {
namespace {

// A few descriptors for each of 256 sessions; where it is full, children keep the rest.
std::array<std::atomic<int>, 2048> one_more;  // than the descriptor; 0: free. Relaxed: nothing is handed over

}  // namespace

ClosedInChildren::ClosedInChildren(int fd) noexcept {
  for (std::size_t i = 0; i < one_more.size() && fd >= 0; ++i) {
    int none = 0;
    if (!one_more[i].compare_exchange_strong(none, fd + 1, std::memory_order_relaxed)) continue;
    place_ = static_cast<int>(i);
    return;
  }
}

ClosedInChildren::~ClosedInChildren() {
  if (place_ >= 0) one_more[static_cast<std::size_t>(place_)].store(0, std::memory_order_relaxed);
}

void close_what_children_do_not_keep() noexcept {
  for (std::atomic<int>& entry : one_more)
    if (const int value = entry.exchange(0, std::memory_order_relaxed); value > 0) ::close(value - 1);
}

}  // namespace vedette
