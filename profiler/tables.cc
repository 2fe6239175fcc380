// The insertions. Enumerations are stored as their names: a recording is read with the sqlite3 shell as well.
#include "profiler/tables.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "profiler/explain.h"

namespace vedette {

namespace {

Database with_tables(Database database) {
  // The log keeps committed rows when the process dies; synchronous=NORMAL spares the disk that the run is busy with.
  database.run("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL");
  database.run(("PRAGMA application_id=" + std::to_string(recording_application_id)).c_str());
  database.run("BEGIN");
  database.run(recording_schema_sql().c_str());
  database.run(("PRAGMA user_version=" + std::to_string(recording_schema)).c_str());
  database.run("COMMIT");
  return database;
}

// Makes room for a new recording: removes an earlier one. Its name goes last: then another process may use it.
void remove_recording(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  for (const char* suffix : {"-wal", "-shm", "-journal", ""}) std::filesystem::remove(path + suffix, ignored);
}

// A byte of a recording in use is locked, behind those that SQLite locks (sqlite.org/fileformat: the lock-byte page),
// and one whose place is the number of its process. So a rival need not read the file: SQLite finds the files beside it
// by name, and would remove those of a recording that has just replaced this one. The locks belong to an open file:
// SQLite drops all that belong to the process.
constexpr off_t byte_of_use = 0x40000000 + 1024, bytes_of_processes = byte_of_use + 1;
constexpr off_t most_processes = off_t{1} << 22;  // PID_MAX_LIMIT

struct flock lock_of(off_t first, off_t bytes) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = bytes;
  return lock;
}

// Of a file whose byte of use is locked.
Result<void> has_ended(const Fd& recording, const std::string& path) {
  struct flock found = lock_of(bytes_of_processes, most_processes + 1);
  const bool told = ::fcntl(recording.get(), F_OFD_GETLK, &found) == 0 && found.l_type != F_UNLCK;
  const off_t recorder = told ? found.l_start - bytes_of_processes : 0;
  if (recorder > 0 && ::kill(static_cast<pid_t>(recorder), 0) != 0 && errno == ESRCH) return {};
  return Error{Cause::unavailable, path + " is being recorded by " +
                                       (recorder > 0 ? "process " + std::to_string(recorder) : "another process") +
                                       "; name another file for this one"};
}

bool is_at(const Fd& file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// Only a file whose lock was got is looked at and removed, so that of several processes one does it. A lock whose
// recorder has ended is that of a process which removes the file, for an instant, or of a forked child, for longer.
Result<void> make_way(const std::string& path) {
  constexpr int instants = 100;
  constexpr timespec an_instant{0, 10'000'000};
  const Fd there(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!there && errno == ENOENT) return {};
  struct flock lock = lock_of(byte_of_use, 1);
  for (int waited = 0; there && waited < instants && ::fcntl(there.get(), F_OFD_SETLK, &lock) != 0; ++waited) {
    if (errno != EAGAIN && errno != EACCES) break;  // no locks here
    if (!is_at(there, path)) return {};
    if (auto ended = has_ended(there, path); !ended) return ended;
    ::nanosleep(&an_instant, nullptr);
  }
  if (there && !is_at(there, path)) return {};  // it has gone
  if (auto may = may_become_recording(path); !may) return may;
  remove_recording(path);
  return {};
}

// Made here and not by SQLite, which would let others read it and follow a link to a file that is not there; SQLite's
// files beside it have the same mode. It is locked before it has its name.
Result<Fd> make_private_file(const std::string& path) {
  const auto make = [](const std::string& name) {
    Fd made(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    for (const off_t byte : {byte_of_use, bytes_of_processes + ::getpid()}) {
      struct flock lock = lock_of(byte, 1);
      if (made) (void)::fcntl(made.get(), F_OFD_SETLK, &lock);  // some network file systems have no locks
    }
    return made;
  };
  static std::atomic<unsigned> number = 0;  // relaxed: only its value counts
  const std::string first = path + ".new-" + std::to_string(::getpid()) + "-" +
                            std::to_string(number.fetch_add(1, std::memory_order_relaxed));
  Fd made = make(first);
  if (made && ::renameat2(AT_FDCWD, first.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    const int error = errno;
    ::unlink(first.c_str());
    made.reset();
    errno = error;
    if (error == EINVAL) made = make(path);  // a file system that cannot say whether the name is free
  }
  if (made) return made;
  const int error = errno;
  return Error{Cause::system, path + ": unable to open database file (" + std::strerror(error) + ")", error};
}

}  // namespace

Result<void> may_become_recording(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::file_size(path, ignored) == 0) return {};
  auto database = Database::open(path, Database::Mode::read);
  std::int64_t id = 0;
  if (database) {
    Statement ask(*database, "PRAGMA application_id");
    ask.ask();
    if (ask.row()) id = ask.integer(0);
  }
  if (id == recording_application_id) return {};
  return Error{Cause::unsupported, path + " exists and is no recording; name another file, or remove it"};
}

Result<NewRecording> create_recording(const std::string& path) {
  constexpr int most_others = 100;  // that were quicker
  Result<Fd> made = Fd{};
  for (int others = 0; others < most_others; ++others) {
    if (auto way = make_way(path); !way) return way.error();
    made = make_private_file(path);
    if (made || made.error().errno_value != EEXIST) break;
  }
  if (!made) return made.error();
  auto database = Database::open(path, Database::Mode::create);
  if (!database) return database.error();
  return NewRecording{std::move(*made), std::move(*database)};
}

std::string_view name_of(TensorKind kind) noexcept {
  constexpr std::string_view names[] = {"weight",    "gradient", "optimizer", "activation",
                                        "workspace", "input",    "constant"};
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
  constexpr std::string_view names[] = {"planned", "urgent", "room"};
  return names[static_cast<std::size_t>(cause)];
}

Tables::Tables(Database database)
    : database_(with_tables(std::move(database))),
      meta_(database_, "INSERT OR REPLACE INTO meta VALUES(?, ?)"),
      name_(database_, "INSERT OR REPLACE INTO names VALUES(?, ?)"),
      op_time_(database_, "INSERT OR REPLACE INTO op_times VALUES(?, ?, ?, ?, ?, ?, ?, ?)"),
      move_(database_, "INSERT INTO moves VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      stall_(database_, "INSERT INTO stalls VALUES(?, ?, ?, ?, ?, ?)"),
      fault_(database_, "INSERT INTO faults VALUES(?, ?, ?, ?, ?, ?, ?, ?)"),
      recomputed_(database_, "INSERT INTO recomputations VALUES(?, ?, ?, ?, ?, ?, ?, ?)"),
      step_(database_,
            "INSERT OR REPLACE INTO steps VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      noise_(database_, "INSERT OR REPLACE INTO step_noise VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      energy_(database_, "INSERT OR REPLACE INTO step_energy VALUES(?, ?, ?, ?)") {}

void Tables::close() { database_.run("PRAGMA wal_checkpoint(TRUNCATE)"); }

void Tables::session(const SessionRecord& session) {
  machine_ = session.machine;
  const Machine& machine = session.machine;
  meta("policy", session.policy);
  meta("budget_bytes", std::to_string(session.budget.value));
  meta("chunk_bytes", std::to_string(session.chunk.value));
  meta("fault_ns", std::to_string(machine.fault_time.value));
  meta("granule_bytes", std::to_string(machine.granule.value));
  meta("can_recompute", machine.can_recompute ? "1" : "0");
  meta("can_reorder", machine.can_reorder ? "1" : "0");
  if (machine.whole_tensors) meta("whole_tensors", "1");
  Statement tier(database_, "INSERT OR REPLACE INTO tiers VALUES(?, ?, ?, ?)");
  for (std::size_t i = 0; i < machine.tiers.size(); ++i) {
    tier.run(i, machine.tiers[i].name, machine.tiers[i].capacity.value, machine.tiers[i].addressable);
  }
  Statement link(database_, "INSERT INTO links VALUES(?, ?, ?, ?, ?, ?)");
  for (const Link& l : machine.links)
    link.run(l.source.value, l.target.value, l.bytes_per_s, l.latency.value, l.shared, l.alone_bytes_per_s);
}

namespace {

// "64x3x7x7"; nothing where no shape is known. A scalar's is "1".
std::optional<std::string> text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text.append(text.empty() ? "" : "x").append(std::to_string(size));
  if (text.empty()) return std::nullopt;
  return text;
}

std::optional<std::string> unless_empty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace

void Tables::profile(std::uint64_t step, std::uint64_t bucket, const Trace& trace,
                     std::span<const std::uint64_t> samples) {
  const std::int64_t profile = ++profiles_;
  profile_of_[bucket] = profile;
  // A bucket is a hash of 64 bits, which SQLite's signed integers cannot show: text.
  Statement(database_, "INSERT INTO profiles VALUES(?, ?, ?, ?, ?, ?, ?, ?)")
      .run(profile, step, std::to_string(bucket), trace.name, trace.source, trace.device, trace.page_bytes.value,
           !trace.pages.empty());
  Statement note(database_, "INSERT INTO notes VALUES(?, ?, ?)");
  for (std::size_t i = 0; i < trace.notes.size(); ++i) note.run(profile, i, trace.notes[i]);
  Statement tensor(database_, "INSERT INTO tensors VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const Tensor& t = trace.tensors[i];
    tensor.run(profile, i, t.name, t.bytes.value, name_of(t.kind), t.persistent, text_of(t.shape),
               unless_empty(t.site.layer), unless_empty(t.site.op));
  }
  Statement layer(database_, "INSERT INTO layers VALUES(?, ?, ?, ?)");
  for (std::size_t i = 0; i < trace.layers.size(); ++i) {
    layer.run(profile, i, trace.layers[i].name, name_of(trace.layers[i].phase));
  }
  write_ops(profile, trace);
  Statement access(database_, "INSERT INTO page_accesses VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < trace.pages.size(); ++i) {
    const PageAccess& a = trace.pages[i];
    std::optional<std::uint64_t> seen;
    if (i < samples.size()) seen = samples[i];
    access.run(profile, a.op.value, a.tensor.value, a.pages.begin, a.pages.end, a.read, a.written, seen);
  }
}

void Tables::stack(std::uint32_t number, const std::vector<std::string>& frames) {
  Statement frame(database_, "INSERT OR REPLACE INTO stacks VALUES(?, ?, ?)");
  for (std::size_t i = 0; i < frames.size(); ++i) frame.run(number, i, frames[i]);
}

void Tables::tensor_stacks(std::span<const std::uint32_t> stacks) {
  Statement of_tensor(database_, "INSERT INTO tensor_stacks VALUES(?, ?, ?)");
  for (std::size_t t = 0; t < stacks.size(); ++t)
    if (stacks[t] != 0) of_tensor.run(profiles_, t, stacks[t]);
}

void Tables::places(std::uint64_t bucket, PlacesRecord record) {
  unit_places_ = std::move(record.units);
  const auto profile = profile_of_.find(bucket);
  if (profile == profile_of_.end()) return;
  Statement place(database_, "INSERT OR REPLACE INTO tensor_places VALUES(?, ?, ?, ?)");
  for (const Placed& p : record.tensors)
    place.run(profile->second, p.index, p.offset.value, (p.offset + p.bytes).value);
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
  const auto profile = profile_of_.find(bucket);
  std::optional<std::int64_t> of_profile;
  if (profile != profile_of_.end()) of_profile = profile->second;
  Statement(database_, "INSERT INTO plans VALUES(?, ?, ?, ?, ?)")
      .run(number, step, std::to_string(bucket), of_profile, plan.reserved.value);
  Statement reason(database_, "INSERT INTO plan_reasons VALUES(?, ?, ?)");
  for (std::size_t i = 0; i < plan.reasons.size(); ++i) reason.run(number, i, plan.reasons[i]);
  write_units(number, units, plan);
  write_moves(number, units, plan);
  Statement in_place(database_, "INSERT OR IGNORE INTO plan_in_place VALUES(?, ?, ?, ?)");
  for (const InPlace& p : plan.in_place) in_place.run(number, p.op.value, p.tensor.value, p.tier.value);
  Statement again(database_, "INSERT INTO plan_recomputations VALUES(?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < plan.recomputations.size(); ++i) {
    const Recomputation& r = plan.recomputations[i];
    again.run(number, i, r.before.value, r.producer.value, r.tensor.value);
  }
  Statement order(database_, "INSERT INTO plan_order VALUES(?, ?, ?)");
  for (std::size_t i = 0; i < plan.order.size(); ++i) order.run(number, i, plan.order[i].value);
}

void Tables::write_units(std::int64_t plan, const Trace& units, const Plan& decided) {
  Statement unit(database_, "INSERT INTO plan_units VALUES(?, ?, ?, ?, ?, ?, ?)");
  for (std::size_t i = 0; i < units.tensors.size(); ++i) {
    std::optional<std::uint32_t> home;
    if (i < decided.home.size()) home = decided.home[i].value;
    std::optional<std::uint64_t> begin, end;
    if (i < unit_places_.size())
      begin = unit_places_[i].offset.value, end = (unit_places_[i].offset + unit_places_[i].bytes).value;
    unit.run(plan, i, units.tensors[i].name, units.tensors[i].bytes.value, home, begin, end);
  }
  unit_places_.clear();
}

void Tables::write_moves(std::int64_t plan, const Trace& units, const Plan& decided) {
  const std::vector<MoveBasis> basis = explain(units, machine_, decided);
  Statement move(database_, "INSERT INTO plan_moves VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  const auto number = [](const auto& index) {
    std::optional<std::int64_t> value;
    if (index) value = index->value;
    return value;
  };
  for (std::size_t i = 0; i < decided.moves.size(); ++i) {
    const Move& m = decided.moves[i];
    const MoveBasis& b = basis[i];
    std::optional<std::uint64_t> begin, end;
    if (m.extent.part) begin = m.extent.part->begin.value, end = m.extent.part->end.value;
    move.run(plan, i, name_of(m.verb), m.issue.value, m.due.value, m.extent.tensor.value, begin, end, m.source.value,
             m.target.value, number(b.last_use), number(b.next_use), number(b.gap), b.transfer.value, b.slack.value,
             b.reason);
  }
}

void Tables::step(const StepRecord& r) {
  const Counters& c = r.counters;
  std::optional<std::string> bucket;
  if (r.bucket) bucket = std::to_string(*r.bucket);
  step_.run(r.step, r.phase, bucket, r.began.value, r.ended.value, c.bytes_in.value, c.bytes_out.value,
            c.bytes_dropped.value, c.stall_count, c.stall_ns, c.faults, c.live_bytes.value, c.peak_bytes.value,
            c.resident_bytes.value, c.resident_max_bytes.value, c.ops, r.dropped_events, r.process_bytes,
            c.far_bytes_in.value, c.far_bytes_out.value, c.moved_between_slow_tiers.value, c.bytes_in_place.value);
  if (r.energy)
    energy_.run(r.step, machine_.tiers.empty() ? std::string_view() : std::string_view(machine_.tiers[0].name),
                r.energy->millijoules, r.energy->watched.value);
  if (!r.noise) return;
  const auto number = [](const std::optional<Nanoseconds>& time) {
    return time ? std::optional<std::int64_t>(time->value) : std::nullopt;
  };
  const MachineUse& m = r.noise->machine;
  noise_.run(r.step, r.noise->elapsed.value, r.noise->processor.value, r.noise->switches, m.elapsed.value,
             number(m.steal), number(m.processor_wait), number(m.memory_wait), number(m.io_wait));
}

void Tables::recomputed(const RecomputeRecord& r) {
  recomputed_.run(r.step, ++recomputations_, r.op.value, r.chunk, r.chunks, r.ops, r.began.value, r.ended.value);
}

void Tables::event(const Event& event) {
  std::visit([this](const auto& e) { write(e); }, event);
}

void Tables::write(const OpEvent& e) {
  std::optional<std::uint64_t> resident, live;
  if (e.resident != OpEvent::unknown) resident = e.resident.value, live = e.live.value;
  std::optional<std::uint32_t> stream;
  if (e.stream != OpEvent::no_stream) stream = e.stream;
  op_time_.run(e.step, e.op.value, e.name, e.began.value, e.ended.value, resident, live, stream);
}
void Tables::write(const NameEvent& e) { name_.run(e.name, std::string_view(e.text.data(), e.length)); }

void Tables::write(const MoveEvent& e) {
  const MoveRecord& m = e.move;
  move_.run(e.step, ++moves_, name_of(m.verb), name_of(m.cause), m.chunk, m.bytes.value, m.issued.value,
            m.started.value, m.ended.value, m.slow);
}

void Tables::write(const StallRecord& r) {
  stall_.run(r.step, ++stalls_, r.op.value, r.in_allocation, r.began.value, r.ended.value);
}

void Tables::write(const FaultRecord& r) {
  fault_.run(r.step, ++faults_, r.op.value, r.chunk, r.page, r.write, r.began.value, r.ended.value);
}

}  // namespace vedette
