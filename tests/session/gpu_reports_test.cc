// What an observer and a recording know of a session on the simulated GPU: every move with its bytes, its cause and the
// device's times, in the step in which it was queued.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "profiler/recorder.h"
#include "profiler/recording.h"
#include "profiler/report/report.h"
#include "profiler/report/run.h"
#include "profiler/sqlite.h"
#include "support/gpu_net.h"
#include "vedette/gpu_observer.h"

namespace program {  // frames of vedette's own are left out of stacks
namespace {

using vedette::testing::WordsOnGpu;

__attribute__((noinline)) WordsOnGpu::Tensor allocates_in_the_middle(WordsOnGpu& gpu, std::size_t words) {
  WordsOnGpu::Tensor made = gpu.make(words);
  asm volatile("");  // the call above is not the function's last
  return made;
}

}  // namespace
}  // namespace program

namespace vedette::testing::gpu_reports_test {
namespace {

constexpr std::size_t layers = 8, words = 64 << 10;
constexpr int steps = 48;  // by then the policy has planned anew for what it measured
constexpr Bytes budget = 2_MiB;

class GpuReports : public SimulatedGpu {};

struct HeardOp {
  std::string name;
  Nanoseconds began, ended;
  Bytes resident;
};

struct HeardStep {
  std::uint64_t number = 0;
  Nanoseconds began, ended;
  std::vector<HeardOp> ops;
  std::vector<MoveRecord> moves;
  std::vector<StallRecord> stalls;
  Counters counters;

  std::uint64_t moved(Verb verb) const {
    std::uint64_t bytes = 0;
    for (const MoveRecord& move : moves) bytes += move.verb == verb ? move.bytes.value : 0;
    return bytes;
  }
};

class Listener final : public Observer {
 public:
  Machine machine;
  std::string mechanism;
  std::vector<HeardStep> heard;
  std::uint64_t ended = 0;
  std::vector<std::string> devices;  // that traces name

  void profiled(std::uint64_t, std::uint64_t, const Trace& trace) override { devices.push_back(trace.device); }
  void planned(std::uint64_t, std::uint64_t, const Trace& units, const Plan&) override {
    devices.push_back(units.device);
  }
  void opened(const Machine& m, std::string_view, Bytes, Bytes) override { machine = m; }
  void moves_by(std::string_view in_words) override { mechanism = in_words; }
  void step_began(std::uint64_t step, Nanoseconds now) override { heard.push_back({.number = step, .began = now}); }
  void op_began(std::uint64_t step, OpIndex op, std::string_view name, Nanoseconds now) override {
    EXPECT_EQ(step, heard.back().number);
    EXPECT_EQ(op.value, heard.back().ops.size());
    heard.back().ops.push_back({.name = std::string(name), .began = now});
  }
  void sampled(std::uint64_t, OpIndex, Bytes resident, Bytes) override { heard.back().ops.back().resident = resident; }
  void op_ended(std::uint64_t, OpIndex, Nanoseconds now) override { heard.back().ops.back().ended = now; }
  void moved(const MoveRecord& move) override {
    if (ended < heard.size()) heard.back().moves.push_back(move);  // else it came after the last step
  }
  void stalled(const StallRecord& stall) override { heard.back().stalls.push_back(stall); }
  void step_ended(std::uint64_t step, Nanoseconds now, const Counters& of_this_step) override {
    EXPECT_EQ(step, heard.back().number);
    heard.back().ended = now;
    heard.back().counters = of_this_step;
    ++ended;
  }
};

void train(Observer& observer, const std::string& policy = "vedette", int count = steps) {
  WordsOnGpu gpu({.fast_memory = budget, .policy = policy, .observer = &observer});
  NetOnGpu net(gpu, layers, words);
  for (int s = 0; s < count; ++s) net.step(static_cast<std::uint32_t>(s));
  net.expect_right();
  gpu.session.reset();  // what is not known yet is told now
}

void expect_in_order(const HeardStep& step) {
  Nanoseconds before = step.began;
  for (const HeardOp& op : step.ops) {
    EXPECT_GE(op.began, before);
    EXPECT_GE(op.ended, op.began);
    EXPECT_LE(op.resident, budget);
    before = op.ended;
  }
  EXPECT_GE(step.ended, before);
  for (const MoveRecord& move : step.moves) {
    EXPECT_GE(move.started, move.issued);
    EXPECT_GE(move.ended, move.started);
    EXPECT_EQ(move.slow, 1);
  }
}

// An event costs the host a microsecond. Where nothing moves a reported step has as many as one that is timed.
TEST_F(GpuReports, AnOpsTimeAndItsReportReadOneEvent) {
  const auto most_events = [&](Observer* observer) {
    WordsOnGpu gpu({.fast_memory = 16_MiB, .slow = "host", .policy = "vedette", .observer = observer});
    NetOnGpu net(gpu, layers, words);
    unsigned most = 0;
    for (std::uint32_t s = 0; s < 12; ++s) {
      const unsigned before = control().calls()["cuEventRecord"];
      net.step(s);
      if (s >= 6) most = std::max(most, control().calls()["cuEventRecord"] - before);
      gpu.stream.synchronize().value();
    }
    return most;
  };
  Listener listener;
  const unsigned timed = most_events(nullptr), reported = most_events(&listener);
  std::printf("events of a step: %u where it is timed, %u where it is reported, too\n", timed, reported);
  EXPECT_LE(reported, timed);
}

TEST_F(GpuReports, EveryStepIsToldWithAllThatItMoved) {
  Listener listener;
  train(listener);
  EXPECT_EQ(listener.ended, static_cast<std::uint64_t>(steps));
  ASSERT_EQ(listener.machine.tiers.size(), 2u);
  EXPECT_EQ(listener.machine.tiers[0].name, "gpu:0");
  EXPECT_EQ(listener.machine.tiers[1].name, "host");
  EXPECT_EQ(listener.machine.links.size(), 2u);
  EXPECT_THAT(listener.mechanism, ::testing::HasSubstr("copied on a stream each way"));
  EXPECT_GE(listener.devices.size(), 2u);
  EXPECT_THAT(listener.devices, ::testing::Each("gpu:0"));
  Nanoseconds before;
  for (const HeardStep& step : listener.heard) {
    SCOPED_TRACE("step " + std::to_string(step.number));
    EXPECT_GE(step.began, before);
    before = step.ended;
    expect_in_order(step);
    EXPECT_EQ(step.ops.size(), step.counters.ops);
    if (step.number == 1) continue;  // it has the moves before the first step, too
    EXPECT_EQ(step.moved(Verb::fetch), step.counters.bytes_in.value);
    EXPECT_EQ(step.moved(Verb::drop), step.counters.bytes_dropped.value);
    EXPECT_EQ(step.moved(Verb::evict), step.counters.bytes_out.value);
    EXPECT_EQ(step.stalls.size(), step.counters.stall_count);
  }
  EXPECT_GT(listener.heard.back().moved(Verb::fetch), 0u);
}

TEST_F(GpuReports, AStepByItsPlanMovesByThePlan) {
  Listener listener;
  train(listener, "sentinel");
  // Of the plans that Sentinel tries, some leave one tensor to demand: it comes, and another one makes room.
  const HeardStep& last = listener.heard.back();
  const auto planned = std::count_if(last.moves.begin(), last.moves.end(),
                                     [](const MoveRecord& move) { return move.cause == MoveCause::planned; });
  EXPECT_GT(last.moved(Verb::evict), 0u);
  EXPECT_GT(planned, 40);
  EXPECT_LE(static_cast<std::ptrdiff_t>(last.moves.size()) - planned, 2);
}

TEST_F(GpuReports, OnDemandSaysWhoWaitedAndWhoMadeRoom) {
  Listener listener;
  train(listener, "vedette", 1);  // a warm-up step: no plan
  ASSERT_EQ(listener.heard.size(), 1u);
  std::uint64_t urgent = 0, room = 0;
  for (const MoveRecord& move : listener.heard[0].moves) {
    EXPECT_NE(move.cause, MoveCause::planned);
    (move.verb == Verb::fetch ? urgent : room) +=
        move.cause == (move.verb == Verb::fetch ? MoveCause::urgent : MoveCause::room);
  }
  EXPECT_EQ(urgent + room, listener.heard[0].moves.size());
  EXPECT_GT(urgent, 0u);
  EXPECT_GT(room, 0u);
}

// A copy takes what the link takes for its bytes, and ends before the op that uses it: the times are the device's.
TEST_F(GpuReports, CopiesLastAsLongAsTheLinkTakes) {
  control().choose({.memory = std::size_t{256} << 20, .gbs = 0.5});
  Listener listener;
  train(listener, "vedette", 6);
  for (const HeardStep& step : listener.heard) {
    for (const MoveRecord& move : step.moves) {
      if (move.verb == Verb::drop) continue;
      const auto least = static_cast<std::int64_t>(static_cast<double>(move.bytes.value) / 0.5);
      EXPECT_GE((move.ended - move.started).value, least * 9 / 10);
    }
    expect_in_order(step);
  }
}

// The stand-in for NVML, once it is loaded, is what its name finds. Its counter goes on by 250 mJ with each reading.
TEST_F(GpuReports, ARecordingHasTheEnergyOfEachStepByOneReadingOfNvml) {
  void* const nvml = ::dlopen(SIMULATED_NVML, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nvml, nullptr) << ::dlerror();
  const auto choose =
      reinterpret_cast<void (*)(unsigned long long)>(::dlsym(nvml, "simulated_nvml_millijoules_a_reading"));
  const auto readings = reinterpret_cast<unsigned long long (*)()>(::dlsym(nvml, "simulated_nvml_readings"));
  const std::string path = ::testing::TempDir() + "gpu_energy_test.vedette";
  choose(250);
  const auto before = readings();
  {
    auto recorder = Recorder::open({.path = path, .program = "words", .live = false}).value();
    train(*recorder);
  }
  choose(0);
  EXPECT_EQ(readings() - before, static_cast<unsigned long long>(steps) + 1) << "one as it begins, one a step";
  const auto run = report::load_run(path);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->steps.size(), static_cast<std::size_t>(steps));
  for (const report::StepRow& step : run->steps) {
    ASSERT_TRUE(step.energy) << "step " << step.step;
    EXPECT_EQ(step.energy->millijoules, 250u) << "step " << step.step;
  }
  const report::Energy energy = report::energy_of(*run);
  EXPECT_EQ(energy.device, "gpu:0");
  EXPECT_EQ(energy.steps, run->steady.size());
  EXPECT_DOUBLE_EQ(energy.median_j, 0.25);
  std::filesystem::remove(path);
}

class StreamListener final : public Observer, public GpuObserver {
 public:
  std::vector<std::uint32_t> streams;  // by op of the latest step
  EnergyCounter counter;

  void counts_energy(const EnergyCounter& of_the_device) override { counter = of_the_device; }
  void step_began(std::uint64_t, Nanoseconds) override { streams.clear(); }
  void op_ran_on(std::uint64_t, OpIndex op, std::uint32_t stream) override {
    EXPECT_EQ(op.value, streams.size());
    streams.push_back(stream);
  }
};

TEST_F(GpuReports, AnOpIsToldWithItsStream) {
  StreamListener listener;
  {
    WordsOnGpu gpu({.fast_memory = budget, .policy = "vedette", .observer = &listener});
    NetOnGpu net(gpu, 2, words);
    const auto other = cuda::Stream::create(gpu.device).value();
    net.in_the_middle = [&](const std::vector<WordsOnGpu::Tensor>&) {
      gpu.work_on(other.handle());
      WordsOnGpu::Tensor aside = gpu.make(words / 4);
      gpu.op("aside", aside, {}, 5u);
      gpu.drop(aside);
      gpu.work_on(nullptr);
    };
    for (int s = 0; s < 3; ++s) net.step(static_cast<std::uint32_t>(s));
    gpu.session.reset();
    other.synchronize().value();
  }
  // load, two layers of forward and scratch, the op aside, then loss and two layers of backward, moment and update
  EXPECT_EQ(listener.streams, (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(listener.counter) << "though whether it can be read depends on the machine";
}

TEST_F(GpuReports, ARecordingHasTheStacksOfAllocations) {
  const std::string path = ::testing::TempDir() + "gpu_stacks_test.vedette";
  constexpr std::size_t aside = words / 2;
  {
    auto recorder = Recorder::open({.path = path, .live = false, .stacks = true}).value();
    WordsOnGpu gpu({.fast_memory = budget, .policy = "vedette", .observer = recorder.get()});
    NetOnGpu net(gpu, 2, words);
    net.in_the_middle = [&](const std::vector<WordsOnGpu::Tensor>&) {
      WordsOnGpu::Tensor made = program::allocates_in_the_middle(gpu, aside);
      gpu.op("aside", made, {}, 5u);
      gpu.op("again", made, {});  // what one op alone uses is its workspace
      gpu.drop(made);
    };
    for (int s = 0; s < 6; ++s) net.step(static_cast<std::uint32_t>(s));
    gpu.session.reset();
  }
  const report::Report report = report::analyse(report::load_run(path).value(), {});
  std::size_t named = 0;
  for (const report::TensorRow& row : report.tensors) {
    const bool is_aside = row.bytes.value == aside * sizeof(std::uint32_t) && !row.persistent;
    const bool says_so = !row.stack.empty() && row.stack[0].find("allocates_in_the_middle") != std::string::npos;
    EXPECT_EQ(is_aside, says_so) << row.name;
    named += says_so ? 1 : 0;
    EXPECT_EQ(row.stack.empty(), row.persistent) << row.name << ": it was there before the profiled step";
  }
  EXPECT_EQ(named, 1u);
  std::filesystem::remove(path);
}

TEST_F(GpuReports, ARecordingHasWhatTheCountersHave) {
  const std::string path = ::testing::TempDir() + "gpu_reports_test.vedette";
  {
    auto recorder = Recorder::open({.path = path, .program = "words", .live = false}).value();
    train(*recorder);
  }
  const auto run = report::load_run(path);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(run->machine.whole_tensors);
  EXPECT_THAT(run->origin.mechanism, ::testing::HasSubstr("tensors at planned places of"));
  const report::PlanFigures plan = report::plan_of(*run);
  EXPECT_TRUE(plan.known);
  EXPECT_GT(plan.planned_fetches, 0u);
  EXPECT_EQ(plan.missed, 0u);
  EXPECT_EQ(plan.unplanned_evictions, 0u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace vedette::testing::gpu_reports_test
