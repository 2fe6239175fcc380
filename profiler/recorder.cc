// The recorder's two halves: the observer calls, which only copy, and the thread that writes.
//
// Two ways lead from one to the other. Small frequent records go through a ring: one for events of the engine under its
// lock, one for events of the thread that announces ops, so that each ring has one producer. Whole values (a trace, a
// plan, a step's counters) are copied under a mutex that the writer holds only to take the list; nothing that moves
// bytes waits for it. The writer takes the list first and drains the rings after, so events before a step's end are
// written with it.
#include "profiler/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/quiet_thread.h"
#include "profiler/events.h"
#include "profiler/gpu_bytes.h"
#include "profiler/live.h"
#include "profiler/live_heat.h"
#include "profiler/name_numbers.h"
#include "profiler/origin.h"
#include "profiler/recording.h"
#include "profiler/ring.h"
#include "profiler/stacks.h"
#include "profiler/tables.h"

namespace vedette {

namespace {

constexpr auto writer_period = std::chrono::milliseconds(50);  // a ring of 32768 records holds 650,000 records a second

using Message = std::function<void(Tables&)>;  // a whole value, on its way to its table

struct Births {  // of the running step, and their stacks by number
  StackTable stacks;
  FrameNames names;  // the writer's alone
  std::uint64_t step = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> stack_of;  // by birth
  std::vector<std::uint32_t> profiled;                            // of each tensor of the next profile; 0: none
};
constexpr std::size_t most_births = 1 << 20;  // of a step; later ones have no stack

struct StepBegin {
  Nanoseconds at;
  ProcessUse use;
  std::optional<Nanoseconds> first;  // of all steps
};

}  // namespace

struct Recorder::State {
  State(NewRecording made, std::size_t ring_records)
      : of_engine(ring_records),
        of_program(ring_records),
        in_use(std::move(made.in_use)),
        tables(std::move(made.database)) {}

  void push(Ring<Event>& ring, const Event& event) noexcept {
    // relaxed: a statistic.
    if (!ring.push(event)) dropped.fetch_add(1, std::memory_order_relaxed);
  }
  void send(Message message);
  void write_until_stopped() noexcept;
  void write_once(std::vector<Message>& taken);

  // Of the thread that announces ops.
  NameNumbers names;
  OpEvent op;  // the one that is running
  StepBegin begun;
  struct {
    std::string phase;
    std::optional<std::uint64_t> bucket;
  } ran;              // as told by step_ran()
  GpuBytes gpu;       // as told last
  BudgetSizes sizes;  // as told so far

  std::unique_ptr<LivePage> live;  // nullptr: there is none
  ForTop top;
  std::unique_ptr<Births> births;  // guarded by the session's lock; nullptr: stacks are not wanted

  Ring<Event> of_engine;                // moved, stalled, faulted
  Ring<Event> of_program;               // ops and their names
  std::atomic<std::uint64_t> step = 0;  // relaxed: a move at a step's seam may be told with either number
  std::atomic<std::uint64_t> dropped = 0;

  mutable std::mutex mutex;
  std::condition_variable wake, written;
  std::vector<Message> messages;                    // guarded by mutex, as are the four below
  std::uint64_t rounds_asked = 0, rounds_done = 0;  // of flush()
  std::optional<Error> failure;
  bool stopping = false;

  Fd in_use;
  Tables tables;       // the writer's alone
  MachineWatch watch;  // as well
  EnergyWatch energy;  // as well
  std::thread writer;
};

void Recorder::State::send(Message message) {
  {
    const std::lock_guard lock(mutex);
    messages.push_back(std::move(message));
  }
  wake.notify_one();
}

// One transaction: everything that has arrived. After a failure the rings are still emptied, and failure() alone tells.
void Recorder::State::write_once(std::vector<Message>& taken) {
  const bool works = !tables.database().failure();
  bool begun = false;
  const auto begin = [&] {
    if (works && !std::exchange(begun, true)) tables.begin();
  };
  const auto write = [&](const Event& event) {
    begin();
    if (works) tables.event(event);
  };
  of_engine.drain(write);
  of_program.drain(write);
  for (const Message& message : taken) {
    begin();
    if (works) message(tables);
  }
  taken.clear();
  if (begun) tables.commit();
}

void Recorder::State::write_until_stopped() noexcept {
  std::vector<Message> taken;
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    wake.wait_for(lock, writer_period, [&] { return stopping || !messages.empty() || rounds_asked != rounds_done; });
    last = stopping;
    const std::uint64_t round = rounds_asked;
    taken.swap(messages);
    lock.unlock();
    write_once(taken);
    lock.lock();
    rounds_done = round;
    failure = tables.database().failure();
    written.notify_all();
  }
}

namespace {

std::optional<std::uint64_t> resident_bytes_of_this_process() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  if (!(statm >> size >> resident)) return std::nullopt;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::open(const RecorderOptions& options) {
  auto made = create_recording(options.path);
  if (!made) return made.error();
  auto state = std::make_unique<State>(std::move(*made), options.ring_records);
  state->tables.meta("schema", std::to_string(recording_schema));
  state->tables.meta("program", options.program);
  if (options.plain_step) state->tables.meta("plain_step_ns", std::to_string(options.plain_step->value));
  if (!options.libtorch.empty()) state->tables.meta("libtorch", options.libtorch);
  for (const auto& [key, value] : facts_of_this_run()) state->tables.meta(key, value);
  if (const auto& failure = state->tables.database().failure()) return *failure;
  if (options.live) state->live = LivePage::make(options.program.empty() ? options.path : options.program);
  if (options.stacks) state->births = std::make_unique<Births>();
  state->writer = start_quiet_thread([raw = state.get()]() noexcept { raw->write_until_stopped(); });
  return std::unique_ptr<Recorder>(new Recorder(std::move(state)));
}

Result<void> Recorder::may_open(const std::string& path) { return may_become_recording(path); }

Recorder::Recorder(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

Recorder::~Recorder() {
  state_->send([dropped = this->dropped()](Tables& tables) {
    tables.meta("dropped_events", std::to_string(dropped));
    tables.meta("complete", "1");
  });
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  state_->writer.join();
  state_->tables.close();
}

void Recorder::flush() {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t round = ++state_->rounds_asked;
  state_->wake.notify_one();
  state_->written.wait(lock, [&] { return state_->rounds_done >= round; });
}

std::uint64_t Recorder::dropped() const noexcept { return state_->dropped.load(std::memory_order_relaxed); }

std::optional<Error> Recorder::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

LivePage* Recorder::live() const noexcept { return state_->live.get(); }

void Recorder::opened(const Machine& machine, std::string_view policy, Bytes budget, Bytes chunk) {
  if (state_->live) {
    state_->live->policy(policy);
    state_->live->set(Live::budget_bytes, budget.value);
  }
  state_->sizes = {.changes = 0, .least = budget, .most = budget, .last = budget};
  state_->send(
      [record = SessionRecord{machine, std::string(policy), budget, chunk}, energy = &state_->energy](Tables& tables) {
        tables.session(record);
        energy->watch({});  // of an earlier session
      });
}

// The first reading is the writer's, too: it loads the library that counts.
void Recorder::counts_energy(const EnergyCounter& counter) {
  state_->send([counter, energy = &state_->energy](Tables&) { energy->watch(counter); });
}

// A table may be freed before the session ends: its bytes stay told.
void Recorder::has_tables(const GpuTableCounters& counters) {
  state_->send([counters](Tables& tables) {
    const auto tell = [&](std::string_view key, std::uint64_t value) { tables.meta(key, std::to_string(value)); };
    if (counters.bytes() > 0) {
      tell("table_device_bytes", counters.device_bytes);
      tell("table_host_bytes", counters.host_bytes);
    }
    tell("table_rows_on_device", counters.rows_on_device);
    tell("table_rows_on_host", counters.rows_on_host);
    tell("table_moves", counters.moves);
  });
}

void Recorder::writes_bounded(Bytes a_second, Bytes a_second_without) {
  state_->send([a_second, a_second_without](Tables& tables) {
    tables.meta("max_writes_bytes_per_s", std::to_string(a_second.value));
    tables.meta("disk_writes_bytes_per_s", std::to_string(a_second_without.value));
  });
}

void Recorder::moves_by(std::string_view mechanism) {
  state_->send([text = std::string(mechanism)](Tables& tables) { tables.meta("mechanism", text); });
}

void Recorder::resized(Nanoseconds, Bytes budget) {
  if (state_->live) state_->live->set(Live::budget_bytes, budget.value);
  BudgetSizes& sizes = state_->sizes;
  ++sizes.changes;
  sizes.least = std::min(sizes.least, budget);
  sizes.most = std::max(sizes.most, budget);
  sizes.last = budget;
  state_->send([sizes](Tables& tables) {
    tables.meta("budget_changes", std::to_string(sizes.changes));
    tables.meta("least_budget_bytes", std::to_string(sizes.least.value));
    tables.meta("most_budget_bytes", std::to_string(sizes.most.value));
    tables.meta("last_budget_bytes", std::to_string(sizes.last.value));
  });
}

void Recorder::step_began(std::uint64_t step, Nanoseconds now) {
  state_->step.store(step, std::memory_order_relaxed);
  state_->begun.at = now;
  if (!state_->begun.first) state_->begun.first = now;
  state_->begun.use = use_of_process();
}

void Recorder::step_ended(std::uint64_t step, Nanoseconds now, const Counters& of_this_step) {
  if (state_->live) {
    state_->live->set(Live::step, step);
    state_->live->set(Live::last_step_ns, static_cast<std::uint64_t>((now - state_->begun.at).value));
    state_->live->phase(state_->ran.phase);
    state_->live->set(Live::dropped_events, dropped());
    const Nanoseconds first = state_->begun.first.value_or(now);
    state_->live->set(Live::steps_ns, static_cast<std::uint64_t>((now - first).value));
    state_->live->add(Live::bytes_in_place, of_this_step.bytes_in_place.value);
    state_->live->add(Live::disk_bytes_out, of_this_step.disk_bytes_out.value);
    for (const GpuBytesField& each : gpu_bytes_fields)
      state_->live->set(each.live, (of_this_step.gpu.*each.bytes).value);
  }
  if (of_this_step.gpu != state_->gpu) {
    state_->gpu = of_this_step.gpu;
    state_->send([gpu = of_this_step.gpu](Tables& tables) {
      for (const GpuBytesField& each : gpu_bytes_fields) tables.meta(each.key, std::to_string((gpu.*each.bytes).value));
    });
  }
  StepRecord record{.step = step,
                    .phase = std::exchange(state_->ran.phase, {}),
                    .bucket = std::exchange(state_->ran.bucket, {}),
                    .began = state_->begun.at,
                    .ended = now,
                    .counters = of_this_step,
                    .dropped_events = dropped()};
  const ProcessUse use = use_of_process();
  record.noise = StepNoise{.elapsed = use.at - state_->begun.use.at,
                           .processor = use.processor - state_->begun.use.processor,
                           .switches = use.switches - state_->begun.use.switches};
  state_->send([record, state = state_.get()](Tables& tables) mutable {
    record.process_bytes = resident_bytes_of_this_process();  // here, on the writer's time: a moment later
    record.noise->machine = state->watch.since_last();
    record.energy = state->energy.since_last();
    if (record.energy && state->live) state->live->add(Live::energy_mj, record.energy->millijoules);
    tables.step(record);
  });
}

void Recorder::profiled(std::uint64_t step, std::uint64_t bucket, const Trace& trace) {
  std::vector<std::uint32_t> stacks;
  if (state_->births) stacks = std::exchange(state_->births->profiled, {});
  if (state_->live) state_->top.heat = LiveHeat(trace);
  state_->send([step, bucket, trace, stacks = std::move(stacks)](Tables& tables) {
    tables.profile(step, bucket, trace);
    tables.tensor_stacks(stacks);
  });
}

bool Recorder::wants_births() const noexcept { return state_->births != nullptr; }

void Recorder::born(std::uint64_t step, std::uint32_t birth) noexcept {
  Births& births = *state_->births;
  if (std::exchange(births.step, step) != step) births.stack_of.clear();
  if (births.stack_of.size() == most_births) return;
  const std::size_t known = births.stacks.size();
  const std::uint32_t number = births.stacks.here();
  if (number == 0) return;
  births.stack_of.emplace_back(birth, number);
  if (births.stacks.size() == known) return;
  state_->send([number, stack = births.stacks[number], state = state_.get()](Tables& tables) {
    tables.stack(number, state->births->names.of(stack.all()));
  });
}

void Recorder::births_profiled(std::uint64_t step, std::span<const std::uint32_t> of_tensors) {
  Births& births = *state_->births;
  births.profiled.assign(of_tensors.size(), 0);
  if (births.step != step) return;
  std::unordered_map<std::uint32_t, std::uint32_t> stack_of(births.stack_of.begin(), births.stack_of.end());
  for (std::size_t t = 0; t < of_tensors.size(); ++t)
    if (const auto found = stack_of.find(of_tensors[t]); found != stack_of.end()) births.profiled[t] = found->second;
}

void Recorder::planned(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan) {
  state_->send([step, bucket, kept = units, plan](Tables& tables) { tables.plan(step, bucket, kept, plan); });
}

void Recorder::placed(std::uint64_t /*step*/, std::uint64_t bucket, std::span<const Placed> units,
                      std::span<const Placed> tensors) {
  PlacesRecord record{{units.begin(), units.end()}, {tensors.begin(), tensors.end()}};
  state_->send([bucket, record = std::move(record)](Tables& tables) { tables.places(bucket, record); });
}

void Recorder::step_ran(std::uint64_t /*step*/, std::string_view phase, std::optional<std::uint64_t> bucket) {
  state_->ran.phase = phase;
  state_->ran.bucket = bucket;
}

void Recorder::sampled(std::uint64_t step, OpIndex op, Bytes resident, Bytes live) {
  OpEvent& running = state_->op;
  if (running.step != step || running.op != op) return;
  running.resident = resident;
  running.live = live;
  if (!state_->live) return;
  state_->live->set(Live::resident_bytes, resident.value);
  state_->live->set(Live::live_bytes, live.value);
}

void Recorder::op_began(std::uint64_t step, OpIndex op, std::string_view name, Nanoseconds now) {
  const auto [number, first] = state_->names.number(name);
  if (first) state_->push(state_->of_program, NameEvent::of(number, name));
  state_->op = {.step = step, .op = op, .name = number, .began = now};
}

void Recorder::op_ran_on(std::uint64_t step, OpIndex op, std::uint32_t stream) {
  OpEvent& running = state_->op;
  if (running.step == step && running.op == op) running.stream = stream;
}

void Recorder::op_ended(std::uint64_t step, OpIndex op, Nanoseconds now) {
  OpEvent& running = state_->op;
  if (running.step != step || running.op != op) running = {.step = step, .op = op, .name = 0, .began = now};
  running.ended = now;
  state_->push(state_->of_program, running);
  if (!state_->live) return;
  state_->live->add(Live::ops, 1);
  const std::size_t place = state_->top.heat.place_of(op.value);
  if (state_->top.heat.empty() || place == std::exchange(state_->top.heat_place, place)) return;
  for (std::size_t bin = 0; bin < heat_bins; ++bin) state_->live->set(heat_bin(bin), state_->top.heat.at(place)[bin]);
}

void Recorder::moved(const MoveRecord& record) {
  state_->push(state_->of_engine, MoveEvent{state_->step.load(std::memory_order_relaxed), record});
  if (!state_->live) return;
  constexpr Live of[] = {Live::bytes_in, Live::bytes_out, Live::bytes_dropped};
  state_->live->add(of[static_cast<std::size_t>(record.verb)], record.bytes.value);
  state_->live->add(Live::moves, 1);
}

void Recorder::stalled(const StallRecord& record) {
  state_->push(state_->of_engine, record);
  if (!state_->live) return;
  state_->live->add(Live::stalls, 1);
  state_->live->add(Live::stall_ns,
                    static_cast<std::uint64_t>(std::max<std::int64_t>(0, (record.ended - record.began).value)));
}

void Recorder::faulted(const FaultRecord& record) {
  state_->push(state_->of_engine, record);
  if (state_->live) state_->live->add(Live::faults, 1);
}

void Recorder::recomputed(const RecomputeRecord& record) {
  state_->send([record](Tables& tables) { tables.recomputed(record); });
}

}  // namespace vedette
