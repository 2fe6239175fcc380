// The inside of a Session: it composes the parts that recognise steps, log them, plan them and follow the plan. Each
// part keeps its own promises (arena.h, step_logger.h, running_op.h, op_times.h, buckets.h); memory is the executor's
// (moves/executor.h). It belongs to the arena and lives as long as tensors do, which may be longer than its Session.
//
// Locks: `mutex_` guards all parts. The executor is never called with it held where it may wait, but for a chunk of the
// slab, where no other thread may get a neighbour before the chunk is there. No function unlocks a lock that its caller
// holds. The op thread alone changes the running op, the buckets and the log's ops, and reads these without the lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/this_process.h"
#include "moves/executor.h"
#include "session/arena.h"
#include "session/common.h"
#include "session/messages.h"
#include "session/op_times.h"
#include "session/page_profile.h"
#include "session/plans.h"
#include "session/pressure.h"
#include "session/recomputer.h"
#include "session/rest.h"
#include "session/row_log.h"
#include "session/running_op.h"
#include "session/step_logger.h"
#include "vedette/session.h"

namespace vedette::detail {

class SessionCore {
 public:
  SessionCore(SessionOptions options, Mapping arena);

  struct Tracking {
    const TrackerKind* tracker = nullptr;  // nullptr: no page can be seen
    std::string passed_over;               // why not a better one
    // Of a GPU's memory, until a step is profiled: ranges of it are named as the arena's are.
    std::unique_ptr<PageTracker> of_gpu = nullptr;
  };
  struct Memory {  // its mover, and the tiers between which it moves
    std::unique_ptr<Executor> executor;
    Machine machine;
    std::uint32_t frames = 0;
    Tracking tracking;
  };
  void start(Memory memory);  // once, before anything else but post(), describe() and arena()
  // The Session object is gone. The arena goes on paging while tensors live, and holds no more fast memory than they
  // fill; the last release ends it.
  void close() noexcept;
  // Of a closed session: no more than `most` stays, where tensors can leave. Returns the most that may be there at
  // once. Waits.
  Bytes wind_down(Bytes most) noexcept;
  Bytes may_keep() const noexcept;  // then, whatever the budget was
  bool is_open() const noexcept { return open_; }
  bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }  // closed, and nothing lives
  void give_back_addresses() noexcept { arena_.give_back_addresses(); }               // when it has ended
  // This process is a forked child of the one that opened the session: nothing here may be locked or waited for.
  bool inherited() const noexcept { return opened_in_ != this_process(); }

  const SessionOptions& options() const noexcept { return options_; }
  const Machine& machine() const noexcept { return plans_.machine(); }
  const Arena& arena() const noexcept { return arena_; }
  void post(std::string_view sentence) { messages_.post(sentence); }
  void see_no_pages() { tracking_.tracker = nullptr; }  // as on a machine without any page tracker
  void deliver_messages() { messages_.deliver(); }
  std::string describe(ChunkIndex chunk) const;  // its addresses, and its tensors where no lock is held

  // --- memory (core.cc) ----------------------------------------------------------------------------------------------
  Result<std::byte*> allocate(const AllocateOptions& allocation);
  void release(std::byte* memory) noexcept;
  void label(const void* memory, std::string_view name, TensorKind kind);
  Result<void> place(std::string_view names, std::string_view tier, Session::Placement as);
  bool wants_shapes() const noexcept;
  void shape(const void* memory, std::span<const std::int64_t> sizes);
  bool wants_uses_beside() const noexcept;
  void uses_beside(const Session::UseBeside& use);
  // No chunks: memory that is always resident. Errors: no room within `patience`.
  Result<std::optional<ChunkRange>> hold(const void* memory, std::chrono::milliseconds patience);
  void release_hold(ChunkRange chunks) noexcept;

  // --- fast memory of another size (core_memory.cc) ------------------------------------------------------------------
  Bytes budget() const noexcept;
  // `waits_for_turn`: on the thread of steps, between two; before the next one the size is again what it needs.
  Result<FastMemory> set_fast_memory(Bytes asked, bool waits_for_turn = false);
  void follow_pressure();  // until close()

  // --- steps and ops (core_steps.cc) ---------------------------------------------------------------------------------
  void begin_step();
  void end_step() noexcept;
  void begin_op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                std::span<const Part> parts, Bytes result);
  void end_op() noexcept;
  bool wants_ops() noexcept { return !rest_.ask(); }
  void hear_ops() noexcept;
  void push_layer(std::string_view name, Phase phase);
  void pop_layer();
  void mark_layer(std::string_view name, Phase phase);

  // --- recipes (core_recompute.cc) -----------------------------------------------------------------------------------
  bool wants_recipe() const noexcept;
  void keep_recipe(std::unique_ptr<Recipe> recipe);
  bool may_be_dropped(const void* memory) const noexcept;
  void dropped_chunk_wanted(ChunkIndex chunk) noexcept;  // with the executor's lock held

  // --- figures -------------------------------------------------------------------------------------------------------
  Counters counters() const noexcept;
  std::optional<Error> take_error() { return executor_->take_error(); }
  Bytes smallest_budget() const noexcept;
  std::string_view phase() const noexcept;
  GpuMemory* gpu() noexcept { return executor_->gpu(); }
  std::string mechanism() const { return executor_->mechanism(); }
  std::string_view tracker() const noexcept {
    return tracking_.tracker == nullptr ? std::string_view() : tracking_.tracker->name;
  }
  const Trace* trace() const noexcept;
  std::vector<PlannedStep> planned_steps() const;

 private:
  // --- memory
  Result<Arena::Place> take_place(const AllocateOptions& allocation, std::uint64_t bytes);
  Result<void> ready(const Arena::Place& place);
  bool log_birth(const Arena::Place& place, const AllocateOptions& allocation);  // whether its pages are watched
  void undo_birth(const Arena::Place& place);
  std::optional<std::uint32_t> release_or_keep(std::uint64_t offset) noexcept;
  void expect_writes(const Arena::Place& place) noexcept;
  void end_if_empty() noexcept;
  bool in_op_of_this_thread() const noexcept;

  // --- steps and ops
  void pass_step();
  void cut_step();
  void add_operands(std::span<const void* const> addresses, bool written, OperandList& logged, std::uint64_t& hash,
                    std::uint64_t& kind);
  void add_parts(std::span<const Part> parts, LoggedOp& op, std::uint64_t& hash);
  std::uint32_t log_op(std::string_view name, LoggedOp op, std::uint64_t hash, std::uint64_t kind);
  void find_sections(std::uint32_t index);
  Executor::Part part_now(std::span<const ChunkRange> operands);
  void before_birth(std::uint64_t bytes);  // of the op thread, in an op, of more than the slab takes
  void next_section(bool runs);            // false: the op ended without it
  void begin_observing(std::uint32_t birth, std::uint64_t bytes);
  void end_observing();
  Nanoseconds count_time_until(Nanoseconds now);
  std::span<const OpMoves::Departure> departures() const;
  void report_op_end(std::uint32_t index, Nanoseconds ended, std::uint64_t live_bytes);
  void report_step_end(Nanoseconds now);
  bool is_settled() const noexcept;
  std::string_view phase_now() const noexcept;

  // --- recipes (core_recompute.cc)
  void count_recomputed(Counters& counters) const;  // with the lock
  bool may_drop() const noexcept { return recomputer_ != nullptr && !recomputer_->rests(); }
  bool drops_nothing() const noexcept;
  void make_before_op(std::uint32_t index, bool left_plan);
  void after_op(std::uint32_t index);
  std::vector<OpMoves::Departure> keep_what_cannot_be_made(std::span<const OpMoves::Departure> departures,
                                                           std::vector<ChunkRange>& drops) const;
  void end_part() noexcept;

  // --- fast memory of another size (core_memory.cc)
  Executor::Caller caller() const;
  Result<FastMemory> resize(Bytes asked, bool waits_for_turn);
  void follow_budget();

  void start_profiling();
  void finish_profiling();

  const SessionOptions options_;
  const std::uint64_t opened_in_ = this_process();
  Messages messages_;                     // posted with any lock held, delivered with none
  std::unique_ptr<Executor> executor_;    // nullptr: ended
  std::atomic<bool> size_asked_ = false;  // since the last step: a session that rests hears the next one
  std::unique_ptr<PressureFollower> follower_;
  Tracking tracking_;

  mutable std::mutex mutex_;
  std::atomic<bool> open_ = true;
  std::atomic<bool> ended_ = false;  // released when nothing of it is used any more, acquired by has_ended()
  Arena arena_;

  // The running step.
  StepLogger logger_;
  RunningOp op_;
  OpTimes times_;
  RowLog rows_;
  std::atomic<int> op_depth_ = 0;             // the op thread's; other threads look whether an op runs
  std::atomic<std::thread::id> op_thread_{};  // relaxed: equal to a thread's own only if that thread wrote it
  struct StepBegin {
    std::thread::id thread;  // that began it
    Ticks tick = 0;
    Counters counters;
  };
  StepBegin begin_;
  Rest rest_;

  SignsOfLife signs_;
  Plans plans_{Common{.options = options_,
                      .messages = messages_,
                      .mutex = mutex_,
                      .executor = executor_,
                      .arena = arena_,
                      .logger = logger_,
                      .signs = signs_}};
  std::unique_ptr<PageProfile> pages_;      // while a step is profiled
  std::unique_ptr<Recomputer> recomputer_;  // nullptr: nothing is dropped
  bool profiled_ = false;                   // some step was
};

}  // namespace vedette::detail
