// What the functions of libcudart.so.13 share.
#pragma once
#include <cuda_runtime_api.h>

#include "simulated_gpu/entry.h"
#include "simulated_gpu/graphs.h"
#include "simulated_gpu/streams.h"

namespace vedette::simulated {

cudaError_t note(int error);  // of the driver; kept for cudaGetLastError
// The runtime makes the primary context current in every thread that calls it.
int enter_runtime(const char* call, bool waits = false);

inline cuda::StreamHandle ours(cudaStream_t stream) { return reinterpret_cast<cuda::StreamHandle>(stream); }
inline cuda::EventHandle ours(cudaEvent_t event) { return reinterpret_cast<cuda::EventHandle>(event); }
inline GraphHandle ours(cudaGraph_t graph) { return reinterpret_cast<GraphHandle>(graph); }

}  // namespace vedette::simulated

#define RUNTIME_CALL SIMULATED_EXPORT cudaError_t
// NOLINTNEXTLINE: the one shape of every function of the runtime
#define ENTER(call) \
  if (const int error = vedette::simulated::enter_runtime(call); error != 0) return vedette::simulated::note(error)
#define ENTER_WAITING(call)                                                        \
  if (const int error = vedette::simulated::enter_runtime(call, true); error != 0) \
  return vedette::simulated::note(error)
