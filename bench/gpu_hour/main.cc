// Steps 2, 3 and 4 of the first hour on a GPU (docs/gpu-facts.md). Step 2 trains by a placed executor inside a budget
// against plain libtorch, bit by bit and in time and energy. Step 3 measures what an op's announcement and a move cost
// the host, step 4 which bytes lie beside libtorch's allocator. What needs CUDA and libtorch is a shared object beside
// this program.
#include <dlfcn.h>

#include <filesystem>

#include "gpu_hour/hour.h"
#include "gpu_probe/driver.h"
#include "gpu_probe/program.h"

namespace vedette::gpu {
namespace {

template <HourStep step, std::size_t model>
void measure(const ProbeOptions& options, Recorder& recorder) {
  { const Driver there(options.driver); }
  const auto file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / gpu_hour_file;
  if (!std::filesystem::exists(file))
    throw Refused("built without CUDA's headers: " + file.filename().string() + " is missing");
  void* const library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) throw Refused(::dlerror());
  const auto function = reinterpret_cast<GpuHourMeasure>(::dlsym(library, gpu_hour_function));
  if (function == nullptr) throw Refused(::dlerror());
  function(options, recorder, step, hour_models[model]);
}

std::vector<Group> hour_groups() {
  return {
      {"move", 9, 30, "host time of a copy and its events", measure<HourStep::move, 0>},
      {"announce", 9, 40, "host time of an op's announcement", measure<HourStep::announce, 0>},
      {"outside_mlp", 10, 30, "bytes beside libtorch's allocator", measure<HourStep::outside, 0>},
      {"outside_resnet50", 10, 30, "the same, ResNet-50", measure<HourStep::outside, 1>},
      {"outside_gpt2", 10, 30, "the same, GPT-2, attention written out", measure<HourStep::outside, 2>},
      {"outside_gpt_large_bf16", 10, 30, "the same, bf16, attention fused", measure<HourStep::outside, 3>},
      {"outside_gpt_large_fp32", 10, 30, "the same, fp32, attention fused", measure<HourStep::outside, 4>},
      {"train_gpt_large_bf16", 8, 90, "placed executor, 406 M parameters, bf16", measure<HourStep::train, 3>},
      {"train_gpt2", 8, 60, "placed executor, GPT-2", measure<HourStep::train, 2>},
      {"train_mlp", 8, 60, "placed executor, perceptron", measure<HourStep::train, 0>},
      {"train_resnet50", 8, 60, "placed executor, ResNet-50", measure<HourStep::train, 1>},
      {"train_gpt_large_fp32", 8, 90, "placed executor, 406 M parameters, fp32", measure<HourStep::train, 4>},
  };
}

}  // namespace
}  // namespace vedette::gpu

int main(int count, char** words) {
  return vedette::gpu::run_program("Trains by a placed executor inside a budget of device memory",
                                   vedette::gpu::hour_groups(), count, words);
}
