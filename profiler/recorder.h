// The recorder: an observer that writes the events of a run into one SQLite file (its tables: profiler/FORMAT.md), from
// a thread of its own.
//
//   auto recorder = vedette::Recorder::open({.path = "run.vedette"}).value();
//   options.observer = recorder.get();     // outlives the session
//
// moved(), stalled(), faulted(), op_began() and op_ended() copy a record of 64 bytes into a bounded ring: no lock, no
// allocation, no system call. Records that do not fit are dropped and counted. The thread empties the ring twenty times
// a second and at each step's end; the file survives the program's death up to that moment (write-ahead log; not a
// power failure). The thread also reads a GPU's counter of energy, once for each step that ends.
//
// Thread rule: the observer calls as Observer says; flush(), dropped() and failure() from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "vedette/birth_observer.h"
#include "vedette/gpu_observer.h"
#include "vedette/observer.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

class LivePage;

struct RecorderOptions {
  std::string path;                    // an earlier recording of this name is replaced, any other file is not
  std::size_t ring_records = 1 << 15;  // of each of two rings, 2 MiB each: a second at 30,000 records
  std::string program = {};            // for `meta`: the program, in the user's words
  bool live = true;                    // show counters to `vedette top` (profiler/live.h)
  // Time of a step without vedette, where it was measured: reports compare with it.
  std::optional<Nanoseconds> plain_step = {};
  // Keep the stack of calls of each allocation in a profiled step: some microseconds each.
  bool stacks = false;
  std::string libtorch = {};  // its version, for `meta`; empty: the program uses none, or does not say
};

class Recorder final : public Observer, public GpuObserver, public BirthObserver {
 public:
  // Errors: Cause::system when the file cannot be made; Cause::unsupported when `path` is a file that is no recording;
  // Cause::unavailable when another recorder writes it.
  static Result<std::unique_ptr<Recorder>> open(const RecorderOptions& options);
  // for programs that would know before a long run; touches nothing
  static Result<void> may_open(const std::string& path);
  ~Recorder() override;  // writes the rest; leaves one file, without -wal and -shm beside it
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void flush();                            // returns when everything told so far is in the file
  std::uint64_t dropped() const noexcept;  // records that found the ring full
  std::optional<Error> failure() const;    // why writing stopped (a full disk); the run itself goes on
  LivePage* live() const noexcept;         // nullptr: it shows no counters

  void opened(const Machine& machine, std::string_view policy, Bytes budget, Bytes chunk) override;
  void writes_bounded(Bytes a_second, Bytes a_second_without) override;
  void moves_by(std::string_view mechanism) override;
  void resized(Nanoseconds now, Bytes budget) override;
  bool wants_births() const noexcept override;
  void born(std::uint64_t step, std::uint32_t birth) noexcept override;
  void births_profiled(std::uint64_t step, std::span<const std::uint32_t> births) override;
  void counts_energy(const EnergyCounter& counter) override;
  void has_tables(const GpuTableCounters& tables) override;
  void step_began(std::uint64_t step, Nanoseconds now) override;
  void step_ended(std::uint64_t step, Nanoseconds now, const Counters& of_this_step) override;
  void profiled(std::uint64_t step, std::uint64_t bucket, const Trace& trace) override;
  void planned(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan) override;
  void placed(std::uint64_t step, std::uint64_t bucket, std::span<const Placed> units,
              std::span<const Placed> tensors) override;
  void step_ran(std::uint64_t step, std::string_view phase, std::optional<std::uint64_t> bucket) override;
  void sampled(std::uint64_t step, OpIndex op, Bytes resident, Bytes live) override;
  void op_began(std::uint64_t step, OpIndex op, std::string_view name, Nanoseconds now) override;
  void op_ran_on(std::uint64_t step, OpIndex op, std::uint32_t stream) override;
  void op_ended(std::uint64_t step, OpIndex op, Nanoseconds now) override;
  void moved(const MoveRecord& record) override;
  void stalled(const StallRecord& record) override;
  void faulted(const FaultRecord& record) override;
  void recomputed(const RecomputeRecord& record) override;

 private:
  struct State;
  explicit Recorder(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace vedette
