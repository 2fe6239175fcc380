// Step 4: bytes of the device that a training uses beside libtorch's allocator, and what that allocator holds when the
// training is gone. Beside it lie the context, modules, and what cuBLAS, cuDNN and attention take by themselves.
#include "gpu_hour/measure.h"

namespace vedette::gpu {
namespace {

std::size_t used_bytes() {
  std::size_t free = 0, all = 0;
  cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cuda_ok(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return all - free;
}

std::size_t beside_allocator() {
  const auto reserved = static_cast<std::size_t>(caching::get()->getDeviceStats(0).reserved_bytes[0].current);
  return used_bytes() - std::min(used_bytes(), reserved);
}

}  // namespace

void measure_outside(Recorder& recorder, const HourModel& model) {
  recorder.measure(10, "outside", {{"model", model.name}},
                   {{"context_bytes"},
                    {"after_making_bytes"},
                    {"after_1_step_bytes"},
                    {"after_4_steps_bytes"},
                    {"left_in_allocator_bytes"}},
                   [&](Cell& cell) {
                     cell.fact("context_bytes", beside_allocator());
                     auto training = make_training(training_of(model, recorder.quick()));
                     cell.fact("after_making_bytes", beside_allocator());
                     training->step();
                     cell.fact("after_1_step_bytes", beside_allocator());
                     for (int i = 0; i < 3; ++i) training->step();
                     cell.fact("after_4_steps_bytes", beside_allocator());
                     training.reset();
                     caching::get()->emptyCache({0, 0});
                     cell.fact("left_in_allocator_bytes", caching::get()->getDeviceStats(0).allocated_bytes[0].current);
                   });
}

}  // namespace vedette::gpu
