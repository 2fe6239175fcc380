// The tables of a recording, and one function per thing that is written into them. profiler/FORMAT.md is the reference.
//
// Thread rule: one thread at a time.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "profiler/energy.h"
#include "profiler/events.h"
#include "profiler/noise.h"
#include "profiler/schema.h"
#include "profiler/sqlite.h"
#include "vedette/model.h"
#include "vedette/observer.h"

namespace vedette {

struct StepRecord {
  std::uint64_t step = 0;
  std::string phase;  // as Session::phase()
  std::optional<std::uint64_t> bucket;
  Nanoseconds began, ended;
  Counters counters;
  std::uint64_t dropped_events = 0;            // since the run began
  std::optional<std::uint64_t> process_bytes;  // resident, of the whole process
  std::optional<StepNoise> noise;              // none: it was not watched
  std::optional<StepEnergy> energy;            // of the fastest tier; none: no counter was read
};

struct SessionRecord {
  Machine machine;
  std::string policy;
  Bytes budget, chunk;
};

struct PlacesRecord {
  std::vector<Placed> units, tensors;
};

class Tables {
 public:
  // Makes the tables in an empty database. Failures are in database().failure().
  explicit Tables(Database database);

  void begin() { database_.run("BEGIN"); }
  void commit() { database_.run("COMMIT"); }
  void close();  // folds the write-ahead log into the file

  void meta(std::string_view key, std::string_view value) { meta_.run(key, value); }
  void session(const SessionRecord& session);
  // `samples`: of each of the trace's page accesses, how many samples saw it; empty where they were seen exactly.
  void profile(std::uint64_t step, std::uint64_t bucket, const Trace& trace,
               std::span<const std::uint64_t> samples = {});
  void stack(std::uint32_t number, const std::vector<std::string>& frames);
  void tensor_stacks(std::span<const std::uint32_t> stacks);  // of the latest profile's tensors; 0: not known
  void places(std::uint64_t bucket, PlacesRecord record);     // of the bucket's last profile, and of its next plan
  void plan(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan);
  void step(const StepRecord& record);
  void recomputed(const RecomputeRecord& record);
  void event(const Event& event);

  Database& database() noexcept { return database_; }

 private:
  void write(const OpEvent& event);
  void write(const NameEvent& event);
  void write(const MoveEvent& event);
  void write(const StallRecord& record);
  void write(const FaultRecord& record);
  void write_ops(std::int64_t profile, const Trace& trace);
  void write_units(std::int64_t plan, const Trace& units, const Plan& decided);
  void write_moves(std::int64_t plan, const Trace& units, const Plan& decided);

  Database database_;
  std::int64_t profiles_ = 0, plans_ = 0, moves_ = 0, stalls_ = 0, faults_ = 0,
               recomputations_ = 0;  // numbers given so far
  Machine machine_;
  std::map<std::uint64_t, std::int64_t> profile_of_;  // by bucket: the last
  std::vector<Placed> unit_places_;                   // of the plan that comes next
  Statement meta_, name_, op_time_, move_, stall_, fault_, recomputed_, step_, noise_, energy_;
};

// A recording may be made at `path`: nothing, an empty file or an earlier recording is there. Cause::unsupported:
// another file is.
Result<void> may_become_recording(const std::string& path);

// An empty database at `path`, for Tables. An earlier recording there is replaced. While `in_use` is open, no other
// process replaces it. Errors: Cause::unsupported when `path` is a file that
// is no recording; Cause::unavailable when it is in use; Cause::system.
struct NewRecording {
  Fd in_use;
  Database database;
};
Result<NewRecording> create_recording(const std::string& path);

std::string_view name_of(TensorKind kind) noexcept;
std::string_view name_of(Phase phase) noexcept;
std::string_view name_of(Verb verb) noexcept;
std::string_view name_of(MoveCause cause) noexcept;

}  // namespace vedette
