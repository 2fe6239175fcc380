// Fast memory that a session shares with other programs: SessionOptions::share.
//
// Thread rule: functions of their arguments.
#pragma once
#include <memory>

#include "session/lease.h"
#include "vedette/result.h"
#include "vedette/session.h"

namespace vedette::detail {

// Waits for the first turn; options.fast_memory is then what the session may fill. nullptr: it is not shared, or no
// daemon is there. Errors: those of Lease::ask() and runtime_socket().
Result<std::unique_ptr<Lease>> lease_for(SessionOptions& options);

// Of a session that wants `most` at most, whose ops need `smallest` and whose tensors fill `peak` at once; 0: not known
// yet.
Needs needs_of(Bytes chunk, Bytes most, Bytes smallest, Bytes peak);

}  // namespace vedette::detail
