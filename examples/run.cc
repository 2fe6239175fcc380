// The loop: see run.h.
#include "run.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "counting_allocator.h"
#include "device.h"
#include "energy.h"
#include "job.h"
#include "models/made_up_data.h"
#include "models/mixed_precision.h"
#include "models/model.h"
#include "models/state.h"
#include "profiler/recorder.h"
#include "resident_sampler.h"
#include "vedette/torch.h"

namespace vedette::examples {

namespace {

using Clock = std::chrono::steady_clock;

class Progress {  // a line a step, at most two a second, and the last
 public:
  explicit Progress(const RunOptions& options) : options_(options) {}
  void step(std::int64_t step, float loss, Clock::duration took, std::string_view phase) {
    const auto now = Clock::now();
    if (step + 1 < options_.steps && now - last_ < std::chrono::milliseconds(500)) return;
    last_ = now;
    fmt::print("{:8} {:4}/{}  loss {:.5f}  {:8.1f} ms  {}\n", options_.guarded ? "guarded" : "plain", step + 1,
               options_.steps, loss, std::chrono::duration<double, std::milli>(took).count(), phase);
    std::fflush(stdout);
  }

 private:
  const RunOptions& options_;
  Clock::time_point last_;
};

// As a guard that records: its map counts what ops touch.
ProfileTicks ticks(const RunOptions& options) {
  if (options.profile == "operands") return ProfileTicks::operands;
  if (options.profile == "ops" || (options.profile.empty() && !options.record.empty())) return ProfileTicks::ops;
  return ProfileTicks::layers;
}

std::uint64_t cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

struct Stepped {
  float loss = 0;
  std::string phase;  // at the end of the step, in which a recording tells it, too
};

struct Loop {  // shared by plain and guarded runs
  const RunOptions& options;
  Job& job;
  RunResult& result;
  Progress progress{options};
  const Energy energy{options.device};

  // `after` is called after each step, outside of its time.
  void operator()(const auto& step, const auto& phase, const auto& after) {
    for (std::int64_t i = job.first_step(); i < options.steps; ++i) {
      if (options.paced && std::getchar() == EOF) throw std::runtime_error("nobody gives this run its turns");
      const std::string_view name = phase();
      const std::uint64_t cpu_began = cpu_ns();
      const auto began = Clock::now();
      const Stepped stepped = step(job.batch_of(i));
      const auto took = Clock::now() - began;
      result.step_cpu_ns.push_back(cpu_ns() - cpu_began);
      // A session enters its next phase where a step ends. A step counts as planned when it was so from its begin on.
      if (name != "planned" && name != "plain") result.planned_from = i + 1;
      result.step_ns.push_back(static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count()));
      result.losses.push_back(std::bit_cast<std::uint32_t>(stepped.loss));
      result.step_phase.push_back(stepped.phase);
      if (const auto read = energy.millijoules()) result.energy_mj.push_back(*read);
      after(i);
      progress.step(i, stepped.loss, took, stepped.phase);
      if (options.paced) fmt::print("stepped\n"), std::fflush(stdout);
    }
  }
};

std::unique_ptr<Model> made(const RunOptions& options) {
  auto model = make_model(
      options.model, {.batch = options.batch, .small = options.small, .seed = options.seed, .script = options.script});
  if (!model) throw std::runtime_error("no model is called '" + options.model + "'");
  if (options.step_in_backward)
    model->use([](torch::optim::Optimizer& optimizer, const std::function<void()>& backward) {
      step_in_backward(optimizer, backward);
    });
  if (options.amp) model->use_mixed_precision();
  return model;
}

std::uint64_t state_bytes(Model& model) {
  std::uint64_t bytes = 0;
  for (torch::optim::Optimizer* const optimizer : model.optimizers())
    each_state(*optimizer, [&](const std::string&, const at::Tensor& state) { bytes += state.nbytes(); });
  return bytes;
}

void note_scaler(RunResult& result, const Model& model) {
  const GradScaler* const scaler = model.scaler();
  result.amp = scaler != nullptr;
  if (!result.amp) return;
  result.loss_scale = scaler->value();
  result.steps_left_out = scaler->left_out();
}

RunResult run_plain(const RunOptions& options) {
  RunResult result;
  count_allocations();
  const ResidentSampler resident;
  prepare_device(options.device);
  const auto model = made(options);
  move_to_device(model->module(), options.device);
  Job job(options);
  job.join(*model);
  Loop{options, job, result}(
      [&](std::int64_t batch) {
        return Stepped{model->train_step(batch), "plain"};
      },
      [] { return std::string_view("plain"); }, [&](std::int64_t i) { job.stepped(*model, i); });
  result.optimizer_state_bytes = state_bytes(*model);
  note_scaler(result, *model);
  result.peak_bytes = options.device == "cpu" ? counted_peak_bytes() : device_peak_bytes();
  result.resident_max_bytes = resident.largest_growth();
  if (options.state) result.state = digests(*model);
  return result;
}

void note_step(RunResult& result, const Counters& before, const Counters& now) {
  result.step_bytes_in.push_back(now.bytes_in.value - before.bytes_in.value);
  result.step_bytes_out.push_back(now.bytes_out.value - before.bytes_out.value);
  result.step_stall_count.push_back(now.stall_count - before.stall_count);
  result.step_stall_ns.push_back(now.stall_ns - before.stall_ns);
  result.step_faults.push_back(now.faults - before.faults);
  result.step_bytes_recomputed.push_back(now.bytes_recomputed.value - before.bytes_recomputed.value);
  result.step_ops_recomputed.push_back(now.ops_recomputed - before.ops_recomputed);
  result.step_recompute_ns.push_back(now.recompute_ns - before.recompute_ns);
}

void write_text(const std::string& text, const std::string& path) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw std::runtime_error("writing " + path + " failed");
}

void write_trace(const Trace* trace, const std::string& path) {
  if (trace == nullptr) throw std::runtime_error("no step was profiled, so there is no trace: --steps is too small");
  write_text(format_trace(*trace), path);
}

void write_planned_traces(const Session& session, const std::string& path) {
  std::size_t number = 0;
  for (const PlannedStep& each : session.planned_steps()) {
    const std::string name = path + "." + std::to_string(number++);
    write_trace(&each.trace, name);
    write_trace(&each.program, name + ".program");
    if (!each.rows.steps.empty()) write_text(format_rows(each.rows), name + ".rows");
  }
}

std::optional<Nanoseconds> plain_step(const RunOptions& options) {
  if (options.plain_step_ns == 0) return std::nullopt;
  return Nanoseconds{static_cast<std::int64_t>(options.plain_step_ns)};
}

std::unique_ptr<Recorder> recorder_of(const RunOptions& options) {
  if (options.record.empty()) return nullptr;
  return Recorder::open({.path = options.record,
                         .program = "examples/train " + options.model,
                         .plain_step = plain_step(options),
                         .libtorch = TORCH_VERSION})
      .value();
}

RunResult run_guarded(const RunOptions& options) {
  RunResult result;
  const std::unique_ptr<Recorder> recorder = recorder_of(options);
  const bool on_gpu = options.device == "cuda";
  const ResidentSampler resident;
  std::unique_ptr<Model> model;
  Job job(options);
  {
    Guard guard{{.fast_memory = Bytes{options.fast_memory},
                 .fast = on_gpu ? "gpu:0" : options.fast,
                 .table_memory = {options.table_memory},
                 .slow = on_gpu && !options.slow.starts_with("host:") ? "host" : options.slow,
                 .max_writes = options.max_writes,
                 .policy = options.policy,
                 .chunk = {options.chunk},
                 .warmup_steps = options.warmup_steps,
                 .profile = ticks(options),
                 .tracker = options.tracker,
                 .observer = recorder.get(),
                 .seed = options.seed,
                 .checksums = options.checksums,
                 .share = options.share,
                 .recompute = options.recompute_all ? Recompute::always
                              : options.recompute   ? Recompute::planned
                                                    : Recompute::off}};
    result.mechanism = guard.session().mechanism();
    result.tracker = guard.session().tracker();
    model = made(options);  // under the guard, as a model larger than memory must be
    move_to_device(model->module(), options.device);
    job.join(*model);
    guard.watch(model->module());
    for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard.watch(*optimizer);
    Counters seen = guard.counters();
    Loop{options, job, result}(
        [&](std::int64_t batch) {
          const auto step = guard.step();
          const float loss = model->train_step(batch);
          return Stepped{loss, std::string(guard.session().phase())};
        },
        [&] { return guard.session().phase(); },
        [&](std::int64_t i) {
          const Counters now = guard.counters();
          note_step(result, std::exchange(seen, now), now);
          job.stepped(*model, i);
        });
    if (!options.trace.empty()) write_trace(guard.session().trace(), options.trace);
    if (!options.planned_traces.empty()) write_planned_traces(guard.session(), options.planned_traces);
    const Counters counters = guard.counters();
    result.peak_bytes = counters.peak_bytes.value;
    result.bytes_in = counters.bytes_in.value;
    result.bytes_out = counters.bytes_out.value;
    result.stall_count = counters.stall_count;
    result.stall_ns = counters.stall_ns;
    result.faults = counters.faults;
    result.optimizer_state_bytes = state_bytes(*model);
    note_scaler(result, *model);
    result.smallest_budget = guard.session().smallest_budget().value;
    result.resident_max_bytes = on_gpu ? counters.resident_max_bytes.value : resident.largest_growth();
    if (on_gpu && options.state) result.state = digests(*model);
  }
  // Behind the guard's end, so that a recording has no faults of the comparison.
  if (!on_gpu && options.state) result.state = digests(*model);
  result.budget_bytes = options.fast_memory;
  if (recorder) {
    recorder->flush();
    if (auto failure = recorder->failure()) throw Failure(*failure);
  }
  return result;
}

}  // namespace

RunResult run(const RunOptions& options) {
  at::set_num_threads(options.threads);
  resolve_vector_math();  // a plain run is compared with a guarded one bit by bit
  if (options.made_up_data) use_made_up_data();
  if (options.deterministic)
    use_deterministic_algorithms(options.model == "script" ? Missing::allowed : Missing::refused);
  if (!options.small) {  // before anything is measured: data is no part of a model
    for (const ModelEntry& entry : models()) {
      if (entry.name == options.model) entry.read_data();
    }
  }
  RunResult result = options.guarded ? run_guarded(options) : run_plain(options);
  result.torch = TORCH_VERSION;
  if (options.deterministic) result.sums = "deterministic algorithms where there are any";
  return result;
}

}  // namespace vedette::examples
