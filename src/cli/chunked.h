// A step as a session lays it into chunks, for a simulator: temporaries co-allocated, persistent tensors end to end,
// and chunks with one history as one tensor. Pure; any thread.
#pragma once
#include <string_view>

#include "vedette/model.h"

namespace vedette::cli {

// Chunks are the machine's granules. Large persistent tensors are cut as the policy wants it; one that is not known
// here gets them whole. Where the machine can recompute, each op says whether it can run again. A recording does not
// tell what a session would find when it tries: here all do whose names are not of random operators; batch
// normalisation does, as in a session.
Trace in_chunks(const Trace& trace, const Machine& machine, std::string_view policy);

}  // namespace vedette::cli
