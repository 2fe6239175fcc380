// Reads a recording for a report: the facts of the run, its steps, and all of the one that is shown. Its profiles are
// read in read_profiles.cc.
#include "profiler/report/run.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "profiler/recording.h"
#include "profiler/report/reader.h"

namespace vedette::report {

namespace {

void read_meta(Reader& reader, Run& run) {
  std::map<std::string, std::string> meta;
  Statement ask(reader.database(), "SELECT key, value FROM meta");
  for (ask.ask(); reader.row(ask);) {
    const auto [fact, fresh] = meta.insert_or_assign(ask.text(0), ask.text(1));
    reader.keep(*fact, {fact->first, fact->second});
  }
  const auto number = [&](const char* key) {
    const std::string& text = meta[key];
    const long long value = text.empty() || text.size() > 18 ? 0 : std::strtoll(text.c_str(), nullptr, 10);
    return static_cast<std::uint64_t>(std::clamp<long long>(value, 0, largest));
  };
  run.program = meta["program"];
  run.policy = meta["policy"];
  run.budget = {number("budget_bytes")};
  run.chunk = {number("chunk_bytes")};
  run.ended = meta.contains("complete");
  run.dropped_events = number("dropped_events");
  run.machine.fault_time = {static_cast<std::int64_t>(number("fault_ns"))};
  if (number("granule_bytes") > 0) run.machine.granule = {number("granule_bytes")};
  run.machine.can_recompute = number("can_recompute") != 0;
  run.machine.can_reorder = number("can_reorder") != 0;
  run.machine.whole_tensors = number("whole_tensors") != 0;
  if (number("plain_step_ns") > 0) run.plain_step = Nanoseconds{static_cast<std::int64_t>(number("plain_step_ns"))};
}

void read_machine(Reader& reader, Run& run) {
  Statement tier(reader.database(), "SELECT name, capacity_bytes, addressable FROM tiers ORDER BY tier");
  for (tier.ask(); reader.row(tier);) {
    run.machine.tiers.push_back(
        {.name = tier.text(0), .capacity = {reader.capacity(tier, 1)}, .addressable = tier.integer(2) != 0});
    reader.keep(run.machine.tiers.back(), {run.machine.tiers.back().name});
  }
  Statement link(reader.database(),
                 "SELECT source, target, bytes_per_s, latency_ns, shared, alone_bytes_per_s FROM links");
  for (link.ask(); reader.row(link);) {
    Link& l = run.machine.links.emplace_back();
    l.source = {reader.below(link, 0, run.machine.tiers.size(), "a link's tier")};
    l.target = {reader.below(link, 1, run.machine.tiers.size(), "a link's tier")};
    l.bytes_per_s = reader.natural(link, 2, "a link's bandwidth");
    l.latency = {static_cast<std::int64_t>(reader.natural(link, 3, "a link's latency"))};
    if (!link.is_null(4)) l.shared = reader.number(link, 4, "a link's bus");
    l.alone_bytes_per_s = reader.natural(link, 5, "a link's bandwidth");
    reader.keep(l);
  }
}

void read_steps(Reader& reader, Run& run) {
  Statement ask(
      reader.database(),
      "SELECT step, began_ns, ended_ns, bytes_in, bytes_out, bytes_dropped, stall_count, stall_ns, faults, live_bytes,"
      " peak_bytes, resident_bytes, resident_max_bytes, ops, dropped_events, phase, bucket, process_bytes,"
      " far_bytes_in, far_bytes_out, moved_between_slow_tiers, bytes_in_place"
      " FROM steps ORDER BY step");
  for (ask.ask(); reader.row(ask);) {
    StepRow& s = run.steps.emplace_back();
    s.step = reader.natural(ask, 0, "a step's number");
    s.began = reader.time(ask, 1);
    s.ended = std::max(s.began, reader.time(ask, 2));
    Counters& c = s.counters;
    std::uint64_t* const counters[] = {&c.bytes_in.value,
                                       &c.bytes_out.value,
                                       &c.bytes_dropped.value,
                                       &c.stall_count,
                                       &c.stall_ns,
                                       &c.faults,
                                       &c.live_bytes.value,
                                       &c.peak_bytes.value,
                                       &c.resident_bytes.value,
                                       &c.resident_max_bytes.value,
                                       &c.ops};
    for (int i = 0; i < 11; ++i) *counters[i] = reader.natural(ask, 3 + i, "a counter of a step");
    run.dropped_events = std::max(run.dropped_events, reader.natural(ask, 14, "a step's dropped events"));
    s.phase = ask.text(15);
    s.bucket = ask.text(16);
    if (!ask.is_null(17)) s.process = Bytes{reader.natural(ask, 17, "a step's process bytes")};
    c.far_bytes_in = {reader.natural(ask, 18, "a counter of a step")};
    c.far_bytes_out = {reader.natural(ask, 19, "a counter of a step")};
    c.moved_between_slow_tiers = {reader.natural(ask, 20, "a counter of a step")};
    c.bytes_in_place = {reader.natural(ask, 21, "a counter of a step")};
    reader.keep(s, {s.phase, s.bucket});
  }
}

void read_noise(Reader& reader, Run& run) {
  Statement ask(
      reader.database(),
      "SELECT step, elapsed_ns, processor_ns, switches, watched_ns, steal_ns, processor_wait_ns, memory_wait_ns,"
      " io_wait_ns FROM step_noise ORDER BY step");
  auto at = run.steps.begin();
  for (ask.ask(); reader.row(ask);) {
    const std::uint64_t step = reader.natural(ask, 0, "a step's number");
    while (at != run.steps.end() && at->step < step) ++at;
    StepNoise noise{.elapsed = reader.time(ask, 1),
                    .processor = reader.time(ask, 2),
                    .switches = reader.natural(ask, 3, "switches"),
                    .machine = {.elapsed = reader.time(ask, 4)}};
    std::optional<Nanoseconds>* const times[] = {&noise.machine.steal, &noise.machine.processor_wait,
                                                 &noise.machine.memory_wait, &noise.machine.io_wait};
    for (int i = 0; i < 4; ++i)
      if (!ask.is_null(5 + i)) *times[i] = reader.time(ask, 5 + i);
    if (at != run.steps.end() && at->step == step) at->noise = noise;
  }
}

void read_energy(Reader& reader, Run& run) {
  Statement ask(reader.database(), "SELECT step, millijoules, watched_ns FROM step_energy ORDER BY step");
  auto at = run.steps.begin();
  for (ask.ask(); reader.row(ask);) {
    const std::uint64_t step = reader.natural(ask, 0, "a step's number");
    while (at != run.steps.end() && at->step < step) ++at;
    const StepEnergy energy{.millijoules = reader.natural(ask, 1, "a step's energy"), .watched = reader.time(ask, 2)};
    if (at != run.steps.end() && at->step == step) at->energy = energy;
  }
}

// One pass and no order: SQLite would sort the moves of the whole run, on disk, to group them.
void read_causes(Reader& reader, Run& run) {
  std::map<std::tuple<std::string, std::string, std::uint32_t>, CauseTotal> totals;
  Statement ask(reader.database(), "SELECT verb, cause, bytes, tier FROM moves");
  for (ask.ask(); reader.row(ask);) {
    const std::uint32_t tier =
        reader.below(ask, 3, std::max<std::size_t>(run.machine.tiers.size(), 2), "a move's tier");
    const auto [total, fresh] = totals.try_emplace({ask.text(0), ask.text(1), tier});
    if (fresh) reader.keep(*total, {std::get<0>(total->first), std::get<1>(total->first)});
    ++total->second.moves;
    total->second.bytes = {
        std::min(total->second.bytes.value + reader.capacity(ask, 2), static_cast<std::uint64_t>(largest))};
  }
  for (auto& [of, total] : totals) {
    std::tie(total.verb, total.cause, total.tier) = of;
    run.causes.push_back(std::move(total));
  }
}

// Which steps stand for the run, and which of them is shown. A step of warm-up or profiling stands for no other: where
// a run was killed before it planned, one of those is shown and none is steady. A step that begins with what another
// plan left is not shown where most do not.
void choose_step(Reader& reader, Run& run) {
  const auto prepares = [](const StepRow& s) { return s.phase == "warm-up" || s.phase == "profiling"; };
  std::map<std::string, std::size_t> repeated;
  for (const StepRow& s : run.steps)
    if (!s.bucket.empty() && !prepares(s)) ++repeated[s.bucket];
  const auto usual = std::max_element(repeated.begin(), repeated.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    if (!prepares(run.steps[i]) && (usual == repeated.end() || run.steps[i].bucket == usual->first))
      run.steady.push_back(i);
  std::vector<std::size_t> by_time = run.steady;
  for (std::size_t i = 0; run.steady.empty() && i < run.steps.size(); ++i) by_time.push_back(i);
  if (by_time.empty()) return;
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&](auto a, auto b) { return run.steps[a].time() < run.steps[b].time(); });
  std::set<std::uint64_t> first;  // steps by a plan
  Statement plans(reader.database(), "SELECT step FROM plans");
  while (reader.row(plans)) reader.keep(*first.insert(reader.natural(plans, 0, "a plan's step") + 1).first);
  std::vector<std::size_t> settled;
  std::copy_if(by_time.begin(), by_time.end(), std::back_inserter(settled),
               [&](std::size_t i) { return !first.contains(run.steps[i].step); });
  const std::vector<std::size_t>& shown = 2 * settled.size() > by_time.size() ? settled : by_time;
  run.shown = shown[(shown.size() - 1) / 2];
}

std::vector<OpRow> ops_of(Reader& reader, std::uint64_t step) {
  std::vector<OpRow> ops;
  Statement ask(reader.database(),
                "SELECT op, IFNULL(text, ''), began_ns, ended_ns, live_bytes, resident_bytes, stream"
                " FROM op_times LEFT JOIN names USING(name) WHERE step = ? ORDER BY op");
  for (ask.ask(step); reader.row(ask);) {
    OpRow& op = ops.emplace_back();
    op.op = reader.number(ask, 0, "op");
    op.name = ask.text(1);
    op.began = reader.time(ask, 2);
    op.ended = reader.time(ask, 3);
    op.live = {reader.capacity(ask, 4)};
    op.resident = {reader.capacity(ask, 5)};
    if (!ask.is_null(6)) op.stream = reader.number(ask, 6, "a stream");
    reader.keep(op, {op.name});
  }
  return ops;
}

std::vector<MoveRow> moves_of(Reader& reader, const Run& run, std::uint64_t step) {
  std::vector<MoveRow> moves;
  Statement ask(reader.database(),
                "SELECT verb, cause, chunk, bytes, issued_ns, started_ns, ended_ns, tier FROM moves WHERE step = ?");
  for (ask.ask(step); reader.row(ask);) {
    moves.push_back(
        {.verb = ask.text(0),
         .cause = ask.text(1),
         .chunk = reader.natural(ask, 2, "a chunk"),
         .bytes = {reader.natural(ask, 3, "a move's size")},
         .issued = reader.time(ask, 4),
         .started = reader.time(ask, 5),
         .ended = reader.time(ask, 6),
         .tier = reader.below(ask, 7, std::max<std::size_t>(run.machine.tiers.size(), 2), "a move's tier")});
    reader.keep(moves.back());
  }
  return moves;
}

std::vector<StallRow> stalls_of(Reader& reader, std::uint64_t step) {
  std::vector<StallRow> stalls;
  Statement ask(reader.database(), "SELECT op, in_allocation, began_ns, ended_ns FROM stalls WHERE step = ?");
  for (ask.ask(step); reader.row(ask);) {
    stalls.push_back({.op = reader.number(ask, 0, "op"),
                      .in_allocation = ask.integer(1) != 0,
                      .began = reader.time(ask, 2),
                      .ended = reader.time(ask, 3)});
    reader.keep(stalls.back());
  }
  return stalls;
}

void read_faults(Reader& reader, Run& run) {
  Statement faults(reader.database(), "SELECT op, chunk, page, write, began_ns, ended_ns FROM faults WHERE step = ?");
  for (faults.ask(run.shown_step()->step); reader.row(faults);) {
    run.faults.push_back({.op = reader.number(faults, 0, "op"),
                          .chunk = reader.natural(faults, 1, "a chunk"),
                          .page = reader.natural(faults, 2, "a page"),
                          .write = faults.integer(3) != 0,
                          .began = reader.time(faults, 4),
                          .ended = reader.time(faults, 5)});
    reader.keep(run.faults.back());
  }
}

void read_recomputed(Reader& reader, Run& run) {
  Statement ask(reader.database(),
                "SELECT op, chunk, chunks, ops, began_ns, ended_ns FROM recomputations WHERE step = ?");
  for (ask.ask(run.shown_step()->step); reader.row(ask);) {
    run.recomputed.push_back({.op = reader.number(ask, 0, "op"),
                              .chunk = reader.natural(ask, 1, "a chunk"),
                              .chunks = reader.natural(ask, 2, "chunks"),
                              .ops = reader.natural(ask, 3, "ops that ran again"),
                              .began = reader.time(ask, 4),
                              .ended = reader.time(ask, 5)});
    if (run.recomputed.back().chunks > most_chunks) return reader.refuse("more was recomputed than there can be");
    reader.keep(run.recomputed.back());
  }
}

constexpr std::size_t most_compared = 32;  // steps; an op of training is rarely disturbed in all of so many

void read_fastest(Reader& reader, Run& run) {
  run.fastest = own_times(run.shown_step()->began, run.ops, run.stalls);
  const std::size_t stride = (run.steady.size() + most_compared - 1) / most_compared;
  for (std::size_t i = 0; i < run.steady.size() && !run.fastest.empty(); i += stride) {
    const StepRow& step = run.steps[run.steady[i]];
    if (run.steady[i] == *run.shown || step.bucket != run.shown_step()->bucket) continue;
    const std::uint64_t kept = reader.kept();
    const std::vector<Nanoseconds> times =
        own_times(step.began, ops_of(reader, step.step), stalls_of(reader, step.step));
    reader.forget_since(kept);
    if (times.size() != run.fastest.size()) continue;
    for (std::size_t op = 0; op < times.size(); ++op) run.fastest[op] = std::min(run.fastest[op], times[op]);
  }
}

constexpr std::uint64_t most_timed = 60'000;  // ops of all steps of the timeline
constexpr std::size_t most_steps = 24;

// Those that were asked for, the shown one, the slowest and the fastest steady ones, the first of each phase, and then
// others from begin to end.
std::vector<std::size_t> steps_to_time(const Run& run, const std::vector<std::uint64_t>& asked) {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t i) {
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  };
  for (const std::uint64_t step : asked)
    for (std::size_t i = 0; i < run.steps.size(); ++i)
      if (run.steps[i].step == step) add(i);
  if (run.shown) add(*run.shown);
  const auto faster = [&](std::size_t a, std::size_t b) { return run.steps[a].time() < run.steps[b].time(); };
  if (!run.steady.empty()) {
    add(*std::max_element(run.steady.begin(), run.steady.end(), faster));
    add(*std::min_element(run.steady.begin(), run.steady.end(), faster));
  }
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    if (i == 0 || run.steps[i].phase != run.steps[i - 1].phase) add(i);
  for (std::size_t i = 0; i < run.steps.size() && order.size() < most_steps; ++i) add(i);
  if (order.size() > most_steps) order.resize(most_steps);
  return order;
}

void read_events(Reader& reader, Run& run, const std::vector<std::uint64_t>& asked) {
  std::uint64_t ops = 0;
  for (const std::size_t i : steps_to_time(run, asked)) {
    const StepRow& row = run.steps[i];
    ops += row.counters.ops;
    if (ops > most_timed && !run.events.empty()) return;
    StepEvents step{.step = row.step, .phase = row.phase, .bucket = row.bucket, .began = row.began, .ended = row.ended};
    const bool shown = run.shown && i == *run.shown;
    step.ops = shown ? run.ops : ops_of(reader, row.step);
    step.moves = shown ? run.moves : moves_of(reader, run, row.step);
    step.stalls = shown ? run.stalls : stalls_of(reader, row.step);
    run.events.push_back(std::move(step));
  }
}

// The profile of the shown step: of its bucket; where buckets were not told, one with as many ops.
void choose_profile(Run& run) {
  for (std::size_t i = 0; i < run.profiles.size(); ++i) {
    const StepRow* shown = run.shown_step();
    const bool fits = shown == nullptr || (shown->bucket.empty() ? run.profiles[i].trace.ops.size() == run.ops.size()
                                                                 : run.profiles[i].bucket == shown->bucket);
    if (fits) run.profile = i;
  }
}

void read_plan_units(Reader& reader, Run& run, PlanRow& plan) {
  if (run.chunk.value == 0) return reader.refuse("it has a plan and no size of chunks");
  Statement ask(reader.database(),
                "SELECT unit, name, bytes, home, begin_byte, end_byte FROM plan_units WHERE plan = ? ORDER BY unit");
  std::uint64_t total = 0;
  for (ask.ask(plan.plan); reader.row(ask);) {
    if (reader.natural(ask, 0, "a unit's number") != plan.units.size())
      return reader.refuse("units of a plan are missing");
    PlanUnit& unit = plan.units.emplace_back();
    unit.name = ask.text(1);
    unit.bytes = {reader.natural(ask, 2, "a unit's size")};
    reader.keep(unit, {unit.name});
    if (!ask.is_null(3)) unit.home = reader.number(ask, 3, "a unit's home");
    if (ask.is_null(4) || ask.is_null(5)) continue;
    const std::uint64_t begin = reader.natural(ask, 4, "a unit's place"),
                        end = reader.natural(ask, 5, "a unit's place");
    unit.chunks = {begin / run.chunk.value, (end + run.chunk.value - 1) / run.chunk.value};
    total += unit.chunks->end - std::min(unit.chunks->begin, unit.chunks->end);
    if (begin > end || total > most_chunks) return reader.refuse("a unit lies where none can");
  }
  Statement reasons(reader.database(), "SELECT text FROM plan_reasons WHERE plan = ? ORDER BY position");
  for (reasons.ask(plan.plan); reader.row(reasons);)
    reader.keep(plan.reasons, {plan.reasons.emplace_back(reasons.text(0))});
}

void read_plan(Reader& reader, Run& run) {
  const StepRow* shown = run.shown_step();
  if (shown == nullptr || run.profile == std::nullopt) return;
  Statement ask(reader.database(),
                "SELECT plan, step, bucket, reserved_bytes FROM plans WHERE step < ?1 AND bucket = ?2 ORDER BY plan "
                "DESC LIMIT 1");
  ask.ask(shown->step, run.shown_profile()->bucket);
  if (!ask.row()) return;
  PlanRow plan{.plan = ask.integer(0),
               .step = reader.natural(ask, 1, "a plan's step"),
               .bucket = ask.text(2),
               .reserved = {reader.natural(ask, 3, "what a plan reserves")}};
  while (ask.row()) {
  }
  read_plan_units(reader, run, plan);
  Statement moves(
      reader.database(),
      "SELECT verb, issue, due, unit, begin_byte, end_byte, reason FROM plan_moves WHERE plan = ? ORDER BY position");
  for (moves.ask(plan.plan); reader.row(moves);) {
    PlannedMove& move = plan.moves.emplace_back();
    move.verb = moves.text(0);
    move.issue = reader.number(moves, 1, "op");
    move.due = reader.number(moves, 2, "op");
    move.unit = reader.below(moves, 3, plan.units.size(), "unit");
    move.reason = moves.text(6);
    reader.keep(move, {move.verb, move.reason});
    if (!moves.is_null(4) && !moves.is_null(5))
      move.part = Span<Bytes>{{reader.natural(moves, 4, "a byte")}, {reader.natural(moves, 5, "a byte")}};
  }
  run.plan = std::move(plan);
}

}  // namespace

std::vector<Nanoseconds> own_times(Nanoseconds began, const std::vector<OpRow>& ops,
                                   const std::vector<StallRow>& stalls) {
  std::vector<Nanoseconds> times(ops.size());
  for (const StallRow& stall : stalls)
    if (stall.op < times.size())
      times[stall.op] = std::max(Nanoseconds{-largest}, times[stall.op] - std::max(Nanoseconds{}, stall.time()));
  for (std::size_t i = 0; i < ops.size(); ++i) {
    times[i] = std::max(Nanoseconds{1}, times[i] + (ops[i].ended - began));
    began = std::max(began, ops[i].ended);
  }
  return times;
}

Result<Run> load_run(const std::string& path, const LoadOptions& options) {
  auto database = open_recording(path);
  if (!database) return database.error();
  Reader reader(*database, path, options.most_memory);
  Run run{.path = path};
  database->run("BEGIN");  // one state of a file that may still be written
  read_meta(reader, run);
  if (!reader.bad()) run.origin = origin_of(*database);
  read_machine(reader, run);
  read_steps(reader, run);
  read_noise(reader, run);
  read_energy(reader, run);
  read_causes(reader, run);
  if (!reader.bad()) read_profiles(reader, run);
  if (!reader.bad()) {
    choose_step(reader, run);
    if (run.shown) {
      run.ops = ops_of(reader, run.shown_step()->step);
      run.moves = moves_of(reader, run, run.shown_step()->step);
      if (run.shown_step()->step > 0) run.earlier_moves = moves_of(reader, run, run.shown_step()->step - 1);
      run.stalls = stalls_of(reader, run.shown_step()->step);
      read_faults(reader, run);
      read_recomputed(reader, run);
      read_fastest(reader, run);
    }
    choose_profile(run);
    // Pages are most of a recording: of the profile that is looked at (exports take the last where the shown step has
    // none).
    if (!run.profiles.empty()) read_pages(reader, run.profiles[run.profile.value_or(run.profiles.size() - 1)]);
    read_plan(reader, run);
    if (!reader.bad()) read_events(reader, run, options.steps);
    for (Profile& profile : run.profiles) name_tensors(profile.trace);
  }
  if (database->failure()) return *database->failure();
  if (reader.bad()) return *reader.bad();
  return run;
}

}  // namespace vedette::report
