// Where the program enters the shared object: libtorch is told to be deterministic and exact, then the step is
// measured.
#include "gpu_hour/measure.h"

#include <ATen/Context.h>

#include <cstdlib>

extern "C" __attribute__((visibility("default"))) void gpu_hour_measure(const vedette::gpu::ProbeOptions& options,
                                                                        vedette::gpu::Recorder& recorder,
                                                                        vedette::gpu::HourStep step,
                                                                        const vedette::gpu::HourModel& model) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // before cuBLAS is loaded; without it its sums may differ
  at::Context& context = at::globalContext();
  context.lazyInitDevice(c10::DeviceType::CUDA);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);  // `plain_twice` tells whether an op is not
  context.setDeterministicFillUninitializedMemory(false);        // it would write all that is made empty
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
  vedette::gpu::install_facade();
  switch (step) {
    case vedette::gpu::HourStep::train:
      return vedette::gpu::measure_training(options, recorder, model);
    case vedette::gpu::HourStep::outside:
      return vedette::gpu::measure_outside(recorder, model);
    case vedette::gpu::HourStep::announce:
      return vedette::gpu::measure_announcement(recorder);
    case vedette::gpu::HourStep::move:
      return vedette::gpu::measure_move(recorder);
  }
}
