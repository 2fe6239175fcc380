// The tables of a recording, and one function per thing that is written into them. profiler/FORMAT.md is the reference.
//
// Thread rule: one thread at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/events.h"
#include "profiler/sqlite.h"
#include "vedette/model.h"
#include "vedette/observer.h"

namespace vedette {

constexpr std::int64_t recording_application_id = 0x76647474;  // "vdtt", in the file's header
constexpr std::int64_t recording_schema = 1;                   // user_version in the file's header

struct StepRecord {
  std::uint64_t step = 0;
  Nanoseconds began, ended;
  Counters counters;
  std::uint64_t dropped_events = 0;  // since the run began
};

struct SessionRecord {
  Machine machine;
  std::string policy;
  Bytes budget, chunk;
};

class Tables {
 public:
  // Makes the tables in an empty database. Failures are in database().failure().
  explicit Tables(Database database);

  void begin() { database_.run("BEGIN"); }
  void commit() { database_.run("COMMIT"); }
  void close();                      // folds the write-ahead log into the file

  void meta(std::string_view key, std::string_view value) { meta_.run(key, value); }
  void session(const SessionRecord& session);
  void profile(std::uint64_t step, std::uint64_t bucket, const Trace& trace);
  void plan(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan);
  void step(const StepRecord& record);
  void event(const Event& event);

  Database& database() noexcept { return database_; }

 private:
  void write(const OpEvent& event);
  void write(const NameEvent& event);
  void write(const MoveEvent& event);
  void write(const StallRecord& record);
  void write(const FaultRecord& record);
  void write_ops(std::int64_t profile, const Trace& trace);

  Database database_;
  std::int64_t profiles_ = 0, plans_ = 0;  // numbers given so far
  Statement meta_, name_, op_time_, move_, stall_, fault_, step_;
};

std::string_view name_of(TensorKind kind) noexcept;
std::string_view name_of(Phase phase) noexcept;
std::string_view name_of(Verb verb) noexcept;
std::string_view name_of(MoveCause cause) noexcept;

}  // namespace vedette
