// One step, op by op: what it does is logged; while it repeats what a bucket has seen, the bucket's plan runs beside
// it.
#include <algorithm>
#include <functional>

#include "base/assert.h"
#include "base/readable.h"
#include "os/signals.h"
#include "session/registry.h"
#include "session/state.h"

namespace vedette::detail {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {  // splitmix64's finalizer over a running sum
  hash += value + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

void SessionState::set_layer(std::string_view name, Phase phase) {
  const auto [found, fresh] =
      layer_index.try_emplace({std::string(name), phase}, LayerIndex{static_cast<std::uint32_t>(log.layers.size())});
  if (fresh) log.layers.push_back({.name = std::string(name), .phase = phase});
  layer = found->second;
  layer_phase = phase;
}

void SessionState::begin_step() {
  come_first_for_segv();
  const std::lock_guard lock(mutex);
  VEDETTE_ASSERT(!in_step);
  ++step;
  in_step = true;
  remember_times();
  log.pages.clear();
  log.tensors.clear();
  log.ops.clear();
  log_hashes.clear();
  op_times.clear();
  op_stalls.clear();
  watched_ops.clear();
  touched_in_parts.clear();
  step_rows.clear();
  events = 0;
  allocations.clear();
  running_hash = 0;
  layer.reset();
  layer_phase = Phase::forward;
  layer_stack.clear();
  bucket = last_bucket;    // the likeliest; follow() corrects it
  step_base += 1'000'000;  // ticks of different steps never meet: no step has a million ops
  step_began = last_end = monotonic_now();
  at_step_begin = engine->counters();
  engine->stalled_since_last_asked();
  engine->begin_step(step);
  if (options.observer != nullptr) options.observer->step_began(step, step_began);
  if (step > options.warmup_steps && !profiled_once) start_profiling();
}

void SessionState::add_operands(std::span<const void* const> addresses, std::vector<std::uint32_t>& logged,
                                std::uint64_t& hash) {
  for (const void* address : addresses) {
    if (owner_of(address) != this) continue;
    const auto found = holding(address);
    if (found == tensors.end()) continue;                                   // small ones are always resident
    if (!found->second.small) hash = mix(hash, found->second.bytes.value);  // other steps have it in the slab
    operands.push_back(chunks_of(found->first, found->second.bytes.value));
    if (!in_step) continue;
    logged.push_back(log_tensor(found->first, found->second));
    operand_tensors.push_back(logged.back());
  }
}

// Which parts they are changes from step to step, so only whose they are tells one step from another.
void SessionState::add_parts(std::span<const Part> parts, LoggedOp& op, std::uint64_t& hash) {
  std::uint64_t before = ~std::uint64_t{0};
  for (const Part& part : parts) {
    if (owner_of(part.first) != this) continue;
    const auto found = holding(part.first);
    if (found == tensors.end()) continue;
    auto& [offset, live] = *found;
    const auto begin = static_cast<std::uint64_t>(static_cast<const std::byte*>(part.first) - base());
    const ChunkRange range = chunks_of(begin, std::min(part.bytes.value, offset + live.bytes.value - begin));
    operands.push_back(range);
    operand_tensors.push_back(no_log_tensor);
    if (before != offset) hash = mix(hash, ~live.bytes.value);
    before = offset;
    if (!in_step) continue;
    touch_part(static_cast<std::uint32_t>(log.ops.size()), range);
    const std::uint32_t index = log_tensor(offset, live);
    log.tensors[index].in_parts = true;
    if (op.reads.empty() || op.reads.back() != index) op.reads.push_back(index);
    if (part.written && (op.writes.empty() || op.writes.back() != index)) op.writes.push_back(index);
  }
}

void SessionState::follow(std::uint64_t hash) {
  const std::size_t i = log.ops.size() - 1;
  running_hash = mix(running_hash, hash);
  log_hashes.push_back(hash);
  const auto fits = [&](const Bucket& b) { return i < b.prefixes.size() && b.prefixes[i] == running_hash; };
  if (bucket != nullptr && fits(*bucket)) return;
  Bucket* const before = bucket;
  bucket = nullptr;
  for (const auto& other : buckets)
    if (fits(*other)) bucket = other.get();
  if (bucket != before) engine->forget_plan();
}

void SessionState::begin_op(std::string_view name, std::span<const void* const> reads,
                            std::span<const void* const> writes, std::span<const Part> parts) {
  if (op_depth++ > 0) return;  // an op inside an op is part of it
  std::unique_lock lock(mutex);
  operands.clear();
  operand_tensors.clear();
  born_in_op.clear();
  op_thread = std::this_thread::get_id();
  op_births = section = 0;
  sections = nullptr;
  watches = false;
  Engine::Planned planned;
  std::uint32_t index = 0;
  std::uint64_t hash = std::hash<std::string_view>{}(name);
  LoggedOp op;
  add_operands(reads, op.reads, hash);
  hash = mix(hash, reads.size());
  add_operands(writes, op.writes, hash);
  add_parts(parts, op, hash);
  if (in_step) {
    op.name.assign(name);
    op.layer = layer;
    op.phase = layer_phase;
    op.events = {events, events};
    index = planned_op = static_cast<std::uint32_t>(log.ops.size());
    log.ops.push_back(std::move(op));
    follow(hash);
    if (pages != nullptr) pages->op_begins(index, log.ops.back(), log.tensors);
    if (bucket != nullptr) planned = plan_of_op(index);
  }
  lock.unlock();
  engine->begin_op(step_base + (in_step ? planned_op : 0), {index}, name,
                   sections != nullptr ? section_needs() : operands, planned);
  const Nanoseconds stalled = engine->stalled_since_last_asked();
  section_began = monotonic_now();
  if (!in_step) return;
  Nanoseconds gap =
      section_began - last_end - stalled;  // what the program did since the last op counts as this op's compute
  op_times.push_back({std::max<std::int64_t>(gap.value, 0)});
  op_stalls.push_back(stalled);
  if (options.observer != nullptr) options.observer->op_began(step, {index}, name, section_began);
  if (watches) watch_section(0, 0, log.ops.back().events.begin);
}

void SessionState::end_op() noexcept {
  if (--op_depth > 0) return;
  while (sections != nullptr && section + 1 < sections->size()) next_section(false);
  const Nanoseconds ended = monotonic_now();
  std::span<const ChunkRange> evictions;
  const std::size_t index = log.ops.size() - 1;
  std::uint64_t lives = 0;
  if (in_step) {
    const std::lock_guard lock(mutex);  // other threads count events too
    log.ops[index].events.end = events;
    lives = live_bytes;
    if (watches) end_watching();
  }
  if (in_step && bucket != nullptr) evictions = bucket->ops[planned_op].evictions;
  if (in_step && pages != nullptr) pages->op_ended();
  engine->end_op(evictions);
  if (!in_step) return;
  const Nanoseconds took = count_time_until(ended);
  if (bucket != nullptr && bucket->watching == Watching::times) bucket->section_times[index].push_back(took);
  for (std::size_t s = 0, last = op_times.size(); s <= section; ++s) log.ops[index].time += op_times[last - 1 - s];
  if (sections != nullptr && engine->early_touches() != early_before)
    bucket->sections_that_failed.push_back(static_cast<std::uint32_t>(index));
  last_end = pages != nullptr ? monotonic_now() : ended;  // looking at pages is nobody's compute
  if (options.observer == nullptr) return;
  options.observer->sampled(step, {static_cast<std::uint32_t>(index)}, {engine->counters().resident_bytes}, {lives});
  options.observer->op_ended(step, {static_cast<std::uint32_t>(index)}, ended);
}

// The log as planners need it: every living tensor is in it, and who dies before the next step's first op is known by
// who died before this one's.
StepLog SessionState::finished_log() {
  for (auto& [offset, live] : tensors) log_tensor(offset, live);
  std::map<std::uint64_t, int> died_at_seam;
  for (const LoggedTensor& t : log.tensors)
    if (t.birth == 0 && t.death != ~0u && t.death_op < 0) ++died_at_seam[t.bytes.value];
  for (LoggedTensor& t : log.tensors) {
    if (t.name.empty()) {
      const bool born_here = t.birth > 0 && t.birth_op < log.ops.size();
      t.name = (born_here ? log.ops[t.birth_op].name : std::string("tensor")) + " " + readable(t.bytes);
    }
    if (t.birth > 0 && t.death == ~0u && died_at_seam[t.bytes.value] > 0) {
      --died_at_seam[t.bytes.value];
      t.dies_at_seam = true;
    }
  }
  return log;
}

std::string_view SessionState::phase() const noexcept {
  if (step <= options.warmup_steps) return "warm-up";
  return bucket != nullptr && bucket->watching != Watching::touches ? "planned" : "profiling";
}

void SessionState::report_step_end() {
  if (options.observer == nullptr) return;
  Counters now = engine->counters();
  now.live_bytes = live_bytes;
  now.peak_bytes = peak_bytes;
  for (auto counter : {&Counters::bytes_in, &Counters::bytes_out, &Counters::bytes_dropped, &Counters::stall_count,
                       &Counters::stall_ns, &Counters::faults, &Counters::ops})
    now.*counter -= at_step_begin.*counter;
  now.steps = 1;
  const bool complete = bucket != nullptr && bucket->prefixes.size() == log.ops.size();
  options.observer->step_ran(step, phase(), complete ? std::optional(bucket->id) : std::nullopt);
  options.observer->step_ended(step, monotonic_now(), now);
}

void SessionState::end_step() noexcept {
  const std::lock_guard lock(mutex);
  if (!in_step) return;
  in_step = false;
  const Nanoseconds time = monotonic_now() - step_began;
  const Nanoseconds stall{static_cast<std::int64_t>(engine->counters().stall_ns - at_step_begin.stall_ns)};
  report_step_end();
  finish_profiling();
  if (step <= options.warmup_steps || log.ops.empty()) {
    bucket = nullptr;
    return;
  }
  const bool complete = bucket != nullptr && bucket->prefixes.size() == log.ops.size();
  if (complete) {
    bucket->last_run = step;
    ++bucket->runs;
    last_bucket = bucket;
    remember_rows(*bucket);
    if (!learn_sections(*bucket)) measure(*bucket, time, stall);
    return;
  }
  if (bucket != nullptr) engine->forget_plan();  // the step ended early
  learn(finished_log());
}

}  // namespace vedette::detail
