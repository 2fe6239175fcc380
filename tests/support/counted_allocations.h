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
}  // namespace vedette::testing

// Not inlined: the compiler would find malloc's memory given to delete.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (vedette::testing::counts_allocations && !vedette::testing::is_of_the_driver(__builtin_return_address(0)))
    ++vedette::testing::allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
