// Points 5 and 10, the part that needs CUDA: a shared object that gpu_probe_torch loads once it has seen a driver. Only
// headers of CUDA are needed to compile it; libtorch_cuda.so and libc10_cuda.so are found when it is loaded.
//
// Every allocation comes from a range of our own: a MemPool whose allocator is RangeAllocator, for every stream of the
// device, so that backward's device threads are meant to get there, too. An observer of libtorch's caching allocator
// says what did.
#include "gpu_probe/torch_cuda.h"

#include <ATen/Context.h>
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>

#include "gpu_probe/range_allocator.h"
#include "gpu_probe/torch_training.h"

namespace vedette::gpu {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr int steps = 20, warm_up = 5;                      // warm-up steps are left out of the times
constexpr std::size_t range_bytes = std::size_t{64} << 30;  // of addresses

struct Seen {  // by the observer, which may run in any thread
  std::atomic<std::uint64_t> inside{0}, inside_bytes{0}, outside{0}, outside_bytes{0}, by_other_threads{0},
      outside_by_other_threads{0};
};

// For ever: libtorch frees through them after main() has ended.
RangeAllocator* allocator = nullptr;
Seen* seen = nullptr;
std::thread::id main_thread;

void observe(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  if (entry.action_ != c10::CachingDeviceAllocator::TraceEntry::ALLOC) return;
  const bool inside = allocator != nullptr && allocator->holds(entry.addr_);
  const bool other = std::this_thread::get_id() != main_thread;
  (inside ? seen->inside : seen->outside) += 1;
  (inside ? seen->inside_bytes : seen->outside_bytes) += entry.size_;
  if (other) seen->by_other_threads += 1;
  if (other && !inside) seen->outside_by_other_threads += 1;
}

struct Run {
  std::vector<float> losses;
  std::vector<double> step_ms;
};

Run train(const std::string& model) {
  const auto training = make_training({.model = model, .device = "cuda"});
  Run run;
  for (int i = 0; i < steps; ++i) {
    const double begin = now_us();
    run.losses.push_back(training->step());
    c10::cuda::device_synchronize();
    if (i >= warm_up) run.step_ms.push_back((now_us() - begin) * 1e-3);
  }
  return run;
}

void sample_steps(const Run& run, Cell& cell) {
  for (const double ms : run.step_ms) cell.sample("step", ms);
}

void tell_equal(const std::vector<float>& plain, const std::vector<float>& ours, Cell& cell) {
  double most = 0;
  for (std::size_t i = 0; i < plain.size() && i < ours.size(); ++i)
    most = std::max(most, static_cast<double>(std::abs(plain[i] - ours[i])));
  cell.fact("losses_equal", plain == ours);
  cell.fact("largest_difference", most);
  cell.fact("last_loss", ours.back());
}

// Trains with all of the device's allocations routed to the pool.
Run train_in_range(const Gpu& gpu, const std::string& model, Cell& cell) {
  allocator = new RangeAllocator(gpu, range_bytes);
  const std::size_t free_before = gpu.free_bytes();
  const auto custom = torch::cuda::CUDAPluggableAllocator::createCustomAllocator(
      [](std::size_t bytes, int, cudaStream_t) { return allocator->allocate(bytes); },
      [](void* memory, std::size_t, int, cudaStream_t) { allocator->free(memory); });
  auto* const pool = new at::cuda::MemPool(custom);
  caching::beginAllocateToPool(0, pool->id(), [](cudaStream_t) { return true; });
  Run run;
  try {
    run = train(model);
  } catch (const std::exception& error) {
    caching::endAllocateToPool(0, pool->id());
    const std::string ours = allocator->last_refusal();
    throw Refused(std::string(error.what()).substr(0, 300) + (ours.empty() ? "" : "; our allocator: " + ours));
  }
  caching::endAllocateToPool(0, pool->id());
  const RangeAllocator::Counts counts = allocator->counts();
  const std::size_t used = free_before - std::min(free_before, gpu.free_bytes());
  cell.fact("range_most_bytes", counts.most_bytes);
  cell.fact("segments", counts.allocations);
  cell.fact("segments_by_other_threads", counts.by_other_threads);
  cell.fact("allocator_ms", counts.milliseconds);
  // cuDNN, cuBLAS, modules: what bypasses libtorch's allocator
  cell.fact("used_beside_range_bytes", used - std::min(used, counts.bytes));
  return run;
}

void tell_seen(Cell& cell) {
  cell.fact("allocations_inside", seen->inside.load());
  cell.fact("bytes_inside", seen->inside_bytes.load());
  cell.fact("allocations_outside", seen->outside.load());
  cell.fact("bytes_outside", seen->outside_bytes.load());
  cell.fact("by_backward_threads", seen->by_other_threads.load());
  cell.fact("outside_by_backward_threads", seen->outside_by_other_threads.load());
}

// An event an operator, of the driver's own, on the stream that is current in the operator's thread.
void measure_ticks(const Gpu& gpu, const std::string& model, const char* what, Cell& cell) {
  constexpr std::size_t event_count = 4096;  // used round and round
  std::vector<std::unique_ptr<Event>> events;
  for (std::size_t i = 0; i < event_count; ++i) events.push_back(std::make_unique<Event>(gpu));
  std::atomic<std::size_t> next{0};
  const std::string kind = what;
  const auto record = [&] {
    const EventHandle event = events[next.fetch_add(1, std::memory_order_relaxed) % event_count]->get();
    gpu.cuda.event_record.error(event, reinterpret_cast<StreamHandle>(c10::cuda::getCurrentCUDAStream().stream()));
  };
  const std::uint64_t before = Ticks::count();
  std::optional<Ticks> ticks;
  if (kind == "tick") ticks.emplace([] {});
  if (kind == "tick and event") ticks.emplace(record);
  const Run run = train(model);
  sample_steps(run, cell);
  cell.fact("ticks_a_step", (Ticks::count() - before) / static_cast<std::uint64_t>(steps));
}

void prepare() {
  main_thread = std::this_thread::get_id();
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

void measure_plain(const Gpu& gpu, Recorder& recorder, const std::string& model) {
  const Json setting{{"model", model}, {"steps", steps}};
  recorder.measure(5, "plain", setting, {{"step", "ms"}, {"last_loss", ""}}, [&](Cell& cell) {
    const Run run = train(model);
    sample_steps(run, cell);
    cell.fact("last_loss", run.losses.back());
  });
  for (const char* what : {"nothing", "tick", "tick and event"}) {
    Json ticked = setting;
    ticked["each_operator"] = what;
    recorder.measure(5, "ticks", ticked, {{"step", "ms"}, {"ticks_a_step", ""}},
                     [&](Cell& cell) { measure_ticks(gpu, model, what, cell); });
  }
}

// In a process of its own, and before a plain run: what cuDNN and cuBLAS take for themselves, they take at their first
// use.
void measure_in_range(const Gpu& gpu, Recorder& recorder, const std::string& model) {
  seen = new Seen;
  recorder.measure(5, "own_range", {{"model", model}, {"steps", steps}},
                   {{"step", "ms"},
                    {"losses_equal"},
                    {"largest_difference"},
                    {"last_loss"},
                    {"range_most_bytes"},
                    {"segments"},
                    {"segments_by_other_threads"},
                    {"allocator_ms"},
                    {"used_beside_range_bytes"},
                    {"allocations_inside"},
                    {"bytes_inside"},
                    {"allocations_outside"},
                    {"bytes_outside"},
                    {"by_backward_threads"},
                    {"outside_by_backward_threads"}},
                   [&](Cell& cell) {
                     caching::attachAllocatorTraceTracker(observe);
                     const Run run = train_in_range(gpu, model, cell);
                     tell_seen(cell);
                     sample_steps(run, cell);
                     tell_equal(train(model).losses, run.losses, cell);
                   });
}

std::size_t used_bytes() {
  c10::cuda::device_synchronize();
  const auto [free, all] = caching::get()->getMemoryInfo(0);
  return all - free;
}

// The context, modules, and what cuBLAS, cuDNN and attention take by themselves.
std::size_t beside_allocator() {
  const auto reserved = static_cast<std::size_t>(caching::get()->getDeviceStats(0).reserved_bytes[0].current);
  return used_bytes() - std::min(used_bytes(), reserved);
}

// In a process of its own, too. What the allocator holds when the training is gone is libraries'.
void measure_outside(Recorder& recorder, const ProbeModel& model) {
  recorder.measure(10, "outside", {{"model", model.name}},
                   {{"context_bytes"},
                    {"after_making_bytes"},
                    {"after_1_step_bytes"},
                    {"after_4_steps_bytes"},
                    {"left_in_allocator_bytes"}},
                   [&](Cell& cell) {
                     const bool small = recorder.quick();  // rehearsals run on the processor's kernels
                     cell.fact("context_bytes", beside_allocator());
                     auto training = make_training({.model = model.model,
                                                    .device = "cuda",
                                                    .small = small,
                                                    .bf16 = model.bf16 && !small,
                                                    .fused_attention = model.fused_attention && !small});
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

}  // namespace
}  // namespace vedette::gpu

extern "C" __attribute__((visibility("default"))) void gpu_probe_torch_measure(
    const vedette::gpu::ProbeOptions& options, vedette::gpu::Recorder& recorder, const vedette::gpu::ProbeModel& model,
    vedette::gpu::TorchPoint point) {
  static const vedette::gpu::Gpu gpu(options.driver);  // for ever, as libtorch's allocator
  vedette::gpu::prepare();
  switch (point) {
    case vedette::gpu::TorchPoint::plain:
      return vedette::gpu::measure_plain(gpu, recorder, model.model);
    case vedette::gpu::TorchPoint::in_range:
      return vedette::gpu::measure_in_range(gpu, recorder, model.model);
    case vedette::gpu::TorchPoint::outside:
      return vedette::gpu::measure_outside(recorder, model);
  }
}
