// The measurements with libtorch, by step: see main.cc. Thread rule: the program's one thread.
#pragma once
#include <c10/cuda/CUDAStream.h>

#include "gpu_hour/facade.h"
#include "gpu_hour/hour.h"
#include "gpu_probe/torch_training.h"

namespace vedette::gpu {

void measure_training(const ProbeOptions&, Recorder&, const HourModel&);
void measure_outside(Recorder&, const HourModel&);
void measure_announcement(Recorder&);
void measure_move(Recorder&);

inline TrainingOptions training_of(const HourModel& model, bool small) {
  return {.model = model.model,
          .device = "cuda",
          .small = small,
          .bf16 = model.bf16 && !small,  // rehearsals run on the processor's kernels
          .fused_attention = model.fused_attention && !small};
}

inline cudaStream_t compute_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

}  // namespace vedette::gpu
