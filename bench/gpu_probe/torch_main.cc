// Point 5 of bench/gpu_hour/README.md: training by libtorch with every allocation from a range of our own, and what a
// tick of the program's clock costs. Point 10: bytes beside libtorch's allocator. What needs CUDA is a shared object
// beside this program, loaded where a driver is. Without one the program says so and trains small models on the
// processor, which shows that it works as far as it can.
#include <dlfcn.h>

#include <filesystem>

#include "gpu_probe/device.h"
#include "gpu_probe/program.h"
#include "gpu_probe/torch_cuda.h"
#include "gpu_probe/torch_training.h"

namespace vedette::gpu {
namespace {

constexpr int steps = 10;

void measure_on_processor(const ProbeOptions&, Recorder& recorder) {
  for (const char* model : {"resnet50", "gpt2"}) {
    for (const bool ticked : {false, true}) {
      recorder.measure(5, "processor",
                       {{"model", std::string(model) + ", small"}, {"each_operator", ticked ? "tick" : "nothing"}},
                       {{"step", "ms"}, {"first_loss", ""}, {"last_loss", ""}, {"ticks_a_step", ""}}, [&](Cell& cell) {
                         const auto training = make_training({.model = model, .device = "cpu", .small = true});
                         std::unique_ptr<Ticks> ticks;
                         if (ticked) ticks = std::make_unique<Ticks>([] {});
                         const std::uint64_t before = Ticks::count();
                         cell.fact("first_loss", training->step());
                         for (int i = 1; i < steps; ++i) {
                           const double begin = now_us();
                           cell.fact("last_loss", training->step());
                           cell.sample("step", (now_us() - begin) * 1e-3);
                         }
                         cell.fact("ticks_a_step", (Ticks::count() - before) / steps);
                       });
    }
  }
}

constexpr ProbeModel models[] = {
    {"resnet50", "resnet50"},
    {"gpt2", "gpt2"},
    {"mlp", "mlp"},
    {"gpt_large_bf16", "gpt_large", true, true},
    {"gpt_large_fp32", "gpt_large", false, true},
};

template <TorchPoint point, std::size_t model>
void measure_on_device(const ProbeOptions& options, Recorder& recorder) {
  { const Driver there(options.driver); }
  const auto file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / gpu_probe_torch_file;
  if (!std::filesystem::exists(file))
    throw Refused("built without CUDA's headers: " + file.filename().string() + " is missing");
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Refused(::dlerror());
  const auto measure = reinterpret_cast<GpuProbeTorchMeasure>(::dlsym(library, gpu_probe_torch_function));
  if (measure == nullptr) throw Refused(::dlerror());
  measure(options, recorder, models[model], point);
}

std::vector<Group> torch_groups() {
  constexpr auto plain = TorchPoint::plain, in_range = TorchPoint::in_range, outside = TorchPoint::outside;
  return {
      {"processor", 5, 60, "small models on the processor, with and without ticks", measure_on_processor},
      {"resnet50_range", 5, 120, "ResNet-50 on the device, all memory in a range of our own",
       measure_on_device<in_range, 0>},
      {"gpt2_range", 5, 120, "a decoder like GPT-2, the same", measure_on_device<in_range, 1>},
      {"resnet50", 5, 120, "ResNet-50, plain, and with ticks", measure_on_device<plain, 0>},
      {"gpt2", 5, 120, "a decoder like GPT-2, the same", measure_on_device<plain, 1>},
      {"outside_mlp", 10, 30, "bytes beside libtorch's allocator", measure_on_device<outside, 2>},
      {"outside_resnet50", 10, 30, "the same, ResNet-50", measure_on_device<outside, 0>},
      {"outside_gpt2", 10, 30, "the same, GPT-2, attention written out", measure_on_device<outside, 1>},
      {"outside_gpt_large_bf16", 10, 30, "the same, bf16, attention fused", measure_on_device<outside, 3>},
      {"outside_gpt_large_fp32", 10, 30, "the same, fp32, attention fused", measure_on_device<outside, 4>},
  };
}

}  // namespace
}  // namespace vedette::gpu

int main(int count, char** words) {
  return vedette::gpu::run_program("Trains by libtorch with all memory from one range", vedette::gpu::torch_groups(),
                                   count, words);
}
