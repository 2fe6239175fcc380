// What the measurements with libtorch use of CUDA's runtime: errors as refusals, and marks, which are events without
// times.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu_probe/library.h"

namespace vedette::gpu {

inline void cuda_ok(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Refused(std::string(cudaGetErrorName(error)) + " (" + what + ")");
}

using Mark = std::shared_ptr<CUevent_st>;  // recorded once; goes back to its pool when no piece waits for it any more

// Thread rule: the caller's lock, also while marks die.
class MarkPool {
 public:
  MarkPool() = default;
  MarkPool(const MarkPool&) = delete;
  MarkPool& operator=(const MarkPool&) = delete;
  ~MarkPool() {
    for (const cudaEvent_t event : *idle_) cudaEventDestroy(event);
  }
  Mark record(cudaStream_t stream) {
    cudaEvent_t event{};
    if (idle_->empty()) {
      cuda_ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    } else {
      event = idle_->back();
      idle_->pop_back();
    }
    Mark mark(event, [idle = idle_](cudaEvent_t done) { idle->push_back(done); });
    cuda_ok(cudaEventRecord(event, stream), "cudaEventRecord");
    return mark;
  }

 private:
  std::shared_ptr<std::vector<cudaEvent_t>> idle_ = std::make_shared<std::vector<cudaEvent_t>>();
};

inline void wait_for(cudaStream_t stream, const Mark& mark) {
  if (mark) cuda_ok(cudaStreamWaitEvent(stream, mark.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace vedette::gpu
