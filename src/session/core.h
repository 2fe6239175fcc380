// The inside of a Session: the memory of its tensors (memory.h), its steps (steps.h) and their plans (plans.h), over
// one executor, one arena and one log, under one lock. It opens, closes and ends them. It belongs to the arena and
// lives as long as tensors do, which may be longer than its Session.
//
// Memory tells steps of births and deaths, and asks plans for addresses. Steps tell plans which ops run, and have the
// executor do what they say. Plans know neither.
//
// Locks: `mutex_` guards all parts. The executor is never called with it held where it may wait, but for a chunk of the
// slab (memory.h). No function unlocks a lock that its caller holds. The op thread alone changes the running op, the
// buckets and the log's ops, and reads these without the lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/this_process.h"
#include "moves/executor.h"
#include "session/arena.h"
#include "session/common.h"
#include "session/memory.h"
#include "session/messages.h"
#include "session/plans.h"
#include "session/step_logger.h"
#include "session/steps.h"
#include "vedette/session.h"

namespace vedette::detail {

class SessionCore {
 public:
  SessionCore(SessionOptions options, Mapping arena, Heap::Chunks use = Heap::Chunks::shared);

  struct Opened {  // the mover of its memory, and the tiers between which it moves
    std::unique_ptr<Executor> executor;
    Machine machine;
    std::uint32_t frames = 0;
    Tracking tracking;
  };
  void start(Opened opened);  // once, before anything else but post(), describe() and arena()
  // The Session object is gone. The arena goes on paging while tensors live, and holds no more fast memory than they
  // fill; the last release ends it.
  void close() noexcept;
  void end_resizing() noexcept { executor_->end_resizing(); }  // calls of another thread no longer wait for an op
  bool is_open() const noexcept { return open_; }
  bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }  // closed, and nothing lives
  void give_back_addresses() noexcept { arena_.give_back_addresses(); }               // when it has ended
  // This process is a forked child of the one that opened the session: nothing here may be locked or waited for.
  bool inherited() const noexcept { return opened_in_ != this_process(); }

  Memory& memory() noexcept { return memory_; }
  const Memory& memory() const noexcept { return memory_; }
  Steps& steps() noexcept { return steps_; }
  const Plans& plans() const noexcept { return plans_; }
  void release(std::byte* memory) noexcept;  // the last one of a closed session ends it

  const SessionOptions& options() const noexcept { return options_; }
  Machine machine() const {  // with what steps have measured so far
    const std::lock_guard lock(mutex_);
    return plans_.machine();
  }
  const Arena& arena() const noexcept { return arena_; }
  void post(std::string_view sentence) { messages_.post(sentence); }
  void deliver_messages() { messages_.deliver(); }

  // --- figures -------------------------------------------------------------------------------------------------------
  Counters counters() const noexcept;
  std::optional<Error> take_error() { return executor_->take_error(); }
  GpuMemory* gpu() noexcept { return executor_->gpu(); }
  std::string mechanism() const { return executor_->mechanism(); }
  const Trace* trace() const noexcept;
  std::vector<PlannedStep> planned_steps() const;

 private:
  void end_if_empty() noexcept;

  const SessionOptions options_;
  const std::uint64_t opened_in_ = this_process();
  Messages messages_;
  std::unique_ptr<Executor> executor_;  // nullptr: ended
  mutable std::mutex mutex_;
  std::atomic<bool> open_ = true;
  std::atomic<bool> ended_ = false;  // released when nothing of it is used any more, acquired by has_ended()
  Arena arena_;
  StepLogger logger_;
  SignsOfLife signs_;
  const Common common_{.options = options_,
                       .messages = messages_,
                       .mutex = mutex_,
                       .executor = executor_,
                       .arena = arena_,
                       .logger = logger_,
                       .signs = signs_};
  Plans plans_{common_};
  Steps steps_{common_, plans_};
  Memory memory_{common_, plans_, steps_};
};

}  // namespace vedette::detail
