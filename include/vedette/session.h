// Adopt a program whose memory is larger than fast memory: what it allocates here lives in an arena whose chunks are
// moved between fast memory (a budget of frames) and a slow tier, while scopes tell where the program is.
//
// A step is one iteration, an op is one tick in it. An op announces its operands: when op() returns they are resident,
// and stay so until the scope ends. Where steps repeat, the session sees which of them a large op touches between one
// of its own allocations and the next: from then on they are resident there, and elsewhere in the op may be away.
// Memory that nobody announced, and an operand touched where it was not before, is served by the fault path, slower.
//
// Thread rule: allocate, release and resident from any thread; step, layer and op from one thread at a time. Scopes
// nest strictly and never move. Everything that can fail says so in a Result, but step scopes' ends, which report
// through on_message.
//
// The arena outlives the Session object: memory that was allocated here stays valid, and is paged within the same
// budget, until it is released. One session lives at a time in a process.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/result.h"
#include "vedette/rows.h"
#include "vedette/units.h"

namespace vedette {

class Session;
namespace detail {
struct SessionState;
}

class [[nodiscard("a StepScope marks the scope it lives in")]] StepScope {
 public:
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  friend class Session;
  explicit StepScope(Session & session) noexcept : session_(session) {}
  Session& session_;
};

class [[nodiscard("a LayerScope marks the scope it lives in")]] LayerScope {
 public:
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  friend class Session;
  explicit LayerScope(Session & session) noexcept : session_(session) {}
  Session& session_;
};

class [[nodiscard("an OpScope marks the scope it lives in")]] OpScope {
 public:
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  friend class Session;
  explicit OpScope(Session & session) noexcept : session_(session) {}
  Session& session_;
};

class [[nodiscard("a ResidentScope pins memory for the scope it lives in")]] ResidentScope {
 public:
  ~ResidentScope();
  ResidentScope(const ResidentScope&) = delete;
  ResidentScope& operator=(const ResidentScope&) = delete;

 private:
  friend class Session;
  ResidentScope(detail::SessionState * state, std::uint32_t first, std::uint32_t count) noexcept
      : state_(state), first_(first), count_(count) {}
  detail::SessionState* state_;  // nullptr: the memory is always resident
  std::uint32_t first_, count_;  // chunks
};

struct AllocateOptions {
  Bytes bytes;
  Bytes alignment = {64};      // a power of two, at most 4096
  std::string_view name = {};  // for reports; empty: named by where it is born
  TensorKind kind = TensorKind::activation;
  bool persistent = false;  // expected to outlive the step: weights and optimizer state
};

// Bytes [first, first + bytes) of one allocation, of which an op touches little: rows of a table, for instance.
struct Part {
  const void* first = nullptr;
  Bytes bytes;
  bool written = false;
};

// A step as its plan sees it, with its ops' least times so far. Each section of a large op is an op.
struct PlannedStep {
  Trace trace;    // what lives, moves and is used together in whole chunks is one tensor; what never moves is one that
                  // every op reads
  Trace program;  // the same in the program's tensors, with the profile's times
  std::uint64_t steps = 0;  // that ran whole by the plan
  Rows rows;  // what its latest steps touched in parts, the profiled one included; no steps: nothing, or too much to
              // remember
};

enum class ProfileTicks : std::uint8_t {
  operands,  // no page tracking: what ops announce is what they touch
  layers,    // pages touched, per layer: a tick is a run of ops of one layer, told at the last of them
  ops,       // pages touched, per op, what the program does before it included
};

// What a session needs beside fast_memory at most, in whatever size: books, rings, stacks, the pages of its tables.
// Held by tests.
constexpr Bytes session_overhead = 64_MiB;

struct SessionOptions {
  Bytes fast_memory;            // the budget: resident bytes, in-flight buffers included, never exceed it
  std::string slow = "nvme:.";  // "nvme:DIRECTORY", or "host" (plain memory, for tests)
  std::string policy = "vedette";
  Bytes chunk = {std::uint64_t{2} << 20};  // what moves; tests of small models use 64_KiB
  std::uint32_t warmup_steps = 1;  // run on demand before the profiling epoch; optimizers have their state afterwards
  ProfileTicks profile = ProfileTicks::layers;
  // What sees pages in the profiling step: one of tracker_names(). One that this machine or its memory does not allow
  // is refused at open().
  std::string tracker = "best";
  Observer* observer = nullptr;                           // borrowed; outlives the session
  std::function<void(std::string_view)> on_message = {};  // diagnostics, one sentence each
  std::uint64_t seed = 1;
  // Bytes that come back from the slow tier are compared with what went there (XXH3); other bytes end the program with
  // a sentence instead of becoming numbers. Costs about 0.2 ms of a background thread's time for 2 MiB each way.
  bool checksums = false;
};

// "best", and every page tracker by name: zap, missing, missing-sigbus, minor, minor-sigbus, guards, mprotect. Some
// fail system calls into memory that is being profiled and that nobody holds (EFAULT): missing-sigbus, minor-sigbus,
// guards and mprotect always, missing and minor where userfaultfd is for user mode only.
std::vector<std::string_view> tracker_names();

class Session {
 public:
  // Errors: unsupported where an option or a second session says so, unavailable where the machine lacks something,
  // system where the slow tier cannot be opened; each names what to do.
  static Result<std::unique_ptr<Session>> open(SessionOptions);
  ~Session();  // memory stays valid; scopes must have ended; never throws

  // Memory of `options.bytes` bytes, contents undefined, as malloc's. Errors: out_of_memory (disk full, arena
  // exhausted).
  Result<std::byte*> allocate(const AllocateOptions& options);
  static void release(
      std::byte* memory) noexcept;  // nullptr and foreign memory are ignored; from any thread, also after the session
  static bool owns(const void* memory) noexcept;  // in the arena of this or an earlier session

  // Says what memory is for that was allocated before anybody knew; reports and policies see it from the running step's
  // profile on. Memory of nobody's, and small memory, is ignored.
  void label(const void* memory, std::string_view name, TensorKind kind);

  // The shape of the tensor that fills the allocation that holds `memory`, for recordings; the first one told counts.
  // Worth telling while wants_shapes(): somebody listens, and the running step may become a profile. wants_shapes():
  // from the thread that announces ops.
  void shape(const void* memory, std::span<const std::int64_t> sizes);
  bool wants_shapes() const noexcept;

  StepScope step();
  LayerScope layer(std::string_view name, Phase phase = Phase::forward);
  // The ops that follow belong to this layer, until the next mark, a layer scope or the step's end: for programs that
  // learn where they are only when an op begins.
  void mark_layer(std::string_view name, Phase phase);
  // `reads` and `writes` are addresses inside allocations of this session; others are ignored.
  // An allocation that the op touches only in `parts` is in neither list. Parts may be others at every step: they are
  // resident when op() returns, as operands are, but no plan moves such an allocation; what was touched longest ago
  // leaves first.
  OpScope op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
             std::span<const Part> parts = {});
  ResidentScope resident(const void* memory);  // the whole allocation that holds this address

  Counters counters() const noexcept;
  std::optional<Error> take_error();          // the first thing that went wrong in the background since the last call
  Bytes smallest_budget() const noexcept;     // the largest in-op working set seen, plus the slab
  std::string_view phase() const noexcept;    // "warm-up", "profiling", "planned"
  std::string mechanism() const;              // what moves memory here, in words
  std::string_view tracker() const noexcept;  // what sees pages when a step is profiled, by name; empty: nothing does

  // The trace of the last profiled step, in the program's tensors; nullptr until one was profiled.
  const Trace* trace() const noexcept;
  // The steps that have a plan, one for each sequence of ops that was met, in order of their first.
  std::vector<PlannedStep> planned_steps() const;

 private:
  friend class StepScope;
  friend class LayerScope;
  friend class OpScope;
  explicit Session(detail::SessionState* state) noexcept : state_(state) {}
  detail::SessionState* state_;  // belongs to the arena, which outlives this object
};

}  // namespace vedette
