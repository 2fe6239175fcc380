// Work on a stream of our own that is late on purpose, for the question whether libtorch's stream waits for it: see
// behaviour_gpu.h.
#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <thread>

#include "adapter/torch/cuda_facade.h"

namespace vedette::adapter {
namespace {

struct Work {
  std::chrono::microseconds lead;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ~Work() {
    if (stream != nullptr) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    if (event != nullptr) cudaEventDestroy(event);
  }
};

// On a thread of the driver's, which calls nothing of CUDA's.
void be_late(void* work) { std::this_thread::sleep_for(static_cast<const Work*>(work)->lead); }

}  // namespace

void* begin_late_fill(void* memory, std::size_t bytes, void* behind, std::chrono::microseconds lead) {
  auto work = std::make_unique<Work>(Work{.lead = lead});
  auto* const waits = static_cast<cudaStream_t>(behind);
  constexpr int early = CudaPart::late_byte - 1;
  const auto all_succeed = [](auto... calls) { return ((calls() == cudaSuccess) && ...); };
  // Work that the stream has queued may use the memory, which libtorch's allocator has given away anew.
  const bool queued = all_succeed(
      [&] { return cudaStreamCreateWithFlags(&work->stream, cudaStreamNonBlocking); },
      [&] { return cudaEventCreateWithFlags(&work->event, cudaEventDisableTiming); },
      [&] { return cudaEventRecord(work->event, waits); },
      [&] { return cudaStreamWaitEvent(work->stream, work->event, 0); },
      [&] { return cudaMemsetAsync(memory, early, bytes, work->stream); },
      [&] { return cudaStreamSynchronize(work->stream); },  // the memory may have late_byte of an earlier question
      [&] { return cudaLaunchHostFunc(work->stream, &be_late, work.get()); },
      [&] { return cudaMemsetAsync(memory, CudaPart::late_byte, bytes, work->stream); },
      [&] { return cudaEventRecord(work->event, work->stream); },
      [&] { return cudaStreamWaitEvent(waits, work->event, 0); });
  if (queued) return work.release();
  cudaGetLastError();  // else libtorch's next call would report it
  return nullptr;
}

void end_late_fill(void* work) { delete static_cast<Work*>(work); }

}  // namespace vedette::adapter
