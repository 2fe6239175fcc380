// Memory of a context, which comes and goes with every operator: that of a thread's last one of a type is kept for its
// next. Thread rule: each thread for itself.
#pragma once
#include <cstddef>
#include <new>
#include <utility>

namespace vedette::adapter {

template <class Context>
struct Kept {
  static void* operator new(std::size_t bytes) {
    return spare.memory != nullptr ? std::exchange(spare.memory, nullptr) : ::operator new(bytes);
  }
  static void operator delete(void* memory) noexcept {
    spare.memory != nullptr ? ::operator delete(memory) : static_cast<void>(spare.memory = memory);
  }

 private:
  struct Spare {
    ~Spare() { ::operator delete(std::exchange(memory, nullptr)); }
    void* memory = nullptr;
  };
  static inline thread_local Spare spare;
};

}  // namespace vedette::adapter
