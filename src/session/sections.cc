// Large ops in sections: which are worth watching, what watching them tells, and how one goes from section to section.
//
// Of the first two steps by a bucket's plan one remembers when ops allocate, and the next covers the operands of large
// ops at each of their births, so that what is touched until the next birth shows. Then the step is planned anew, its
// large ops in sections. Only a help: what is touched in another section than was seen is served as a fault, and an op
// to which that happens is whole again.
#include <algorithm>
#include <numeric>
#include <utility>

#include "session/state.h"

namespace vedette::detail {

// Ops near the largest decide who has to leave; others are not worth their faults.
void SessionState::choose_worth_watching(Bucket& fresh) const {
  constexpr std::uint64_t least_chunks = 8, share_of_largest = 4;
  const Trace& trace = fresh.units.trace;
  fresh.worth_watching.assign(trace.ops.size(), 0);
  if (fresh.policy == nullptr || !engine->serves_system_calls()) return;
  std::vector<char> allocates(trace.ops.size());
  for (const LoggedTensor& t : fresh.log.tensors) {
    const bool in_op =
        t.birth > 0 && t.birth_op < fresh.log.ops.size() && t.birth > fresh.log.ops[t.birth_op].events.begin;
    if (in_op && !t.small && t.bytes >= options.chunk) allocates[t.birth_op] = 1;
  }
  std::vector<std::uint64_t> bytes(trace.ops.size());
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    std::set<TensorIndex> operands_of(op.reads.begin(), op.reads.end());
    operands_of.insert(op.writes.begin(), op.writes.end());
    bytes[i] = op.workspace.value;
    for (const TensorIndex t : operands_of) bytes[i] += trace.tensors[t.value].bytes.value;
    largest = std::max(largest, bytes[i]);
  }
  for (std::size_t i = 0; i < trace.ops.size(); ++i)
    fresh.worth_watching[i] =
        allocates[i] != 0 && bytes[i] >= std::max(least_chunks * options.chunk.value, largest / share_of_largest);
}

// --- watching
// ----------------------------------------------------------------------------------------------------------

void SessionState::watch_section(std::uint32_t birth, std::uint64_t bytes, std::uint32_t after_event) {
  watched_ops.back().sections.push_back({.birth = birth,
                                         .bytes = bytes,
                                         .after_event = after_event,
                                         .time = {},
                                         .touched = std::vector<char>(operands.size())});
  engine->cover(operands);
}

void SessionState::end_watching() {
  WatchedSection& ended = watched_ops.back().sections.back();
  for (std::size_t k = 0; k < operands.size(); ++k) ended.touched[k] = engine->touched(operands[k]);
}

void SessionState::finish_watching(Bucket& watched) {
  watched.watching = Watching::done;
  const std::uint32_t least_difference = std::max(2u, frames / 64);
  bool some = false;
  for (WatchedOp& op : watched_ops) {
    const std::vector<Nanoseconds>& times = watched.section_times[op.op];
    if (times.size() != op.sections.size()) continue;  // it does not allocate alike at every step
    for (std::size_t s = 0; s < times.size(); ++s) op.sections[s].time = times[s];
    const Nanoseconds in_all = std::accumulate(times.begin(), times.end(), Nanoseconds{});
    std::vector<std::uint32_t> sizes;
    for (const ChunkRange range : op.operands) sizes.push_back(range.count);
    auto sections_of_op = worth_planning(std::move(op.sections), sizes, options.chunk, least_difference);
    if (sections_of_op.size() < 2) continue;
    // That step may have been a slow one: together they take what the op takes at its best.
    const double share = static_cast<double>(watched.least_time[watched.first[op.op]].value) /
                         static_cast<double>(std::max<std::int64_t>(in_all.value, 1));
    for (WatchedSection& s : sections_of_op)
      s.time = {static_cast<std::int64_t>(static_cast<double>(s.time.value) * share)};
    watched.sections[op.op] = std::move(sections_of_op);
    some = true;
  }
  if (some) form_sections(watched, finished_log());
}

// After a whole step by its plan; whether it is planned anew now.
bool SessionState::learn_sections(Bucket& ran) {
  if (ran.watching == Watching::touches) {
    finish_watching(ran);
    return true;
  }
  if (ran.watching == Watching::times) {
    const bool some = std::find(ran.worth_watching.begin(), ran.worth_watching.end(), 1) != ran.worth_watching.end();
    ran.watching = some ? Watching::touches : Watching::done;
    return false;
  }
  if (ran.sections_that_failed.empty()) return false;
  for (const WatchedOp& op : watched_ops) {
    std::vector<WatchedSection>& of_op = ran.sections[op.op];
    for (std::size_t s = 0; s < of_op.size(); ++s) of_op[s].time = ran.least_time[ran.first[op.op] + s];
  }
  for (const std::uint32_t op : std::exchange(ran.sections_that_failed, {})) ran.sections[op].clear();
  form_sections(ran, finished_log());
  return true;
}

void SessionState::form_sections(Bucket& formed, StepLog of_this_step) {
  std::vector<SectionedOp> sectioned;
  for (std::size_t i = 0; i < of_this_step.ops.size(); ++i) {
    const auto of_op = formed.least_time.begin() + formed.first[i];
    of_this_step.ops[i].time = std::accumulate(of_op, formed.least_time.begin() + formed.first[i + 1], Nanoseconds{});
  }
  for (const WatchedOp& op : watched_ops) {
    const auto& of_op = formed.sections[op.op];
    if (of_op.size() < 2) continue;
    SectionedOp& cut = sectioned.emplace_back(SectionedOp{.op = op.op, .sections = {}});
    for (const WatchedSection& s : of_op) {
      LogSection& logged =
          cut.sections.emplace_back(LogSection{.after_event = s.after_event, .time = s.time, .touched = {}});
      for (std::size_t k = 0; k < s.touched.size(); ++k)
        if (s.touched[k] != 0 && op.tensors[k] != no_log_tensor) logged.touched.push_back(op.tensors[k]);
    }
  }
  SectionedLog cut = cut_into_sections(std::move(of_this_step), sectioned);
  formed.program_in_sections = program_trace(cut.log);
  formed.units = form_units(cut.log, options.chunk);
  formed.first = std::move(cut.first);
  formed.ops.assign(formed.units.trace.ops.size(), {});
  formed.times_are_guesses = true;
  formed.least_time.clear();
  for (const LoggedOp& op : cut.log.ops) formed.least_time.push_back(op.time);
  formed.policy = make_policy(options.policy, options.seed);
  engine->forget_plan();
  make_plan(formed);
}

// --- running
// -----------------------------------------------------------------------------------------------------------

// The plan of an op that begins, or of its first section.
Engine::Planned SessionState::plan_of_op(std::uint32_t index) {
  planned_op = bucket->first[index];
  watches = bucket->watching == Watching::touches && bucket->worth_watching[index] != 0;
  std::vector<WatchedSection>& of_op = bucket->sections[index];
  if (!of_op.empty() && of_op.front().touched.size() == operands.size()) {
    sections = &of_op;
    of_op.front().after_event = events;
    early_before = engine->early_touches();
  } else if (!of_op.empty()) {
    bucket->sections_that_failed.push_back(index);  // another op than was watched
  }
  if (watches || !of_op.empty())
    watched_ops.push_back({.op = index, .operands = operands, .tensors = operand_tensors, .sections = {}});
  if (bucket->watching == Watching::times) bucket->section_times[index].clear();
  return planned_now();
}

Engine::Planned SessionState::planned_now() const {
  const OpPlan& plan = bucket->ops[planned_op];
  Engine::Planned planned{.fetches = plan.fetches,
                          .next_uses = plan.next_uses,
                          .base = step_base,
                          .needs = bucket->units.needs[planned_op],
                          .later = {}};
  if (sections != nullptr) planned.later = operands;
  return planned;
}

std::vector<ChunkRange> SessionState::section_needs() const {
  std::vector<ChunkRange> needs = born_in_op;
  const std::vector<char>& touched = (*sections)[section].touched;
  for (std::size_t k = 0; k < operands.size(); ++k)
    if (touched[k] != 0) needs.push_back(operands[k]);
  return needs;
}

// Of the op thread, in an op, of more than the slab takes.
void SessionState::before_birth(std::uint64_t bytes, std::unique_lock<std::mutex>& lock) {
  if (section_begins(bytes)) {
    lock.unlock();
    next_section(true);
    lock.lock();
  }
  if (watches) {
    end_watching();
    watch_section(op_births + 1, bytes, events);
  }
  if (bucket != nullptr && bucket->watching == Watching::times)
    bucket->section_times[log.ops.size() - 1].push_back(count_time_until(monotonic_now()));
  ++op_births;
}

bool SessionState::section_begins(std::uint64_t bytes) const {
  if (sections == nullptr || section + 1 >= sections->size()) return false;
  const WatchedSection& next = (*sections)[section + 1];
  return next.birth == op_births + 1 && next.bytes == bytes;
}

// What the op, or its running section, took since it was last asked, without what it waited.
Nanoseconds SessionState::count_time_until(Nanoseconds now) {
  const Nanoseconds stalled = engine->stalled_since_last_asked();
  const Nanoseconds took{std::max<std::int64_t>((now - section_began - stalled).value, 0)};
  op_times.back() += took;
  op_stalls.back() += stalled;
  section_began = now;
  return took;
}

void SessionState::next_section(bool runs) {
  count_time_until(monotonic_now());
  const std::vector<ChunkRange>& evictions = bucket->ops[planned_op].evictions;
  ++section;
  ++planned_op;
  std::vector<ChunkRange> needs;
  {
    const std::lock_guard lock(mutex);  // other threads free what was born
    (*sections)[section].after_event = events;
    if (runs) needs = section_needs();
  }
  engine->continue_op(step_base + planned_op, evictions, needs, planned_now());
  op_times.push_back({});
  op_stalls.push_back(engine->stalled_since_last_asked());
  section_began = monotonic_now();
}

}  // namespace vedette::detail
