// Workspaces of cuBLAS and cuBLASLt: device memory that libtorch takes from its allocator once for each thread and
// stream, and keeps; since 2.15 for each product, unless TORCH_CUBLAS_WORKSPACE_CACHE is 1. On a GPU the kernels of a
// matrix product write there; so they do here. blas.cc counts what they wrote.
#pragma once
#include <c10/core/Allocator.h>

#include <vector>

#include "simulated_gpu/streams.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace vedette::simulated {

struct Workspaces {
  std::vector<Access> accesses;
  c10::DataPtr held;  // of this operator alone: freed when it is queued, as libtorch frees it
};

// What the operator's kernels use beside its tensors, on the calling thread's current stream. Makes what is missing.
Workspaces workspaces_of(const c10::OperatorHandle& op);
void write_into(const std::vector<Access>& workspaces);  // by a kernel

// With `sums_vary` of options.h: makes a product's result another one in a last bit.
void vary(const c10::OperatorHandle& op, const c10::IValue& result);

}  // namespace vedette::simulated
