// Step 3: what an op's announcement and a move cost the host.
#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include "gpu_hour/measure.h"
#include "gpu_probe/device.h"

namespace vedette::gpu {
namespace {

constexpr int warm_up = 5;

struct Way {
  const char* name;
  Announced announced;
  bool placed = false;
};
constexpr Way ways[] = {
    {"nothing", Announced::nothing},
    {"begin", Announced::begin},
    {"begin_with_inputs", Announced::begin_with_inputs},
    {"inputs_and_outputs", Announced::inputs_and_outputs},
    {"placed", Announced::inputs_and_outputs, true},  // and what the executor does with it while all is resident
};

std::vector<Quantity> us_by_way() {
  std::vector<Quantity> quantities;
  for (const Way& way : ways) quantities.push_back({way.name, "us"});
  return quantities;
}

// Microseconds of the host an op, in turns: a decoder whose ops are too small for the device to hold the host up.
void measure_step(Recorder& recorder, Cell& cell) {
  Executor executor(
      {.budget = std::size_t{256} << 20, .least_bytes = std::size_t{1} << 10, .stream = compute_stream()});
  const TrainingOptions options{.model = "gpt2", .device = "cuda", .small = true};
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Way& way : ways) {
    const Announcements announced(way.announced, way.placed ? &executor : nullptr);
    trainings.push_back(make_training(options));
  }
  std::uint64_t ops = 0;
  for (int round = 0, all = warm_up + recorder.repetitions(60); round < all; ++round) {
    for (std::size_t i = 0; i < std::size(ways); ++i) {
      const Announcements announced(ways[i].announced, ways[i].placed ? &executor : nullptr);
      if (ways[i].placed) executor.begin_step();
      const std::uint64_t before = announced_ops();
      const double begin = now_us();
      trainings[i]->queue_step();
      const double us = now_us() - begin;
      if (ways[i].announced == Announced::begin) ops = announced_ops() - before;
      trainings[i]->loss();
      if (ways[i].placed) executor.end_step();
      if (round >= warm_up) cell.sample(ways[i].name, us / static_cast<double>(ops));
    }
  }
  cell.fact("ops", ops);
  const Announcements announced(Announced::inputs_and_outputs, &executor);
  trainings.clear();
}

void measure_add(Recorder& recorder, Cell& cell) {
  Executor executor({.budget = std::size_t{64} << 20, .least_bytes = 1, .stream = compute_stream()});
  constexpr int ops = 500;
  for (const Way& way : ways) {
    const Announcements announced(way.announced, way.placed ? &executor : nullptr);
    at::Tensor sum = at::zeros({1024}, at::TensorOptions().device(c10::kCUDA));
    for (int i = recorder.repetitions(30); i >= 0; --i) {
      cuda_ok(cudaStreamSynchronize(compute_stream()), "cudaStreamSynchronize");
      const double begin = now_us();
      for (int op = 0; op < ops; ++op) sum.add_(1);
      if (i < recorder.repetitions(30)) cell.sample(way.name, (now_us() - begin) / ops);
    }
  }
}

// A move as the executor makes it: wait for a mark of the compute stream, copy, mark, the compute stream waits.
void measure_moves(Recorder& recorder, std::size_t bytes, Cell& cell) {
  constexpr int moves = 40;  // queued before the host waits
  void *device = nullptr, *host = nullptr;
  cudaStream_t lane{};
  cuda_ok(cudaMalloc(&device, bytes), "cudaMalloc");
  cuda_ok(cudaHostAlloc(&host, bytes, 0), "cudaHostAlloc");
  cuda_ok(cudaStreamCreateWithPriority(&lane, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  MarkPool marks;
  for (int i = recorder.repetitions(30); i >= 0; --i) {
    for (int move = 0; move < moves; ++move) {
      const double begin = now_us();
      const Mark computed = marks.record(compute_stream());
      const double recorded = now_us();
      wait_for(lane, computed);
      const double waited = now_us();
      cuda_ok(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, lane), "cudaMemcpyAsync");
      const double copied = now_us();
      const Mark arrived = marks.record(lane);
      wait_for(compute_stream(), arrived);
      const double end = now_us();
      if (i == recorder.repetitions(30)) continue;
      cell.sample("record", recorded - begin);
      cell.sample("wait", waited - recorded);
      cell.sample("copy", copied - waited);
      cell.sample("move", end - begin);
    }
    cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  cuda_ok(cudaStreamDestroy(lane), "cudaStreamDestroy");
  cuda_ok(cudaFreeHost(host), "cudaFreeHost");
  cuda_ok(cudaFree(device), "cudaFree");
}

}  // namespace

void measure_announcement(Recorder& recorder) {
  auto quantities = us_by_way();
  recorder.measure(9, "announce", {{"op", "add_, 1024 numbers"}}, quantities,
                   [&](Cell& cell) { measure_add(recorder, cell); });
  quantities.push_back({"ops", ""});
  recorder.measure(9, "announce", {{"op", "all of a small decoder's step"}}, quantities,
                   [&](Cell& cell) { measure_step(recorder, cell); });
}

void measure_move(Recorder& recorder) {
  for (const std::size_t kib : {std::size_t{64}, std::size_t{2048}, std::size_t{32768}}) {
    recorder.measure(9, "move", {{"kib", kib}}, {{"record", "us"}, {"wait", "us"}, {"copy", "us"}, {"move", "us"}},
                     [&](Cell& cell) { measure_moves(recorder, kib << 10, cell); });
  }
}

}  // namespace vedette::gpu
