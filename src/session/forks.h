// Children of fork(). A child has no arena (MADV_DONTFORK) and none of the threads that serve it, so a session works
// only in the process that opened it. In a child its calls do nothing or return an error. A child that touches guarded
// memory ends with a sentence.
//
// Thread rule: any thread.
#pragma once
#include <cstdint>

#include "vedette/result.h"

namespace vedette::detail {

// Counts forks from the first call on, and has each child end with a sentence where it touches a parent's arena.
// Error: no memory for another fork handler.
Result<void> watch_forks();

// In a child whose program has set a handler of SIGSEGV of its own: the sentence comes before that. In the process that
// called watch_forks() first it does nothing.
void come_first_in_child() noexcept;

// The forks that lie between the process that called watch_forks() first and this one. Relaxed: a child has one thread
// when the number changes.
std::uint64_t forks() noexcept;

}  // namespace vedette::detail
