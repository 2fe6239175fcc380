// Workspaces of cuBLAS and cuBLASLt: device memory that libtorch takes from its allocator once for each thread and
// stream, and keeps. On a GPU the kernels of a matrix product write there; so they do here.
#pragma once
#include <vector>

#include "simulated_gpu/streams.h"

namespace c10 {
class OperatorHandle;
}

namespace vedette::simulated {

// What the operator's kernels use beside its tensors, on the calling thread's current stream. Makes what is missing.
std::vector<Access> workspaces_of(const c10::OperatorHandle& op);

}  // namespace vedette::simulated
