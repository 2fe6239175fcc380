// Step 2: training inside 100, 50 and 30 % of a step's peak by the placed executor, in turns with plain libtorch.
// Losses and parameters are compared bit by bit; the times of both, what was moved, and the energy of a step are
// measured.
#include <optional>

#include "gpu_hour/measure.h"
#include "gpu_probe/device.h"
#include "gpu_probe/nvml.h"

namespace vedette::gpu {
namespace {

constexpr int warm_up = 6;  // steps; the executor records its third
constexpr int rounds = 4;   // of plain steps and placed ones in turns

struct Timed {
  std::vector<double> ms, host_ms;
  std::vector<float> losses;
};

void plain_step(Training& training, Timed& timed) {
  const double begin = now_us();
  training.queue_step();
  const double queued = now_us();
  timed.losses.push_back(training.loss());
  timed.ms.push_back((now_us() - begin) * 1e-3);
  timed.host_ms.push_back((queued - begin) * 1e-3);
}

// A training whose large storages are the executor's.
class Placed {
 public:
  Placed(const TrainingOptions& options, const Executor::Options& memory) : executor_(memory) {
    const Announcements announced(Announced::inputs_and_outputs, &executor_);
    training_ = make_training(options);
  }
  ~Placed() {
    const Announcements announced(Announced::inputs_and_outputs, &executor_);
    training_.reset();
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  void steps(int count) {
    const Announcements announced(Announced::inputs_and_outputs, &executor_);
    for (int i = 0; i < count; ++i) {
      executor_.begin_step();
      plain_step(*training_, timed);
      executor_.end_step();
    }
  }
  std::vector<std::byte> parameter_bytes() {
    const Announcements announced(Announced::inputs_and_outputs, &executor_);
    return training_->parameter_bytes();
  }
  ExecutorCounts counts() const { return executor_.counts(); }

  Timed timed;

 private:
  Executor executor_;
  std::unique_ptr<Training> training_;
};

std::size_t free_bytes() {
  std::size_t free = 0, all = 0;
  cuda_ok(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return free;
}

class Measurement {
 public:
  Measurement(const ProbeOptions& options, Recorder& recorder, const HourModel& model)
      : options_(options), recorder_(recorder), model_(model), training_(training_of(model, recorder.quick())) {}

  void run() {
    // cuBLAS's workspaces, of this thread and of autograd's, are to be libtorch's own: it keeps them for ever.
    make_training(training_)->step();
    recorder_.measure(8, "peak", {{"model", model_.name}},
                      {{"placed_bytes"}, {"libtorch_bytes"}, {"most_workspace_bytes"}, {"small_bytes"}},
                      [&](Cell& cell) { tell_peak(cell); });
    recorder_.measure(8, "plain_twice", {{"model", model_.name}}, {{"losses_equal"}, {"parameters_equal"}},
                      [&](Cell& cell) { compare_plain(cell); });
    for (const int percent : {100, 50, 30}) {
      recorder_.measure(8, "placed", {{"model", model_.name}, {"percent_of_peak", percent}},
                        {{"plain", "ms"},
                         {"placed", "ms"},
                         {"plain_host", "ms"},
                         {"placed_host", "ms"},
                         {"plain_energy", "mJ"},
                         {"placed_energy", "mJ"},
                         {"losses_equal"},
                         {"parameters_equal"},
                         {"budget_bytes"},
                         {"a_step"},
                         {"pinned_bytes"},
                         {"steps_unlike_the_recorded"}},
                        [&, percent](Cell& cell) { compare_placed(percent, cell); });
    }
  }

 private:
  Executor::Options memory(std::size_t budget) const {
    return {.budget = budget,
            .least_bytes = recorder_.quick() ? std::size_t{4} << 10 : std::size_t{256} << 10,
            .grain = recorder_.quick() ? std::size_t{64} << 10 : 512,
            .stream = compute_stream()};
  }

  std::size_t peak() {
    if (peak_ != 0) return peak_;
    // Room for all, and for a plain training beside it.
    Placed placed(training_, memory(recorder_.quick() ? std::size_t{64} << 20 : free_bytes() / 2));
    placed.steps(4);
    const ExecutorCounts counts = placed.counts();
    workspace_ = counts.most_workspace_bytes;
    return peak_ = counts.most_bytes;
  }

  void tell_peak(Cell& cell) {
    const auto live = [](bool most) {
      const auto stats = caching::get()->getDeviceStats(0).allocated_bytes[0];
      return most ? stats.peak : stats.current;
    };
    caching::get()->resetPeakStats(0);
    const auto before = live(false);
    cell.fact("placed_bytes", peak());
    cell.fact("small_bytes", live(true) - before);
    cell.fact("most_workspace_bytes", workspace_);
    caching::get()->resetPeakStats(0);
    const auto training = make_training(training_);
    for (int i = 0; i < 4; ++i) training->step();
    cell.fact("libtorch_bytes", live(true) - before);
  }

  void compare_plain(Cell& cell) {
    std::vector<float> losses[2];
    std::vector<std::byte> bytes[2];
    for (const int i : {0, 1}) {
      const auto training = make_training(training_);
      for (int step = 0; step < warm_up; ++step) losses[i].push_back(training->step());
      bytes[i] = training->parameter_bytes();
    }
    cell.fact("losses_equal", losses[0] == losses[1]);
    cell.fact("parameters_equal", bytes[0] == bytes[1]);
  }

  void compare_placed(int percent, Cell& cell) {
    const std::size_t grain = std::size_t{recorder_.quick() ? 1u : 32u} << 16;
    const std::size_t budget = (peak() * static_cast<std::size_t>(percent) / 100 + grain - 1) / grain * grain;
    cell.fact("budget_bytes", budget);
    Placed placed(training_, memory(budget));
    const auto plain = make_training(training_);
    Timed timed;
    for (int i = 0; i < warm_up; ++i) plain_step(*plain, timed);
    placed.steps(warm_up);
    const int steps = recorder_.quick() ? 2 : std::clamp(static_cast<int>(600 / timed.ms.back()), 3, 30);
    const ExecutorCounts before = placed.counts();
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < steps; ++i) plain_step(*plain, timed);
      placed.steps(steps);
    }
    tell_times(timed, placed.timed, cell);
    tell_moves(before, placed.counts(), rounds * steps, cell);
    cell.fact("losses_equal", timed.losses == placed.timed.losses);
    cell.fact("parameters_equal", plain->parameter_bytes() == placed.parameter_bytes());
    tell_energy(*plain, placed, timed.ms.back(), cell);
  }

  static void tell_times(const Timed& plain, const Timed& placed, Cell& cell) {
    for (std::size_t i = warm_up; i < plain.ms.size(); ++i) {
      cell.sample("plain", plain.ms[i]);
      cell.sample("placed", placed.ms[i]);
      cell.sample("plain_host", plain.host_ms[i]);
      cell.sample("placed_host", placed.host_ms[i]);
    }
  }

  static void tell_moves(const ExecutorCounts& before, const ExecutorCounts& after, int steps, Cell& cell) {
    const auto n = static_cast<std::uint64_t>(steps);
    cell.fact("a_step", {{"out", (after.out - before.out) / n},
                         {"out_bytes", (after.out_bytes - before.out_bytes) / n},
                         {"in", (after.in - before.in) / n},
                         {"in_bytes", (after.in_bytes - before.in_bytes) / n},
                         {"left_without_copy", (after.clean - before.clean) / n},
                         {"fetched_ahead", (after.ahead - before.ahead) / n}});
    cell.fact("pinned_bytes", after.pinned_bytes);
    cell.fact("steps_unlike_the_recorded", after.other_steps);
  }

  // The counter changes some ten times a second: two seconds of steps make a sample.
  void tell_energy(Training& plain, Placed& placed, double step_ms, Cell& cell) {
    const Driver driver(options_.driver);
    const Nvml nvml(options_.energy);
    DeviceNumber device = 0;
    driver.device(&device, 0);
    char bus[32] = "";
    driver.bus_id(bus, sizeof bus, device);
    Nvml::DeviceHandle handle{};
    nvml.device(bus, &handle);
    const auto measure = [&](const char* quantity, const auto& step) {
      const int steps = recorder_.quick() ? 2 : std::clamp(static_cast<int>(2000 / step_ms), 3, 200);
      unsigned long long begin = 0, end = 0;
      nvml.energy_mj(handle, &begin);
      for (int i = 0; i < steps; ++i) step();
      nvml.energy_mj(handle, &end);
      cell.sample(quantity, static_cast<double>(end - begin) / steps);
    };
    measure("plain_energy", [&] { plain.step(); });
    measure("placed_energy", [&] { placed.steps(1); });
  }

  const ProbeOptions& options_;
  Recorder& recorder_;
  const HourModel& model_;
  const TrainingOptions training_;
  std::size_t peak_ = 0, workspace_ = 0;
};

}  // namespace

void measure_training(const ProbeOptions& options, Recorder& recorder, const HourModel& model) {
  Measurement(options, recorder, model).run();
}

}  // namespace vedette::gpu
