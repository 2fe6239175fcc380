// Counts what a thread allocates by operator new, which this file replaces: for one source file of a program. The
// simulated driver's own allocations are left out.
#pragma once
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace vedette::testing {
inline thread_local bool counts_allocations = false;  // this thread's
inline unsigned allocations = 0;                      // that were counted

inline bool is_of_the_driver(const void* caller) {  // the simulated one's
  Dl_info found{};
  return ::dladdr(caller, &found) != 0 && std::strstr(found.dli_fname, "libcuda") != nullptr;
}

inline void* counted(std::size_t bytes, const void* caller) noexcept {
  if (counts_allocations && !is_of_the_driver(caller)) ++allocations;
  return std::malloc(bytes);
}
}  // namespace vedette::testing

// Not inlined: the compiler would find malloc's memory given to delete.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (void* const memory = vedette::testing::counted(bytes, __builtin_return_address(0))) return memory;
  throw std::bad_alloc();
}
// A sanitizer has one of its own, which does not call the one above.
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return vedette::testing::counted(bytes, __builtin_return_address(0));
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
