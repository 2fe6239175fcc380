// The schema and the insertions. Enumerations are stored as their names: a recording is read with the sqlite3 shell as well.
#include "profiler/tables.h"

#include <utility>

namespace vedette {

namespace {

constexpr const char* schema = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tiers(tier INTEGER PRIMARY KEY, name TEXT NOT NULL, capacity_bytes INTEGER NOT NULL, addressable INTEGER NOT NULL);
CREATE TABLE links(source INTEGER NOT NULL, target INTEGER NOT NULL, bytes_per_s INTEGER NOT NULL, latency_ns INTEGER NOT NULL,
  shared INTEGER);
CREATE TABLE profiles(profile INTEGER PRIMARY KEY, step INTEGER NOT NULL, bucket TEXT NOT NULL, name TEXT NOT NULL,
  source TEXT NOT NULL, device TEXT NOT NULL, page_bytes INTEGER NOT NULL);
CREATE TABLE tensors(profile INTEGER NOT NULL, tensor INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL,
  kind TEXT NOT NULL, persistent INTEGER NOT NULL, PRIMARY KEY(profile, tensor)) WITHOUT ROWID;
CREATE TABLE layers(profile INTEGER NOT NULL, layer INTEGER NOT NULL, name TEXT NOT NULL, phase TEXT NOT NULL,
  PRIMARY KEY(profile, layer)) WITHOUT ROWID;
CREATE TABLE ops(profile INTEGER NOT NULL, op INTEGER NOT NULL, name TEXT NOT NULL, layer INTEGER, phase TEXT NOT NULL,
  time_ns INTEGER NOT NULL, workspace_bytes INTEGER NOT NULL, PRIMARY KEY(profile, op)) WITHOUT ROWID;
CREATE TABLE operands(profile INTEGER NOT NULL, op INTEGER NOT NULL, role TEXT NOT NULL, tensor INTEGER NOT NULL,
  PRIMARY KEY(profile, op, role, tensor)) WITHOUT ROWID;
CREATE TABLE page_accesses(profile INTEGER NOT NULL, op INTEGER NOT NULL, tensor INTEGER NOT NULL, first_page INTEGER NOT NULL,
  end_page INTEGER NOT NULL, read INTEGER NOT NULL, written INTEGER NOT NULL);
CREATE TABLE plans(plan INTEGER PRIMARY KEY, step INTEGER NOT NULL, bucket TEXT NOT NULL, reserved_bytes INTEGER NOT NULL);
CREATE TABLE plan_units(plan INTEGER NOT NULL, unit INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL, home INTEGER,
  PRIMARY KEY(plan, unit)) WITHOUT ROWID;
CREATE TABLE plan_moves(plan INTEGER NOT NULL, position INTEGER NOT NULL, verb TEXT NOT NULL, issue INTEGER NOT NULL,
  due INTEGER NOT NULL, unit INTEGER NOT NULL, begin_byte INTEGER, end_byte INTEGER, source INTEGER NOT NULL,
  target INTEGER NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE names(name INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE op_times(step INTEGER NOT NULL, op INTEGER NOT NULL, name INTEGER NOT NULL, began_ns INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL);
CREATE TABLE moves(step INTEGER NOT NULL, verb TEXT NOT NULL, cause TEXT NOT NULL, chunk INTEGER NOT NULL,
  bytes INTEGER NOT NULL, issued_ns INTEGER NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL);
CREATE TABLE stalls(step INTEGER NOT NULL, op INTEGER NOT NULL, in_allocation INTEGER NOT NULL, began_ns INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL);
CREATE TABLE faults(step INTEGER NOT NULL, op INTEGER NOT NULL, chunk INTEGER NOT NULL, page INTEGER NOT NULL,
  write INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL);
CREATE TABLE steps(step INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, bytes_in INTEGER NOT NULL,
  bytes_out INTEGER NOT NULL, bytes_dropped INTEGER NOT NULL, stall_count INTEGER NOT NULL, stall_ns INTEGER NOT NULL,
  faults INTEGER NOT NULL, live_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, resident_bytes INTEGER NOT NULL,
  resident_max_bytes INTEGER NOT NULL, ops INTEGER NOT NULL, dropped_events INTEGER NOT NULL);
)";

Database with_tables(Database database) {
  // The log keeps what was committed when the process dies; synchronous=NORMAL spares the disk that the run is busy with.
  database.run("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL");
  database.run(("PRAGMA application_id=" + std::to_string(recording_application_id)).c_str());
  database.run("BEGIN");
  database.run(schema);
  database.run(("PRAGMA user_version=" + std::to_string(recording_schema)).c_str());
  database.run("COMMIT");
  return database;
}

}  // namespace

std::string_view name_of(TensorKind kind) noexcept {
  constexpr std::string_view names[] = {"weight", "gradient", "optimizer", "activation", "workspace", "input", "constant"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Phase phase) noexcept {
  constexpr std::string_view names[] = {"forward", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(Verb verb) noexcept {
  constexpr std::string_view names[] = {"fetch", "evict", "drop"};
  return names[static_cast<std::size_t>(verb)];
}

std::string_view name_of(MoveCause cause) noexcept {
  constexpr std::string_view names[] = {"planned", "urgent", "room", "fault", "bring_home"};
  return names[static_cast<std::size_t>(cause)];
}

Tables::Tables(Database database)
    : database_(with_tables(std::move(database))),
      meta_(database_, "INSERT OR REPLACE INTO meta VALUES(?, ?)"),
      name_(database_, "INSERT OR REPLACE INTO names VALUES(?, ?)"),
      op_time_(database_, "INSERT INTO op_times VALUES(?, ?, ?, ?, ?)"),
      move_(database_, "INSERT INTO moves VALUES(?, ?, ?, ?, ?, ?, ?, ?)"),
      stall_(database_, "INSERT INTO stalls VALUES(?, ?, ?, ?, ?)"),
      fault_(database_, "INSERT INTO faults VALUES(?, ?, ?, ?, ?, ?, ?)"),
      step_(database_, "INSERT OR REPLACE INTO steps VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") {}

void Tables::close() { database_.run("PRAGMA wal_checkpoint(TRUNCATE)"); }

void Tables::session(const SessionRecord& session) {
  const Machine& machine = session.machine;
  meta("policy", session.policy);
  meta("budget_bytes", std::to_string(session.budget.value));
  meta("chunk_bytes", std::to_string(session.chunk.value));
  meta("fault_ns", std::to_string(machine.fault_time.value));
  meta("granule_bytes", std::to_string(machine.granule.value));
  meta("can_recompute", machine.can_recompute ? "1" : "0");
  meta("can_reorder", machine.can_reorder ? "1" : "0");
  Statement tier(database_, "INSERT OR REPLACE INTO tiers VALUES(?, ?, ?, ?)");
  for (std::size_t i = 0; i < machine.tiers.size(); ++i) {
    tier.run(i, machine.tiers[i].name, machine.tiers[i].capacity.value, machine.tiers[i].addressable);
  }
  Statement link(database_, "INSERT INTO links VALUES(?, ?, ?, ?, ?)");
  for (const Link& l : machine.links) link.run(l.source.value, l.target.value, l.bytes_per_s, l.latency.value, l.shared);
}

void Tables::profile(std::uint64_t step, std::uint64_t bucket, const Trace& trace) {
  const std::int64_t profile = ++profiles_;
  // A bucket is a hash of 64 bits, which SQLite's signed integers cannot show: text.
  Statement(database_, "INSERT INTO profiles VALUES(?, ?, ?, ?, ?, ?, ?)")
      .run(profile, step, std::to_string(bucket), trace.name, trace.source, trace.device, trace.page_bytes.value);
  Statement tensor(database_, "INSERT INTO tensors VALUES(?, ?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const Tensor& t = trace.tensors[i];
    tensor.run(profile, i, t.name, t.bytes.value, name_of(t.kind), t.persistent);
  }
  Statement layer(database_, "INSERT INTO layers VALUES(?, ?, ?, ?)");
  for (std::size_t i = 0; i < trace.layers.size(); ++i) {
    layer.run(profile, i, trace.layers[i].name, name_of(trace.layers[i].phase));
  }
  write_ops(profile, trace);
  Statement access(database_, "INSERT INTO page_accesses VALUES(?, ?, ?, ?, ?, ?, ?)");
  for (const PageAccess& a : trace.pages) {
    access.run(profile, a.op.value, a.tensor.value, a.pages.begin, a.pages.end, a.read, a.written);
  }
}

void Tables::write_ops(std::int64_t profile, const Trace& trace) {
  Statement op(database_, "INSERT INTO ops VALUES(?, ?, ?, ?, ?, ?, ?)");
  Statement operand(database_, "INSERT OR IGNORE INTO operands VALUES(?, ?, ?, ?)");
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& o = trace.ops[i];
    std::optional<std::uint32_t> layer;
    if (o.layer) layer = o.layer->value;
    op.run(profile, i, o.name, layer, name_of(o.phase), o.time.value, o.workspace.value);
    for (const TensorIndex tensor : o.reads) operand.run(profile, i, "read", tensor.value);
    for (const TensorIndex tensor : o.writes) operand.run(profile, i, "write", tensor.value);
    for (const TensorIndex tensor : o.frees) operand.run(profile, i, "free", tensor.value);
  }
}

void Tables::plan(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan) {
  const std::int64_t number = ++plans_;
  Statement(database_, "INSERT INTO plans VALUES(?, ?, ?, ?)").run(number, step, std::to_string(bucket), plan.reserved.value);
  Statement unit(database_, "INSERT INTO plan_units VALUES(?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < units.tensors.size(); ++i) {
    std::optional<std::uint32_t> home;
    if (i < plan.home.size()) home = plan.home[i].value;
    unit.run(number, i, units.tensors[i].name, units.tensors[i].bytes.value, home);
  }
  Statement move(database_, "INSERT INTO plan_moves VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < plan.moves.size(); ++i) {
    const Move& m = plan.moves[i];
    std::optional<std::uint64_t> begin, end;
    if (m.extent.part) begin = m.extent.part->begin.value, end = m.extent.part->end.value;
    move.run(number, i, name_of(m.verb), m.issue.value, m.due.value, m.extent.tensor.value, begin, end, m.source.value,
             m.target.value);
  }
}

void Tables::step(const StepRecord& r) {
  const Counters& c = r.counters;
  step_.run(r.step, r.began.value, r.ended.value, c.bytes_in, c.bytes_out, c.bytes_dropped, c.stall_count, c.stall_ns, c.faults,
            c.live_bytes, c.peak_bytes, c.resident_bytes, c.resident_max_bytes, c.ops, r.dropped_events);
}

void Tables::event(const Event& event) {
  std::visit([this](const auto& e) { write(e); }, event);
}

void Tables::write(const OpEvent& e) { op_time_.run(e.step, e.op.value, e.name, e.began.value, e.ended.value); }
void Tables::write(const NameEvent& e) { name_.run(e.name, std::string_view(e.text.data(), e.length)); }

void Tables::write(const MoveEvent& e) {
  const MoveRecord& m = e.move;
  move_.run(e.step, name_of(m.verb), name_of(m.cause), m.chunk, m.bytes.value, m.issued.value, m.started.value, m.ended.value);
}

void Tables::write(const StallRecord& r) {
  stall_.run(r.step, r.op.value, r.in_allocation, r.began.value, r.ended.value);
}

void Tables::write(const FaultRecord& r) {
  fault_.run(r.step, r.op.value, r.chunk, r.page, r.write, r.began.value, r.ended.value);
}

}  // namespace vedette
