// The headline, memory over the shown step, and the cost of profiling: figures that come from times and counters alone.
#include <algorithm>

#include "base/readable.h"
#include "model/liveness.h"
#include "profiler/report/report.h"
#include "profiler/tables.h"
#include "vedette/machine.h"

namespace vedette::report {

namespace {

constexpr std::size_t rate_slices = 160;     // as many bars as a picture of a step shows well
constexpr std::size_t most_samples = 20000;  // of memory over a step: ten for each pixel of a wide screen

template <class T>
T median(std::vector<T> values) {
  if (values.empty()) return {};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Of>
auto median_of_steady(const Run& run, Of of) {
  std::vector<decltype(of(run.steps.front()))> values;
  if (run.steady.empty() && run.shown) values.push_back(of(*run.shown_step()));
  for (const std::size_t i : run.steady) values.push_back(of(run.steps[i]));
  return median(std::move(values));
}

Span<Nanoseconds> quartiles_of_steady(const Run& run) {
  std::vector<Nanoseconds> times;
  for (const std::size_t i : run.steady) times.push_back(run.steps[i].time());
  if (times.empty()) return {run.shown_step()->time(), run.shown_step()->time()};
  std::sort(times.begin(), times.end());
  const std::size_t last = times.size() - 1;
  return {times[last / 4], times[(3 * last + 3) / 4]};
}

double ratio(Nanoseconds a, Nanoseconds b) { return static_cast<double>(a.value) / static_cast<double>(b.value); }

// At the fullest op the bytes over the budget are away, and have to come back before their next use: the link's time
// for it is a bound.
void add_bounds(Headline& h, const Run& run, const Bound& bound) {
  const Profile* profile = run.shown_profile();
  if (profile == nullptr) return;
  const Trace trace = steady_trace(run);
  Nanoseconds compute;
  for (const Op& op : trace.ops) compute += op.time;
  h.compute = h.bound = compute;
  const std::uint64_t peak = peak_bytes(trace).value;
  const Machine as_it_runs = on_its_bus(run.machine);
  const Link* link = as_it_runs.link({1}, {0});
  if (bound && !run.machine.tiers.empty())
    h.bound = bound(trace, run.machine);
  else if (link != nullptr && peak > run.budget.value)
    h.bound = std::max(compute, transfer_time({peak - run.budget.value}, link->bytes_per_s));
  if (h.median_step.value > 0) h.speed_of_bound = ratio(*h.bound, h.median_step);
}

// Live bytes after each op, as the profile's lifetimes say.
std::vector<Bytes> traced_live(const Trace& trace) {
  std::vector<std::int64_t> change(trace.ops.size() + 1);
  const auto alive = lives(trace);
  for (std::size_t t = 0; t < alive.size(); ++t) {
    change[alive[t].begin.value] += static_cast<std::int64_t>(trace.tensors[t].bytes.value);
    change[alive[t].end.value] -= static_cast<std::int64_t>(trace.tensors[t].bytes.value);
  }
  std::vector<Bytes> live;
  std::int64_t now = 0;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) live.push_back({static_cast<std::uint64_t>(now += change[i])});
  return live;
}

std::vector<MoveRate> rates(const Run& run) {
  const StepRow& step = *run.shown_step();
  std::vector<MoveRate> slices;
  const std::int64_t length = step.time().value;
  if (length <= 0) return slices;
  const auto edge = [&](std::size_t i) {
    return Nanoseconds{static_cast<std::int64_t>(static_cast<long double>(length) * i / rate_slices)};
  };
  for (std::size_t i = 0; i < rate_slices; ++i) slices.push_back({.time = {edge(i), edge(i + 1)}});
  for (const MoveRow& move : run.moves) {
    const std::int64_t at = (move.ended - step.began).value;
    if (at < 0 || at >= length) continue;
    const auto slice = std::upper_bound(slices.begin(), slices.end(), at,
                                        [](std::int64_t t, const MoveRate& s) { return t < s.time.end.value; });
    if (slice == slices.end()) continue;
    (move.verb == "fetch" ? slice->in : slice->out) += move.bytes;
  }
  return slices;
}

std::vector<PhaseSpan> phases(const Run& run) {
  std::vector<PhaseSpan> spans;
  const Nanoseconds origin = run.shown_step()->began;
  Nanoseconds last;
  for (std::size_t i = 0; i < run.ops.size(); ++i) {
    const std::string_view phase = name_of(run.shown_profile()->trace.ops[i].phase);
    const Nanoseconds end = run.ops[i].ended - origin;
    if (spans.empty() || spans.back().phase != phase)
      spans.push_back({.phase = std::string(phase), .time = {last, end}});
    spans.back().time.end = last = end;
  }
  return spans;
}

// Of each run of samples where there are too many, those of most live and of most resident bytes.
void thin(std::vector<MemorySample>& samples) {
  if (samples.size() <= most_samples) return;
  const std::size_t each = (2 * samples.size() + most_samples - 1) / most_samples;
  std::vector<MemorySample> kept;
  for (std::size_t begin = 0; begin < samples.size(); begin += each) {
    const auto first = samples.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = samples.begin() + static_cast<std::ptrdiff_t>(std::min(begin + each, samples.size()));
    const auto live = std::max_element(first, last, [](const auto& a, const auto& b) { return a.live < b.live; });
    const auto resident =
        std::max_element(first, last, [](const auto& a, const auto& b) { return a.resident < b.resident; });
    kept.push_back(*std::min(live, resident));
    if (live != resident) kept.push_back(*std::max(live, resident));
  }
  samples = std::move(kept);
}

}  // namespace

Trace steady_trace(const Run& run) {
  Trace trace = run.shown_profile()->trace;
  if (!run.follows_profile()) return trace;
  for (std::size_t i = 0; i < run.fastest.size(); ++i) trace.ops[i].time = std::min(trace.ops[i].time, run.fastest[i]);
  return trace;
}

Headline headline_of(const Run& run, const ReportOptions& options) {
  Headline h{.program = run.program, .policy = run.policy, .imported = run.origin.imported, .budget = run.budget};
  if (run.shown_profile() != nullptr) h.ops = run.shown_profile()->trace.ops.size();
  h.steps = run.steps.size();
  h.steady_steps = run.steady.size();
  for (const StepRow& step : run.steps) {
    h.peak = std::max(h.peak, Bytes{step.counters.peak_bytes});
    h.resident_max = std::max(h.resident_max, Bytes{step.counters.resident_max_bytes});
  }
  if (h.peak.value == 0 && run.shown_profile() != nullptr) h.peak = peak_bytes(run.shown_profile()->trace);
  if (run.budget.value > 0 && run.origin.imported.empty()) h.fits = h.resident_max <= run.budget;
  if (h.peak.value > 0) h.budget_share = static_cast<double>(run.budget.value) / static_cast<double>(h.peak.value);
  h.plain_step = options.plain_step ? options.plain_step : run.plain_step;
  h.dropped_events = run.dropped_events;
  if (run.shown_step() != nullptr) {
    const Counters& shown = run.shown_step()->counters;
    h.median_step = median_of_steady(run, [](const StepRow& s) { return s.time(); });
    h.step_quartiles = quartiles_of_steady(run);
    h.stall = {static_cast<std::int64_t>(median_of_steady(run, [](const StepRow& s) { return s.counters.stall_ns; }))};
    if (h.median_step.value > 0) h.stall_share = ratio(h.stall, h.median_step);
    h.moved = {
        .in = shown.bytes_in, .out = shown.bytes_out, .dropped = shown.bytes_dropped, .in_place = shown.bytes_in_place};
    h.faults = shown.faults;
  }
  if (h.plain_step && h.median_step.value > 0) h.speed_of_plain = ratio(*h.plain_step, h.median_step);
  add_bounds(h, run, options.bound);
  return h;
}

bool alike(const Headline& a, const Headline& b) noexcept {
  return a.steady_steps > 0 && b.steady_steps > 0 && a.step_quartiles.begin <= b.step_quartiles.end &&
         b.step_quartiles.begin <= a.step_quartiles.end;
}

Memory memory_of(const Run& run) {
  Memory memory;
  if (run.shown_step() == nullptr) return memory;
  const Nanoseconds origin = run.shown_step()->began;
  const bool measured = std::any_of(run.ops.begin(), run.ops.end(),
                                    [](const OpRow& op) { return op.live.value > 0 || op.resident.value > 0; });
  memory.live_source = measured ? "measured" : "traced";
  std::vector<Bytes> traced;
  if (!measured && run.follows_profile()) traced = traced_live(run.shown_profile()->trace);
  if (measured || !traced.empty()) {
    for (std::size_t i = 0; i < run.ops.size(); ++i) {
      const OpRow& op = run.ops[i];
      memory.samples.push_back(
          {.time = op.ended - origin, .live = measured ? op.live : traced[i], .resident = op.resident});
    }
  }
  thin(memory.samples);
  memory.moved = rates(run);
  if (run.follows_profile() && run.has_phases()) memory.phases = phases(run);
  return memory;
}

std::vector<Followed> followed_by(const Run& run) {
  std::vector<Followed> all;
  for (const StepRow& step : run.steps) {
    if (step.phase.empty()) return {};
    auto known = std::find_if(all.begin(), all.end(), [&](const Followed& f) { return f.phase == step.phase; });
    if (known == all.end()) known = all.insert(known, {.phase = step.phase});
    ++known->steps;
    known->time = known->time + step.time();
    known->stall = known->stall + Nanoseconds{static_cast<std::int64_t>(step.counters.stall_ns)};
    known->moved = known->moved + Bytes{step.counters.bytes_in + step.counters.bytes_out};
    known->faults += step.counters.faults;
  }
  return all;
}

Overhead overhead_of(const Run& run) {
  Overhead o;
  o.events_dropped = run.dropped_events;
  std::uint64_t written = run.ops.size();
  for (const CauseTotal& total : run.causes) written += total.moves;
  for (const StepRow& step : run.steps) {
    if (step.process) o.process = std::max(o.process.value_or(Bytes{}), *step.process);
    const bool profiled = std::any_of(run.profiles.begin(), run.profiles.end(),
                                      [&](const Profile& p) { return p.step == step.step && p.tracked; });
    if (profiled && !o.profiling_step) o.profiling_step = step.time();
    if (step.phase == "warm-up") o.warm_up_step = step.time();
  }
  if (o.process) o.unmanaged = Bytes{o.process->value - std::min(o.process->value, run.budget.value)};
  const Nanoseconds usual =
      run.shown_step() == nullptr ? Nanoseconds{} : median_of_steady(run, [](const StepRow& s) { return s.time(); });
  if (o.profiling_step && usual.value > 0) o.profiling_cost = ratio(*o.profiling_step, usual);
  o.events_written = written;
  return o;
}

namespace {

// A plain step took less time than the bound.
bool is_below_bound(const Headline& h) { return h.bound && h.plain_step && *h.plain_step < *h.bound; }

std::string about_sizes(const BudgetSizes& sizes) {
  return "The budget changed " + std::to_string(sizes.changes) + " times between steps, from " + readable(sizes.least) +
         " to " + readable(sizes.most) + ", and was " + readable(sizes.last) +
         " at last: what is said of the budget is of the first.";
}

std::string about_tables(const GpuTableCounters& tables) {
  const std::uint64_t rows = tables.rows_on_device + tables.rows_on_host;
  std::string said = "Tables of " + readable(Bytes{tables.bytes()}) + " have " + readable(Bytes{tables.device_bytes}) +
                     " in GPU memory; other rows are used where they lie in the host's.";
  if (rows > 0)
    said += " Of " + std::to_string(rows) + " rows that ops looked up, " + std::to_string(tables.rows_on_host) +
            " lay in the host's memory.";
  return said;
}

}  // namespace

Report analyse(const Run& run, const ReportOptions& options) {
  Report report;
  report.path = run.path;
  report.headline = headline_of(run, options);
  report.origin = run.origin;
  report.noise = noise_of(run, report.headline);
  report.energy = energy_of(run);
  report.waterfall = waterfall_of(run, report.headline, report.noise);
  report.advised = advised_of(run, options, report.waterfall, report.noise);
  const std::size_t stride = std::max<std::size_t>(
      1, (run.steps.size() + options.most_steps - 1) / std::max<std::size_t>(options.most_steps, 1));
  for (std::size_t i = 0; i < run.steps.size(); i += stride) report.steps.rows.push_back(run.steps[i]);
  report.steps.left_out = run.steps.size() - report.steps.rows.size();
  if (run.shown_step() != nullptr) report.steps.shown = run.shown_step()->step;
  report.causes = run.causes, report.machine = run.machine;
  report.memory = memory_of(run);
  report.heat = heat_of(run, options);
  report.layers = layers_of(run, report.heat);
  limit_ranges(report.heat, options.most_ranges);
  report.tensors = tensors_of(run);
  if (run.shown_profile() != nullptr) report.short_lived = short_lived_of(run.shown_profile()->trace);
  report.sharing = sharing_of(run);
  report.reuse = reuse_of(run, options);
  report.prices = prices_of(run, options, report.tensors);
  report.plan = plan_of(run);
  report.recomputed = recomputed_of(run);
  report.timeline = timeline_of(run);
  report.followed = followed_by(run);
  report.overhead = overhead_of(run), report.overhead.wear = wear_of(run, options);
  const Origin& o = run.origin;
  const auto remark = [&](bool applies, std::string sentence) {
    if (applies) report.remarks.push_back(std::move(sentence));
  };
  remark(!run.ended,
         "The recording has no end: the run was still going, or was killed. What was written by then is shown.");
  remark(run.dropped_events > 0,
         std::to_string(run.dropped_events) + " events found the recorder's ring full and are missing.");
  remark(!o.imported.empty(), "Imported from " + o.imported + ": what that does not tell is missing here.");
  remark(run.steps.empty() && o.imported.empty(), "No step ended, so there are no times.");
  remark(!run.steps.empty() && run.steady.empty(),
         "No step ran after warm-up and profiling: the shown one is of them, and stands for no other.");
  remark(report.noise.disturbed, report.noise.why);
  remark(o.sizes.changes > 0, about_sizes(o.sizes));
  remark(o.tables.bytes() > 0, about_tables(o.tables));
  remark(
      is_below_bound(report.headline),
      "A plain step was faster than the bound: the bound counts operators at their times in this recording, when they "
      "ran beside moves and were watched.");
  remark(
      report.reuse.in_parts,
      "Some tensors are touched in part: other budgets are simulated with the chunks that the profiled step touched, "
      "and steps that touch other rows fetch more than that.");
  remark(options.machine && o.imported.empty(),
         "Other budgets are simulated on the machine that was named; all else is of the recording's own.");
  remark(run.shown_profile() == nullptr,
         "No profile fits the shown step, so there is nothing about layers, tensors and pages.");
  remark(run.shown_profile() != nullptr && !run.shown_profile()->tracked,
         "Pages were not tracked: an operand counts as touched from its first byte to its last.");
  return report;
}

}  // namespace vedette::report
