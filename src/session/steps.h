// The steps of a program: each is logged, op by op (ops.h), reported, and learned from. A session in whose steps
// nothing moves rests (rest.h), and does not hear their ops. What a step profiles and drops belongs to it.
//
// Locks: functions take the session's lock themselves, but those that say they are called with it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "session/common.h"
#include "session/drops.h"
#include "session/ops.h"
#include "session/plans.h"
#include "session/profiling.h"
#include "session/rest.h"

namespace vedette::detail {

class Steps : PartOfSession {
 public:
  Steps(const Common& session, Plans& plans)
      : PartOfSession(session),
        plans_(plans),
        profiling_(session),
        drops_(session, plans),
        ops_(session, plans, profiling_, drops_) {}
  void start(Tracking tracking);
  void close();   // with the lock: the latest step has ended
  void forget();  // with the lock: no step follows

  Profiling& profiling() noexcept { return profiling_; }
  Drops& drops() noexcept { return drops_; }
  const Drops& drops() const noexcept { return drops_; }
  Ops& ops() noexcept { return ops_; }

  void begin_step();
  void end_step() noexcept;
  void begin_op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                std::span<const vedette::Part> parts, Bytes result);
  void end_op() noexcept { ops_.end(); }
  bool wants_ops() noexcept { return !rest_.ask(); }
  void hear_ops() noexcept;
  void push_layer(std::string_view name, Phase phase);
  void pop_layer();
  void mark_layer(std::string_view name, Phase phase);
  bool wants_shapes() const noexcept;
  bool wants_uses_beside() const noexcept;
  void uses_beside(const Session::UseBeside& use);
  std::string_view phase() const noexcept;
  void fast_memory_was_asked() noexcept { size_asked_ = true; }  // of another size

  // --- with the lock -------------------------------------------------------------------------------------------------
  Executor::Caller caller() const;  // a step's thread waits for the passes of others that it calls
  void wake();                      // there is no room, though nothing has moved for long
  bool born(const Arena::Place& place, const Live& live);  // in a step. Whether its pages are watched
  void unborn(const Arena::Place& place);                  // the birth failed
  void died(std::uint64_t offset, const Live& dead, ChunkRange chunks) {
    if (logger_.running() && !dead.scratch) logger_.died(offset, dead);
    if (PageProfile* const pages = profiling_.pages(); pages != nullptr) pages->died(offset);
    ops_.died(chunks);
  }

 private:
  void pass_step();
  void cut_step();
  void follow_budget();
  bool is_settled() const noexcept;
  std::string_view phase_now() const noexcept;
  void report_end(Nanoseconds now);

  Plans& plans_;
  Profiling profiling_;
  Drops drops_;
  Ops ops_;
  Rest rest_;
  struct Begin {
    std::thread::id thread;  // that began it
    Counters counters;
  };
  Begin begin_;
  std::atomic<bool> size_asked_ = false;  // since the last step: a session that rests hears the next one
};

}  // namespace vedette::detail
