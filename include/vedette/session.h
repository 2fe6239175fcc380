// A session runs a program whose memory is larger than fast memory. Allocations live in an arena, whose chunks move
// between fast memory (a budget of frames) and a slow tier. Scopes announce steps, layers and ops.
//
// A step is one iteration, an op one tick in it. An op announces its operands: they are resident when op() returns, and
// until its scope ends. Where steps repeat, the session learns the operands that a large op touches between one of its
// allocations and the next. From then on they are resident there, and may be away elsewhere in the op. Accesses that no
// op announced, or that differ from the learned ones, are served by page faults: slower, never wrong.
//
// Thread rule: allocate, release and resident from any thread; step, layer and op from one thread at a time. Scopes
// nest strictly and never move. Functions that can fail return a Result; the ends of step scopes report through
// on_message.
//
// A child of fork() does not inherit the arena. There scopes do nothing, allocate() and take_error() return an Error
// that says so, releases of a parent's memory are ignored, and a load or store of it ends the child with a sentence. A
// child may open a session of its own. A child of clone(2) runs no fork handlers: it dies of SIGSEGV instead.
//
// The arena outlives the Session object: its memory stays valid, and is paged within the same budget, until it is
// released. It then holds no more fast memory than living tensors fill. This counts against the budget of the next
// session, of which it keeps at most half, but for memory that cannot leave. One session lives at a time in a process.
//
// A thread that is cancelled (pthread_cancel, deferred) while it is inside a call ends after that call. One that waits
// for memory that is away ends after the wait.
#pragma once
#include <chrono>
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
class GpuProgram;
class GpuMemory;
namespace detail {
class SessionCore;
class Lease;
}  // namespace detail

// Marks the program's text while it lives: it neither moves nor is copied.
class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 protected:
  Scope() = default;
  ~Scope() = default;
};

class [[nodiscard("a StepScope marks the scope it lives in")]] StepScope : Scope {
 public:
  ~StepScope();

 private:
  friend class Session;
  explicit StepScope(Session & session) noexcept : session_(session) {}
  Session& session_;
};

class [[nodiscard("a LayerScope marks the scope it lives in")]] LayerScope : Scope {
 public:
  ~LayerScope();

 private:
  friend class Session;
  explicit LayerScope(Session & session) noexcept : session_(session) {}
  Session& session_;
};

class [[nodiscard("an OpScope marks the scope it lives in")]] OpScope : Scope {
 public:
  ~OpScope();

 private:
  friend class Session;
  explicit OpScope(Session & session) noexcept : session_(session) {}
  Session& session_;
};

class [[nodiscard("a ResidentScope pins memory for the scope it lives in")]] ResidentScope : Scope {
 public:
  ~ResidentScope();

 private:
  friend class Session;
  ResidentScope(detail::SessionCore * core, std::uint32_t first, std::uint32_t count) noexcept
      : core_(core), first_(first), count_(count) {}
  detail::SessionCore* core_;    // nullptr: the memory is always resident
  std::uint32_t first_, count_;  // chunks
};

// How an op of the running step can run again, on the same operands, with the same bytes as results. It belongs to the
// session, which asks for it while the op runs and forgets it when the step ends. It keeps no tensor alive.
class Recipe {
 public:
  struct Place {  // the operand that lay at `was` when the op ran, or was born there, lies at `now`
    const std::byte* was = nullptr;
    Bytes bytes;
    std::byte* now = nullptr;
  };
  virtual ~Recipe() = default;
  // Operands that are in no place lie where they lay, or are copies that the recipe has. A tensor that is born
  // elsewhere is scratch. False: a result that has a place was not made there. Thread rule: any thread, one at a time;
  // it allocates with AllocateOptions::scratch only.
  virtual bool run(std::span<const Place> places) noexcept = 0;
  // The operand of the op that lies at `first` is one of the recipe's, by address.
  virtual bool uses(const std::byte* first, Bytes bytes) const noexcept = 0;
  // A hash of everything on which the result depends, but for bytes: ops that are alike are tried once.
  virtual std::uint64_t signature() const noexcept = 0;
};

enum class Recompute : std::uint8_t {
  off,
  planned,  // as the policy plans
  always,   // all that can be recomputed is dropped at every opportunity: for tests
};

struct AllocateOptions {
  Bytes bytes;
  Bytes alignment = {64};      // a power of two, at most 4096
  std::string_view name = {};  // for reports; empty: named by layer and op of the allocation
  TensorKind kind = TensorKind::activation;
  bool persistent = false;  // expected to outlive the step: weights and optimizer state
  bool scratch = false;     // of a recipe that runs: no part of the step
  // On a GPU: the tensor begins with the bytes that lie at this device address behind the current stream's work, for
  // whose copy allocate() waits. Nothing leaves for it: where it has no room, it begins away. 0: contents undefined.
  std::uint64_t copied_from = 0;
};

// Bytes [first, first + bytes) of one allocation of which an op touches little: rows of a table, for instance. On a GPU
// so many bytes anywhere in it: where the allocation is away, the op uses them in the host's memory.
struct Part {
  const void* first = nullptr;
  Bytes bytes;
  bool written = false;
};

// A step as its plan has it, with the least time of each op so far. Each section of a large op is an op.
struct PlannedStep {
  // Tensors here are units: neighbouring chunks with the same lifetime and users. Memory that never moves is one tensor
  // read by every op.
  Trace trace;
  Trace program;            // the same in the program's tensors, with the profile's times
  std::uint64_t steps = 0;  // that ran whole by the plan
  // the parts that its latest steps touched, the profiled one included; no steps: none, or too many to remember
  Rows rows;
};

enum class ProfileTicks : std::uint8_t {
  operands,  // no page tracking: ops touch the operands that they announce
  // pages touched, per layer: a tick is a run of ops of one layer, reported with the last of them
  layers,
  ops,  // pages touched, per op, with those that the program touches before it
};

// The most memory that a session takes beside fast_memory: tables, rings, stacks, page tables. In it are the books of
// up to 20,000 ops and tensors, small ones not counted, of all sequences of ops that have a plan. Each beyond takes up
// to 768 bytes. Two sequences always keep their plans, others as far as 16 MiB reach. Tests hold a session to this.
constexpr Bytes session_overhead = 64_MiB;

struct SessionOptions {
  // The budget: resident bytes, in-flight buffers included, never exceed it. They are allocated as they are needed, and
  // some ahead.
  Bytes fast_memory;
  // "dram"; "numa:N", the same in the memory of NUMA node N alone; or "gpu:N" (as well "cuda:N"): memory of the N-th
  // GPU, whose slow tier is pinned host memory (vedette/gpu.h). There chunk and checksums are not used, profile only
  // with the tracker "cupti"; fast_memory of 0 is the free memory less a twentieth.
  std::string fast = "dram";
  GpuProgram* gpu = nullptr;  // with "gpu:N"; outlives the session and its tensors
  // With "gpu:N": so much of fast_memory is for hot rows of tables. A tensor that is larger than this, and than half of
  // the rest, is a table. It lies in pinned host memory, where kernels use it. The pieces whose rows were looked up
  // most in the latest steps lie in GPU memory. 0: there are no tables.
  Bytes table_memory = {};
  // "nvme:DIRECTORY"; "host:SIZE+nvme:DIRECTORY"; "numa:NODE", the memory of another NUMA node, copied, as much as is
  // free there; "numa:NODE+nvme:DIRECTORY"; or "host" (plain memory, for tests). SIZE, a number and a unit such as
  // "8GiB", bounds the host memory beside fast_memory, which is filled first. NODE may be followed by a size, too:
  // "numa:1:64GiB". The disk has a place for everything. Below a GPU it is pinned: "host:SIZE", or with a disk
  // "host:SIZE+nvme:DIRECTORY"; "host", the default there, is 7/8 of the memory that is available when it opens.
  // Not below a GPU, "@500MB/s" or "@0.5GB/s" after it bounds the slowest tier, both directions together: to leave
  // others their share of a disk, or to see how the program runs on a slower one.
  // Memory of a node may be used in place: a plan can leave an operand there for an op. After "numa:NODE", "host" and
  // "host:SIZE" "@PRESET" makes the memory as slow as one that others have: "@optane-2019", "@cxl-2025", "@hbm-flat" or
  // "@far-socket" (docs/near-and-far.md). "host@PRESET" is a far node for machines that have one node, and
  // "host:8GiB@PRESET+nvme:/data" has a disk below.
  std::string slow = "nvme:.";
  // A number and MB, GB or TB a day, such as "500GB/day": the most that is written to the disk of `slow`, over hours.
  // Plans know that writing is so slow; 384 chunks may be written at once, which the measuring at the start needs. Not
  // below a GPU. Empty: no bound. Or the disk's rating, "600TBW" or "1DWPD:2TB", which bounds nothing: the lines of the
  // plan and of the end tell the share of it that a day of such writes takes. Or both: "500GB/day of 600TBW".
  std::string max_writes = {};
  std::string policy = "vedette";
  Bytes chunk = {std::uint64_t{2} << 20};  // the unit of moves; tests of small models use 64_KiB
  std::uint32_t warmup_steps = 1;  // run on demand before the profiling epoch; optimizers have their state afterwards
  ProfileTicks profile = ProfileTicks::layers;
  // The page tracker of the profiling step, one of tracker_names(). open() refuses one that this machine or its memory
  // does not allow. "cupti" makes the GPU's memory managed memory, for small runs (docs/gpu-tier.md).
  std::string tracker = "best";
  Observer* observer = nullptr;  // borrowed; outlives the session
  // Diagnostics, one sentence each, until the session ends. Called on a thread that calls it, at the end of that call,
  // with no lock held: it may ask the session (counters, phase, ...). It must not throw where a scope ends.
  std::function<void(std::string_view)> on_message = {};
  // Signs of life, one line each: when the first plan is there, and at the end what ran. Called as on_message is; of a
  // Guard on rank 0 alone, and not where `verbose` is false. A Guard without on_message writes them to standard error.
  std::function<void(std::string_view)> on_progress = {};
  bool verbose = true;
  std::uint64_t seed = 1;
  // Processes of this machine that open a session beside this one and use the same disk, this one among them: ranks of
  // data parallel training. They measure the disk one after the other, and each plans with its share.
  std::uint32_t ranks = 1;
  // Machine::interference_percent, as `vedette doctor` measures it; nullopt: planners count 25.
  std::optional<std::uint32_t> interference_percent = {};
  // Machine::fault_time, as `vedette doctor` measures it; nullopt: 0.1 ms. On a GPU there are no faults.
  std::optional<Nanoseconds> fault_time = {};
  // Compares the hash (XXH3) of each fetched chunk with that of the evicted one; a difference ends the program with a
  // sentence. Costs about 0.2 ms of a background thread's time for 2 MiB each way.
  bool checksums = false;
  // Fast memory becomes less while the system presses for memory, and grows back when it no longer does, never below
  // smallest_budget(). Sources: systemd's MEMORY_PRESSURE protocol, pressure and limits of the memory cgroup, dmem
  // limits of a GPU, and `vedette set` (docs/fast-memory.md). Of a Guard VEDETTE_PRESSURE=1 does the same.
  bool pressure = false;
  // Of a Guard: false makes one that does nothing, so that the program runs as without vedette. The environment
  // variable VEDETTE_OFF=1 does the same to all guards of a program. A Session refuses false.
  bool enabled = true;
  // Of a Guard: a file that becomes a recording of all steps, for `vedette report`; an earlier recording of this name
  // is replaced. Excludes `observer`. A Session refuses it: its program opens a Recorder.
  std::string record = {};
  // "auto", or the path of a socket: fast memory is shared with other programs, by `vedette daemon` (docs/sharing.md).
  // Then fast_memory is the most that the session wants. open() and step() wait for a turn; a message names the holder.
  // Without a daemon there, all is as if it were empty. Each GPU has a daemon of its own: `vedette daemon --gpu N`.
  std::string share = {};
  // Whether tensors of a step that repeats may be dropped and recomputed by the recipes of its ops. nullopt: `planned`
  // in GPU memory, where moving is slow beside computing, unless its pages are tracked; else `off`.
  std::optional<Recompute> recompute = {};
};

// "best", and every page tracker: zap, missing, mprotect; of a GPU cupti. With mprotect, and with missing where
// userfaultfd is for user mode only, system calls into profiled memory that no ResidentScope holds fail with EFAULT.
std::vector<std::string_view> tracker_names();

// The answer to another size of fast memory.
struct FastMemory {
  Bytes asked, now;
  std::string holds;  // the reason why `now` is above `asked`; empty: it is not
};

class Session {
 public:
  // Errors: unsupported for an option's value or a second session; unavailable where the machine lacks a facility;
  // system where the slow tier cannot be opened. Each message names the remedy.
  static Result<std::unique_ptr<Session>> open(SessionOptions);
  // A session that does nothing: scopes announce nothing, there is no memory, counters stay 0, and its phase is "off".
  static std::unique_ptr<Session> switched_off();
  ~Session();  // memory stays valid; scopes must have ended; never throws
  // This process is a forked child of the one that opened the session.
  bool in_child() const noexcept;
  bool is_off() const noexcept;  // it does nothing: switched off, or in a child

  // Memory of `options.bytes` bytes, contents undefined, as malloc's. Errors: out_of_memory (disk full, arena
  // exhausted).
  Result<std::byte*> allocate(const AllocateOptions& options);
  // nullptr and foreign memory are ignored; from any thread, also after the session
  static void release(std::byte* memory) noexcept;
  static bool owns(const void* memory) noexcept;  // in the arena of this or an earlier session

  // Names memory after its allocation. Reports and policies use the name from the running step's profile on. Foreign
  // and small memory is ignored.
  void label(const void* memory, std::string_view name, TensorKind kind);

  // The place of allocations by their names: those that match `names`, a pattern as of a shell ("*.exp_avg*"). `tier`:
  // "fast", they stay in fast memory; or "slow", ops use them where they lie: of those that outlive a step, where slow
  // memory can be used in place. Plans keep a rule where there is a plan that does, or a message says so, and a hint
  // where the step takes no longer by their reckoning. Of several that match the latest counts. Allocations smaller
  // than a chunk share one: it stays if one of them is to stay. It counts for plans of steps that are profiled later.
  // Error: unsupported, of another tier, and of "slow" where nothing can be used in place. Thread rule: any thread.
  enum class Placement : std::uint8_t { hint, rule };
  Result<void> place(std::string_view names, std::string_view tier, Placement as = Placement::hint);

  // The shape of the tensor that fills the allocation around `memory`, for recordings; the first call counts. It is
  // used while wants_shapes(): an observer listens, and the running step may become a profile. Thread rule of
  // wants_shapes(): the thread that announces ops.
  void shape(const void* memory, std::span<const std::int64_t> sizes);
  bool wants_shapes() const noexcept;

  // The running op uses memory outside of the session, as small tensors of a GPU are: profiles have it, plans do not.
  // It is used while wants_uses_beside(): in a step on a GPU that may become a profile. Thread rule as above.
  struct UseBeside {
    const void* address = nullptr;  // the same for one tensor all through a step; never read
    Bytes bytes;
    bool written = false;
    std::string_view name = {};  // empty: it has none
  };
  void uses_beside(const UseBeside& use);
  bool wants_uses_beside() const noexcept;

  StepScope step();
  LayerScope layer(std::string_view name, Phase phase = Phase::forward);
  // The ops that follow belong to this layer, until the next mark, a layer scope or the step's end. For programs that
  // know their layer only when an op begins.
  void mark_layer(std::string_view name, Phase phase);
  // `reads` and `writes` are addresses inside allocations of this session; others are ignored.
  // An allocation that the op touches only in `parts` is in neither list. Parts may differ from step to step: they are
  // resident when op() returns, as operands are. No plan moves an allocation of which a step touches at most half, and
  // only so: its chunk touched longest ago leaves first. One that was born in the step counts as a whole operand.
  // `result`: the op's largest, where it is known before; 0: as large as the largest operand. On a GPU room for it is
  // left in one piece, if there is as much beside the operands and no plan has a place for it.
  OpScope op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
             std::span<const Part> parts = {}, Bytes result = {});
  // False: many steps have moved nothing and waited for nothing, so that the session rests. Ops may go unannounced
  // until the next step begins, and Counters::ops stands still; a step after something has moved wants them again.
  // Never so with an observer, on a GPU, or where a system call fails on memory that is away; and no session rests
  // whose program has not asked.
  bool wants_ops() noexcept;
  // From the next step on ops are wanted, as if steps had moved something. On the thread of steps, between them.
  void hear_ops() noexcept;
  // In an op: the session would keep a recipe of it, and does, given one before the op ends.
  bool wants_recipe() const noexcept;
  void keep_recipe(std::unique_ptr<Recipe> recipe);
  // An operand that an op may find elsewhere when it runs again. All others keep their bytes only if the recipe copies
  // them.
  bool may_be_dropped(const void* memory) const noexcept;
  // From now on something else than an op may write the allocation around `memory`: numpy for instance, or an operator
  // of another thread. No recipe makes its bytes any more, and what was made from it and dropped is recomputed before
  // the function returns. Thread rule: any thread.
  void others_write(const void* memory);
  bool recomputes() const noexcept;  // false: the session drops nothing, and no write has to be told
  // The whole allocation that holds this address stays in fast memory until the scope ends. mlock() of guarded memory
  // does not do that: its lock ends when the chunk moves. mlockall(MCL_CURRENT) while a session lives ends the program
  // with a sentence; mlockall before a session opens, and MCL_FUTURE at any time, leave the arena unlocked. A zero-copy
  // send (MSG_ZEROCOPY, vmsplice) goes on using memory after its call. Without a scope that lasts until it is done,
  // memory that leaves meanwhile is sent with other tensors' bytes. The kernel does not show such uses. Memory without
  // room within `patience` is not held, and a message says so, or Failure (out_of_memory) does.
  enum class NoRoom : std::uint8_t { is_said, is_thrown };
  ResidentScope resident(const void* memory, std::chrono::milliseconds patience = {}, NoRoom no_room = NoRoom::is_said);

  // The functions that only memory of a GPU has; nullptr where fast memory is not a GPU's. It lives as long as the
  // arena.
  GpuMemory* gpu() const noexcept;

  Counters counters() const noexcept;
  // the first error of a background thread since the last call
  std::optional<Error> take_error();
  // the largest in-op working set seen, on the CPU two chunks that move beside it, memory that stays, and what tensors
  // of closed sessions may keep; not less than a session takes. Sentences and `vedette fits` name the same budget.
  Bytes smallest_budget() const noexcept;
  Bytes budget() const noexcept;  // of fast memory, as it is now
  // Another budget while the program runs, up or down, any number of times. Memory that goes is free for other programs
  // when this returns. The call waits for writes, and for the end of an op that needs more, unless that op makes it.
  // Memory that the program holds (resident(), its smallest tensors) stays: then `now` is more than was asked, and the
  // rest follows as soon as it can. More memory is taken as it is needed, on a GPU at once. Plans for the new size are
  // made beside the program, and the latest ones for other sizes are kept. A GPU's memory changes between two ops of
  // the thread of steps: another thread waits for that, ten seconds at most, and it never becomes less than the largest
  // op. Errors: unsupported, of less than 8 chunks, and of more than the machine, its memory cgroup or the GPU has;
  // out_of_memory where others have the GPU's. Nothing has changed then. Thread rule: any thread.
  Result<FastMemory> set_fast_memory(Bytes bytes);
  std::string_view phase() const noexcept;  // "warm-up", "profiling", "planned", "foreseen" (predicted), "off"
  std::string mechanism() const;            // the way in which chunks move here, in words
  Machine machine() const;                  // its tiers and links as plans know them; no tiers: it is off
  // the page tracker, by name; empty: no pages are tracked
  std::string_view tracker() const noexcept;

  // The trace of the last profiled step, in the program's tensors; nullptr until one was profiled.
  const Trace* trace() const noexcept;
  // The steps that have a plan, one for each sequence of ops, in the order of their first occurrence.
  std::vector<PlannedStep> planned_steps() const;

 private:
  friend class StepScope;
  friend class LayerScope;
  friend class OpScope;
  Session(detail::SessionCore* core, std::unique_ptr<detail::Lease> lease) noexcept;
  void end_shared_step();
  detail::SessionCore* core_;             // belongs to the arena, which outlives this object
  std::unique_ptr<detail::Lease> lease_;  // nullptr: fast memory is not shared
};

}  // namespace vedette
