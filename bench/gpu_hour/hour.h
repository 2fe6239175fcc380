// What gpu_hour finds in the shared object that holds its part with CUDA and libtorch.
#pragma once
#include "gpu_probe/groups.h"

namespace vedette::gpu {

// A model and how it is computed, as it is named on the command line.
struct HourModel {
  const char* name;
  const char* model;  // of gpu_probe/torch_training.h
  bool bf16 = false, fused_attention = false;
};

inline constexpr HourModel hour_models[] = {
    {"mlp", "mlp"},
    {"resnet50", "resnet50"},
    {"gpt2", "gpt2"},
    {"gpt_large_bf16", "gpt_large", true, true},
    {"gpt_large_fp32", "gpt_large", false, true},
};

// What of the steps a call measures.
enum class HourStep { train, outside, announce, move };

}  // namespace vedette::gpu

// `model` is not used for announce and move. Throws Refused, and what libtorch throws.
using GpuHourMeasure = void (*)(const vedette::gpu::ProbeOptions&, vedette::gpu::Recorder&, vedette::gpu::HourStep,
                                const vedette::gpu::HourModel& model);

constexpr const char* gpu_hour_file = "libgpu_hour_cuda.so";  // beside the program
constexpr const char* gpu_hour_function = "gpu_hour_measure";
