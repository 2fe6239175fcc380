// The ops of a program, one after the other: each is logged, follows the plan or a prediction, and is handed to the
// executor with its operands. A large one runs in sections (section_learner.h). An op inside an op is part of it.
//
// What always holds: runs() says whether an op runs, for any thread. An op of a step is in the log from its begin on.
//
// Locks: the op thread calls begin(), end() and before_birth() without the session's lock; made() and died() are called
// with it. Only the op thread changes the running op, and reads it without the lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "session/common.h"
#include "session/drops.h"
#include "session/op_times.h"
#include "session/plans.h"
#include "session/profiling.h"
#include "session/row_log.h"
#include "session/running_op.h"

namespace vedette::detail {

class Ops : PartOfSession {
 public:
  Ops(const Common& session, Plans& plans, Profiling& profiling, Drops& drops)
      : PartOfSession(session), plans_(plans), profiling_(profiling), drops_(drops) {}

  void begin_step();                               // with the session's lock
  void forget();                                   // the same
  bool enter() noexcept { return depth_++ == 0; }  // true: an op begins, and begin() is to be called
  void begin(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
             std::span<const vedette::Part> parts, Bytes result);
  void end() noexcept;  // of an op that entered

  bool runs() const noexcept { return depth_ > 0; }
  bool runs_on_this_thread() const noexcept;                                                   // an op of a step
  std::thread::id thread() const noexcept { return thread_.load(std::memory_order_relaxed); }  // of the latest op
  bool wants_recipe() const noexcept;
  void keep_recipe(std::unique_ptr<Recipe> recipe);

  // --- births and deaths in it ---------------------------------------------------------------------------------------
  void before_birth(std::uint64_t bytes);  // of the op thread, in an op, of more than the slab takes
  void made(ChunkRange chunks) { op_.born(chunks); }
  void died(ChunkRange chunks) { op_.died(chunks); }

  OpTimes& times() noexcept { return times_; }                                  // of the step
  void settle_parts();                                                          // when the step has ended
  RowLog& rows() noexcept { return rows_; }                                     // that it touched
  std::span<const ObservedOp> observed() const noexcept { return op_.seen(); }  // ops of the step

 private:
  void add_operands(std::span<const void* const> addresses, bool written, OperandList& logged, std::uint64_t& hash,
                    std::uint64_t& kind);
  void add_parts(std::span<const vedette::Part> parts, LoggedOp& op, std::uint64_t& hash);
  void add_part(const vedette::Part& part, std::uint64_t offset, const Live& live);
  void add_few(const vedette::Part& part, Bytes bytes, std::uint64_t offset, const Live& live);
  std::uint32_t log_op(std::string_view name, LoggedOp op, std::uint64_t hash, std::uint64_t kind);
  void find_sections(std::uint32_t index);
  Executor::Part part_now(std::span<const ChunkRange> operands);
  void make_before(std::uint32_t index, bool left_plan);
  void next_section(bool runs);  // false: the op ended without it
  void begin_observing(std::uint32_t birth, std::uint64_t bytes);
  void end_observing();
  Nanoseconds count_time_until(Nanoseconds now);
  void let_time_pass();  // which is no op's
  std::span<const OpMoves::Departure> departures() const;
  void end_part() noexcept;
  void report_end(std::uint32_t index, Nanoseconds ended, std::uint64_t live_bytes);

  Plans& plans_;
  Profiling& profiling_;
  Drops& drops_;
  RunningOp op_;
  OpTimes times_;
  RowLog rows_;
  Ticks step_begins_ = 0;
  std::atomic<int> depth_ = 0;             // the op thread's; other threads look whether an op runs
  std::atomic<std::thread::id> thread_{};  // relaxed: equal to a thread's own only if that thread wrote it
};

}  // namespace vedette::detail
