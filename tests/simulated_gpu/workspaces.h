// Workspaces of cuBLAS and cuBLASLt: device memory that libtorch takes from its allocator once for each thread and
// stream, and keeps. On a GPU the kernels of a matrix product write there; so they do here.
#pragma once
#include <vector>

#include "simulated_gpu/streams.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace vedette::simulated {

// What the operator's kernels use beside its tensors, on the calling thread's current stream. Makes what is missing.
std::vector<Access> workspaces_of(const c10::OperatorHandle& op);

// With `sums_vary` of options.h: makes a product's result another one in a last bit.
void vary(const c10::OperatorHandle& op, const c10::IValue& result);

}  // namespace vedette::simulated
