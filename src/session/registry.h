// Which session an address belongs to: tensors outlive the session that they were born in, so its arena stays until the
// last of them is gone. The addresses of one that has ended are given back when the next one opens. This is the
// library's only global, for the sake of libtorch's deleters, which get an address and nothing else.
#pragma once
#include <memory>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::detail {

class SessionCore;

SessionCore* owner_of(const void* memory) noexcept;                        // nullptr: of no session; lock free
bool session_is_open() noexcept;                                           // in this process
Result<SessionCore*> register_session(std::unique_ptr<SessionCore> core);  // fails while another one is open
// A forked child has none of the threads that may have had the registry's lock.
void registry_in_child() noexcept;
void close_session(SessionCore* core) noexcept;  // its arena goes on paging while tensors live
// Fast memory that tensors of closed sessions may take from now on: no more than `most`, where they can leave. Waits.
struct KeptByClosed {
  Bytes now;
  Bytes at_most;  // as they are, had their sessions and the next one a larger budget
};
KeptByClosed shrink_closed_sessions(Bytes most) noexcept;

}  // namespace vedette::detail
