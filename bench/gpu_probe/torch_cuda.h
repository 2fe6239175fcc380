// What gpu_probe_torch finds in the shared object with its CUDA part.
#pragma once
#include "gpu_probe/groups.h"

namespace vedette::gpu {

// A model, and how it is computed.
struct ProbeModel {
  const char* name;
  const char* model;  // of gpu_probe/torch_training.h
  bool bf16 = false, fused_attention = false;
};

// Point 5: plain and with ticks, or with all memory in a range of our own. Point 10: which bytes lie beside libtorch's
// allocator.
enum class TorchPoint { plain, in_range, outside };

}  // namespace vedette::gpu

// Throws Refused, and what libtorch throws.
using GpuProbeTorchMeasure = void (*)(const vedette::gpu::ProbeOptions&, vedette::gpu::Recorder&,
                                      const vedette::gpu::ProbeModel& model, vedette::gpu::TorchPoint point);

constexpr const char* gpu_probe_torch_file = "libgpu_probe_torch_cuda.so";  // beside the program
constexpr const char* gpu_probe_torch_function = "gpu_probe_torch_measure";
