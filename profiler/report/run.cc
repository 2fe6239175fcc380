// Reads a recording for a report. What a file claims is checked before it is used as an index or added up: a file may
// be damaged, or made to harm.
#include "profiler/report/run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/readable.h"
#include "profiler/recording.h"
#include "profiler/sqlite.h"

namespace vedette::report {

namespace {

// of a size or a time: a petabyte, thirteen days; sums of many still fit
constexpr std::int64_t largest = std::int64_t{1} << 50;
constexpr std::int64_t most_samples = 1'000'000;    // of one page in one tick; monitors take some tens
constexpr std::uint64_t most_chunks = 100'000'000;  // that all tensors together may cover

class Reader {
 public:
  Reader(Database& database, std::string path, Bytes room) : database_(database), path_(std::move(path)), room_(room) {}

  Database& database() noexcept { return database_; }
  const std::optional<Error>& bad() const noexcept { return bad_; }
  void refuse(const std::string& what) {
    if (!bad_) bad_ = Error{Cause::malformed_input, path_ + " is damaged: " + what};
  }

  // The next row of an answer; none once something was refused.
  bool row(Statement& s) { return !bad_ && s.row(); }
  // Counts a row that stays in memory, with its texts: a file of any size takes no more of it than its reader was
  // given.
  template <class Row>
  void keep(const Row&, std::initializer_list<std::string_view> texts = {}) {
    kept_ += sizeof(Row);
    for (const std::string_view text : texts) kept_ += text.size();
    if (kept_ <= room_.value || bad_) return;
    bad_ = Error{Cause::unsupported, path_ + " is too large: what a report needs of it takes more than " +
                                         readable(room_) +
                                         " of memory; SQLite's own shell reads such a file (profiler/FORMAT.md)"};
  }

  // Columns of the row that `s` is at.
  std::uint64_t natural(const Statement& s, int column, const char* what) {
    const std::int64_t value = s.integer(column);
    if (value >= 0 && value <= largest) return static_cast<std::uint64_t>(value);
    refuse(std::string(what) + " is " + std::to_string(value));
    return 0;
  }
  std::uint64_t capacity(const Statement& s, int column) {  // of a tier that has no limit it may be larger
    return static_cast<std::uint64_t>(std::clamp<std::int64_t>(s.integer(column), 0, largest));
  }
  std::uint32_t number(const Statement& s, int column, const char* what) {
    const std::uint64_t value = natural(s, column, what);
    if (value <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(value);
    refuse(std::string(what) + " is " + std::to_string(value));
    return 0;
  }
  std::uint32_t below(const Statement& s, int column, std::size_t size, const char* what) {
    const std::uint32_t value = number(s, column, what);
    if (value < size) return value;
    refuse(std::string(what) + " " + std::to_string(value) + " does not exist");
    return 0;
  }
  Nanoseconds time(const Statement& s, int column) { return {s.nanoseconds(column)}; }

 private:
  Database& database_;
  std::string path_;
  Bytes room_;
  std::uint64_t kept_ = 0;
  std::optional<Error> bad_;
};

template <class Enum>
std::optional<Enum> named(std::string_view name, std::initializer_list<std::string_view> names) {
  int value = 0;
  for (const std::string_view each : names) {
    if (each == name) return static_cast<Enum>(value);
    ++value;
  }
  return std::nullopt;
}

std::optional<Phase> phase_named(std::string_view name) {
  return named<Phase>(name, {"forward", "backward", "optimizer"});
}
std::optional<TensorKind> kind_named(std::string_view name) {
  return named<TensorKind>(name, {"weight", "gradient", "optimizer", "activation", "workspace", "input", "constant"});
}

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
  run.imported = meta["imported"];
  run.dropped_events = number("dropped_events");
  run.machine.fault_time = {static_cast<std::int64_t>(number("fault_ns"))};
  if (number("granule_bytes") > 0) run.machine.granule = {number("granule_bytes")};
  run.machine.can_recompute = number("can_recompute") != 0;
  run.machine.can_reorder = number("can_reorder") != 0;
  if (number("plain_step_ns") > 0) run.plain_step = Nanoseconds{static_cast<std::int64_t>(number("plain_step_ns"))};
}

void read_machine(Reader& reader, Run& run) {
  Statement tier(reader.database(), "SELECT name, capacity_bytes, addressable FROM tiers ORDER BY tier");
  for (tier.ask(); reader.row(tier);) {
    run.machine.tiers.push_back(
        {.name = tier.text(0), .capacity = {reader.capacity(tier, 1)}, .addressable = tier.integer(2) != 0});
    reader.keep(run.machine.tiers.back(), {run.machine.tiers.back().name});
  }
  Statement link(reader.database(), "SELECT source, target, bytes_per_s, latency_ns, shared FROM links");
  for (link.ask(); reader.row(link);) {
    Link& l = run.machine.links.emplace_back();
    l.source = {reader.below(link, 0, run.machine.tiers.size(), "a link's tier")};
    l.target = {reader.below(link, 1, run.machine.tiers.size(), "a link's tier")};
    l.bytes_per_s = reader.natural(link, 2, "a link's bandwidth");
    l.latency = {static_cast<std::int64_t>(reader.natural(link, 3, "a link's latency"))};
    if (!link.is_null(4)) l.shared = reader.number(link, 4, "a link's bus");
    reader.keep(l);
  }
}

void read_steps(Reader& reader, Run& run) {
  Statement ask(
      reader.database(),
      "SELECT step, began_ns, ended_ns, bytes_in, bytes_out, bytes_dropped, stall_count, stall_ns, faults, live_bytes,"
      " peak_bytes, resident_bytes, resident_max_bytes, ops, dropped_events, phase, bucket, process_bytes"
      " FROM steps ORDER BY step");
  for (ask.ask(); reader.row(ask);) {
    StepRow& s = run.steps.emplace_back();
    s.step = reader.natural(ask, 0, "a step's number");
    s.began = reader.time(ask, 1);
    s.ended = std::max(s.began, reader.time(ask, 2));
    Counters& c = s.counters;
    std::uint64_t* const counters[] = {
        &c.bytes_in,   &c.bytes_out,  &c.bytes_dropped,  &c.stall_count,        &c.stall_ns, &c.faults,
        &c.live_bytes, &c.peak_bytes, &c.resident_bytes, &c.resident_max_bytes, &c.ops};
    for (int i = 0; i < 11; ++i) *counters[i] = reader.natural(ask, 3 + i, "a counter of a step");
    run.dropped_events = std::max(run.dropped_events, reader.natural(ask, 14, "a step's dropped events"));
    s.phase = ask.text(15);
    s.bucket = ask.text(16);
    if (!ask.is_null(17)) s.process = Bytes{reader.natural(ask, 17, "a step's process bytes")};
    reader.keep(s, {s.phase, s.bucket});
  }
}

// One pass and no order: SQLite would sort the moves of the whole run, on disk, to group them.
void read_causes(Reader& reader, Run& run) {
  std::map<std::pair<std::string, std::string>, CauseTotal> totals;
  Statement ask(reader.database(), "SELECT verb, cause, bytes FROM moves");
  for (ask.ask(); reader.row(ask);) {
    const auto [total, fresh] = totals.try_emplace({ask.text(0), ask.text(1)});
    if (fresh) reader.keep(*total, {total->first.first, total->first.second});
    ++total->second.moves;
    total->second.bytes = {
        std::min(total->second.bytes.value + reader.capacity(ask, 2), static_cast<std::uint64_t>(largest))};
  }
  for (auto& [of, total] : totals) {
    total.verb = of.first, total.cause = of.second;
    run.causes.push_back(std::move(total));
  }
}

std::vector<std::int64_t> shape_of(const std::string& text) {  // "64x3x7x7"
  std::vector<std::int64_t> shape;
  for (std::size_t at = 0; at < text.size() && shape.size() < 16;) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    char* stop = nullptr;
    const long long value = std::strtoll(text.c_str() + at, &stop, 10);
    if (stop != text.c_str() + at) shape.push_back(value);
    at = end + 1;
  }
  return shape;
}

void read_tensors(Reader& reader, Run& run, Profile& profile) {
  Statement ask(
      reader.database(),
      "SELECT tensor, name, bytes, kind, persistent, shape, site_layer, site_op FROM tensors WHERE profile = ?"
      " ORDER BY tensor");
  std::uint64_t total = 0;
  for (ask.ask(profile.profile); reader.row(ask);) {
    if (reader.natural(ask, 0, "a tensor's number") != profile.trace.tensors.size())
      return reader.refuse("tensors are missing");
    Tensor& t = profile.trace.tensors.emplace_back();
    t.name = ask.text(1);
    t.bytes = {reader.natural(ask, 2, "a tensor's size")};
    total += t.bytes.value;
    if (total > static_cast<std::uint64_t>(largest) || (run.chunk.value > 0 && total / run.chunk.value > most_chunks))
      return reader.refuse("the sizes of its tensors cannot be");
    const auto kind = kind_named(ask.text(3));
    if (!kind) return reader.refuse("a tensor is of a kind that is not known");
    t.kind = *kind;
    t.persistent = ask.integer(4) != 0;
    t.shape = shape_of(ask.text(5));
    t.site = {.layer = ask.text(6), .op = ask.text(7)};
    reader.keep(t, {t.name, t.site.layer, t.site.op});
  }
}

void read_ops(Reader& reader, Profile& profile) {
  Statement layers(reader.database(), "SELECT layer, name, phase FROM layers WHERE profile = ? ORDER BY layer");
  for (layers.ask(profile.profile); reader.row(layers);) {
    const auto phase = phase_named(layers.text(2));
    if (!phase || reader.natural(layers, 0, "a layer's number") != profile.trace.layers.size())
      return reader.refuse("its layers cannot be");
    profile.trace.layers.push_back({.name = layers.text(1), .phase = *phase});
    reader.keep(profile.trace.layers.back(), {profile.trace.layers.back().name});
  }
  Statement ops(reader.database(),
                "SELECT op, name, layer, phase, time_ns, workspace_bytes FROM ops WHERE profile = ? ORDER BY op");
  std::int64_t total = 0;
  for (ops.ask(profile.profile); reader.row(ops);) {
    const auto phase = phase_named(ops.text(3));
    if (!phase || reader.natural(ops, 0, "an op's number") != profile.trace.ops.size())
      return reader.refuse("its ops cannot be");
    Op& op = profile.trace.ops.emplace_back();
    op.name = ops.text(1);
    op.phase = *phase;
    op.time = {static_cast<std::int64_t>(reader.natural(ops, 4, "an op's time"))};
    if ((total += op.time.value) > largest) return reader.refuse("the times of its ops cannot be");
    op.workspace = {reader.natural(ops, 5, "an op's workspace")};
    if (!ops.is_null(2)) op.layer = LayerIndex{reader.below(ops, 2, profile.trace.layers.size(), "layer")};
    reader.keep(op, {op.name});
  }
}

void read_operands(Reader& reader, Profile& profile) {
  Trace& trace = profile.trace;
  Statement ask(reader.database(), "SELECT op, role, tensor FROM operands WHERE profile = ? ORDER BY op, role, tensor");
  for (ask.ask(profile.profile); reader.row(ask);) {
    const std::uint32_t op = reader.below(ask, 0, trace.ops.size(), "op");
    const TensorIndex tensor{reader.below(ask, 2, trace.tensors.size(), "tensor")};
    if (reader.bad()) return;
    const std::string role = ask.text(1);
    reader.keep(tensor);
    (role == "read"    ? trace.ops[op].reads
     : role == "write" ? trace.ops[op].writes
                       : trace.ops[op].frees)
        .push_back(tensor);
  }
}

void read_pages(Reader& reader, Profile& profile) {
  Trace& trace = profile.trace;
  Statement ask(reader.database(),
                "SELECT op, tensor, first_page, end_page, read, written, samples FROM page_accesses WHERE profile = ?");
  const std::uint64_t page = trace.page_bytes.value;
  for (ask.ask(profile.profile); reader.row(ask);) {
    PageAccess& a = trace.pages.emplace_back();
    reader.keep(a);
    a.op = {reader.below(ask, 0, trace.ops.size(), "op")};
    a.tensor = {reader.below(ask, 1, trace.tensors.size(), "tensor")};
    a.pages = {reader.natural(ask, 2, "a page"), reader.natural(ask, 3, "a page")};
    if (reader.bad()) return;
    const std::uint64_t pages = (trace.tensors[a.tensor.value].bytes.value + page - 1) / page;
    if (a.pages.begin >= a.pages.end || a.pages.end > pages)
      return reader.refuse("pages outside of their tensor were touched");
    a.read = ask.integer(4) != 0;
    a.written = ask.integer(5) != 0;
    if (ask.is_null(6) && profile.samples.empty()) continue;
    profile.samples.resize(trace.pages.size());  // what was seen exactly among them counts as seen by none
    profile.samples.back() = static_cast<std::uint32_t>(std::clamp<std::int64_t>(ask.integer(6), 0, most_samples));
    reader.keep(profile.samples.back());
  }
  // Recorders write them in this order; SQLite would sort them anew, on disk.
  const auto before = [](const PageAccess& x, const PageAccess& y) {
    return std::tie(x.op, x.tensor, x.pages) < std::tie(y.op, y.tensor, y.pages);
  };
  if (std::is_sorted(trace.pages.begin(), trace.pages.end(), before)) return;
  if (profile.samples.empty()) return std::sort(trace.pages.begin(), trace.pages.end(), before);
  std::vector<std::uint32_t> order(trace.pages.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](auto x, auto y) { return before(trace.pages[x], trace.pages[y]); });
  const std::vector<PageAccess> pages = std::exchange(trace.pages, {});
  const std::vector<std::uint32_t> samples = std::exchange(profile.samples, {});
  for (const std::uint32_t i : order) trace.pages.push_back(pages[i]), profile.samples.push_back(samples[i]);
}

void read_places(Reader& reader, Run& run, Profile& profile) {
  Statement ask(reader.database(), "SELECT tensor, begin_byte FROM tensor_places WHERE profile = ?");
  for (ask.ask(profile.profile); reader.row(ask);) {
    const std::uint32_t t = reader.below(ask, 0, profile.trace.tensors.size(), "tensor");
    const std::uint64_t at = reader.natural(ask, 1, "a tensor's place");
    if (reader.bad() || run.chunk.value == 0) return;
    profile.places.resize(profile.trace.tensors.size());
    profile.places[t] = at;
  }
}

void read_profiles(Reader& reader, Run& run) {
  Statement ask(
      reader.database(),
      "SELECT profile, step, bucket, name, source, device, page_bytes, tracked FROM profiles ORDER BY profile");
  for (ask.ask(); reader.row(ask);) {
    Profile& p = run.profiles.emplace_back();
    p.profile = ask.integer(0);
    p.step = reader.natural(ask, 1, "a profile's step");
    p.bucket = ask.text(2);
    p.trace.name = ask.text(3);
    p.trace.source = ask.text(4);
    p.trace.device = ask.text(5);
    p.trace.page_bytes = {reader.natural(ask, 6, "the size of a page")};
    p.tracked = ask.integer(7) != 0;
    reader.keep(p, {p.bucket, p.trace.name, p.trace.source, p.trace.device});
    if (p.trace.page_bytes.value == 0) return reader.refuse("its pages have no size");
    read_tensors(reader, run, p);
    if (!reader.bad()) read_ops(reader, p);
    if (!reader.bad()) read_operands(reader, p);
    if (!reader.bad()) read_places(reader, run, p);
  }
}

// Which steps stand for the run, and which of them is shown. A step of warm-up or profiling stands for no other: where
// a run was killed before it planned, one of those is shown and none is steady.
void choose_step(Run& run) {
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
  run.shown = by_time[(by_time.size() - 1) / 2];
}

void read_op_times(Reader& reader, Run& run) {
  Statement ask(reader.database(),
                "SELECT op, IFNULL(text, ''), began_ns, ended_ns, live_bytes, resident_bytes"
                " FROM op_times LEFT JOIN names USING(name) WHERE step = ? ORDER BY op");
  for (ask.ask(run.shown_step()->step); reader.row(ask);) {
    OpRow& op = run.ops.emplace_back();
    op.op = reader.number(ask, 0, "op");
    op.name = ask.text(1);
    op.began = reader.time(ask, 2);
    op.ended = reader.time(ask, 3);
    op.live = {reader.capacity(ask, 4)};
    op.resident = {reader.capacity(ask, 5)};
    reader.keep(op, {op.name});
  }
}

std::vector<MoveRow> moves_of(Reader& reader, std::uint64_t step) {
  std::vector<MoveRow> moves;
  Statement ask(reader.database(),
                "SELECT verb, cause, chunk, bytes, issued_ns, started_ns, ended_ns FROM moves WHERE step = ?");
  for (ask.ask(step); reader.row(ask);) {
    moves.push_back({.verb = ask.text(0),
                     .cause = ask.text(1),
                     .chunk = reader.natural(ask, 2, "a chunk"),
                     .bytes = {reader.natural(ask, 3, "a move's size")},
                     .issued = reader.time(ask, 4),
                     .started = reader.time(ask, 5),
                     .ended = reader.time(ask, 6)});
    reader.keep(moves.back());
  }
  return moves;
}

void read_waits(Reader& reader, Run& run) {
  Statement stalls(reader.database(), "SELECT op, in_allocation, began_ns, ended_ns FROM stalls WHERE step = ?");
  for (stalls.ask(run.shown_step()->step); reader.row(stalls);) {
    run.stalls.push_back({.op = reader.number(stalls, 0, "op"),
                          .in_allocation = stalls.integer(1) != 0,
                          .began = reader.time(stalls, 2),
                          .ended = reader.time(stalls, 3)});
    reader.keep(run.stalls.back());
  }
  Statement faults(reader.database(), "SELECT op, chunk, page, write FROM faults WHERE step = ?");
  for (faults.ask(run.shown_step()->step); reader.row(faults);) {
    run.faults.push_back({.op = reader.number(faults, 0, "op"),
                          .chunk = reader.natural(faults, 1, "a chunk"),
                          .page = reader.natural(faults, 2, "a page"),
                          .write = faults.integer(3) != 0});
    reader.keep(run.faults.back());
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

Result<Run> load_run(const std::string& path, const LoadOptions& options) {
  auto database = open_recording(path);
  if (!database) return database.error();
  Reader reader(*database, path, options.most_memory);
  Run run{.path = path};
  database->run("BEGIN");  // one state of a file that may still be written
  read_meta(reader, run);
  read_machine(reader, run);
  read_steps(reader, run);
  read_causes(reader, run);
  if (!reader.bad()) read_profiles(reader, run);
  if (!reader.bad()) {
    choose_step(run);
    if (run.shown) {
      read_op_times(reader, run);
      run.moves = moves_of(reader, run.shown_step()->step);
      if (run.shown_step()->step > 0) run.earlier_moves = moves_of(reader, run.shown_step()->step - 1);
      read_waits(reader, run);
    }
    choose_profile(run);
    // Pages are most of a recording: of the profile that is looked at (exports take the last where the shown step has
    // none).
    if (!run.profiles.empty()) read_pages(reader, run.profiles[run.profile.value_or(run.profiles.size() - 1)]);
    read_plan(reader, run);
  }
  if (database->failure()) return *database->failure();
  if (reader.bad()) return *reader.bad();
  return run;
}

}  // namespace vedette::report
