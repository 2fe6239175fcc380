// Options of a second guard in a process, which shares the first one's session: see vedette/torch.h.
//
// Thread rule: functions of their arguments.
#pragma once
#include "vedette/session.h"

namespace vedette::detail {

// The first option whose value is neither the default nor that of `first`, by name; nullptr: there is none.
// fast_memory, messages and what only a guard looks at (enabled, verbose) are not compared.
const char* differing_option(const SessionOptions& first, const SessionOptions& other);

}  // namespace vedette::detail
