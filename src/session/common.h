// The parts of a session have this in common: its options, messages, arena, executor and log, and the one lock.
//
// Thread rule: references alone. `mutex` guards what each part says.
#pragma once
#include <memory>
#include <mutex>

#include "moves/executor.h"
#include "session/arena.h"
#include "session/messages.h"
#include "session/signs_of_life.h"
#include "session/step_logger.h"

namespace vedette::detail {

struct Common {
  const SessionOptions& options;
  Messages& messages;  // posted with any lock held, delivered with none
  std::mutex& mutex;
  const std::unique_ptr<Executor>& executor;  // nullptr: not started, or ended
  Arena& arena;
  StepLogger& logger;  // of the running step
  SignsOfLife& signs;
};

class PartOfSession {
 protected:
  explicit PartOfSession(const Common& session)
      : options_(session.options),
        messages_(session.messages),
        mutex_(session.mutex),
        executor_(session.executor),
        arena_(session.arena),
        logger_(session.logger),
        signs_(session.signs) {}

  const SessionOptions& options_;
  Messages& messages_;
  std::mutex& mutex_;
  const std::unique_ptr<Executor>& executor_;  // nullptr: the session has not started, or has ended
  Arena& arena_;
  StepLogger& logger_;
  SignsOfLife& signs_;
};

inline Bytes budget_of(const Executor& executor, const SessionOptions& options) {
  return executor.budget() + options.table_memory;
}

}  // namespace vedette::detail
