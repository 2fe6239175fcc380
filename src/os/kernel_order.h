// The kernel orders two threads where the thread sanitizer sees a race. A thread that touches a page that is away or
// protected waits inside the kernel until another thread has shown, copied or opened it. While an OrderedByKernel
// lives, the sanitizer ignores this thread's reads, writes and mappings; other threads, and other times, stay watched.
// Costs two comparisons in programs that are built without it.
#pragma once

// Of the sanitizer's library: there in a program that is built with it, whether vedette was or not; null in others.
extern "C" {
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace vedette {

class [[nodiscard]] OrderedByKernel {
 public:
  // The sanitizer has one count for reads and writes.
  OrderedByKernel() noexcept {
    if (AnnotateIgnoreWritesBegin != nullptr) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~OrderedByKernel() {
    if (AnnotateIgnoreWritesEnd != nullptr) AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  }
  OrderedByKernel(const OrderedByKernel&) = delete;
  OrderedByKernel& operator=(const OrderedByKernel&) = delete;
};

}  // namespace vedette
