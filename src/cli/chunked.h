// A step as a session lays it into chunks, for a simulator: temporaries co-allocated, persistent tensors end to end,
// and chunks with one history as one tensor. Pure; any thread.
#pragma once
#include "vedette/model.h"

namespace vedette::cli {

// With `recompute` each op says whether it can run again. A recording does not tell what a session would find when it
// tries: here all do whose names are not of random operators; batch normalisation does, as in a session.
Trace in_chunks(const Trace& trace, Bytes chunk, bool recompute = false);

}  // namespace vedette::cli
