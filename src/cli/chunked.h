// A step as a session lays it into chunks, for a simulator: temporaries co-allocated, persistent tensors end to end,
// and chunks with one history as one tensor. Pure; any thread.
#pragma once
#include "vedette/model.h"

namespace vedette::cli {

Trace in_chunks(const Trace& trace, Bytes chunk);

}  // namespace vedette::cli
