// Children of fork(). A child has no arena (MADV_DONTFORK) and none of the threads that serve it, so a session works
// only in the process that opened it (base/this_process.h). In a child its calls do nothing or return an error. A child
// that touches guarded memory ends with a sentence; one of clone(2), which runs no fork handlers, by SIGSEGV.
//
// Thread rule: any thread.
#pragma once
#include "vedette/result.h"

namespace vedette::detail {

// From the first call on each child ends with a sentence where it touches a parent's arena. Error: no memory for
// another fork handler.
Result<void> watch_forks();

// In a child whose program has set a handler of SIGSEGV of its own: the sentence comes before that. In the process that
// called watch_forks() first it does nothing.
void come_first_in_child() noexcept;

}  // namespace vedette::detail
