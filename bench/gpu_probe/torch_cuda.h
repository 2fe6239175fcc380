// What gpu_probe_torch finds in the shared object with its CUDA part.
#pragma once
#include "gpu_probe/groups.h"

// Measures point 5 with "resnet50" or "gpt2": plain and with ticks, or with all memory in a range of our own. Throws
// Refused, and what libtorch throws.
using GpuProbeTorchMeasure = void (*)(const vedette::gpu::ProbeOptions&, vedette::gpu::Recorder&,
                                      const std::string& model, bool in_range);

constexpr const char* gpu_probe_torch_file = "libgpu_probe_torch_cuda.so";  // beside the program
constexpr const char* gpu_probe_torch_function = "gpu_probe_torch_measure";
