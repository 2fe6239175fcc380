// Memory that gloo's threads read and write after a collective op of c10d's has returned. Sockets are written by system
// calls. Without userfaultfd for the kernel's accesses these fail with EFAULT in memory that is away. There the
// operands of a work stay resident while gloo's thread carries it, and what that thread allocates meanwhile is ordinary
// memory. An op whose operands exceed a quarter of the budget sends them from ordinary memory, to which their storages
// move, beside the budget.
//
// A work of gloo's records itself by a RecordFunction that begins and ends on the thread that carries it. That thread
// has the thread-local debug information of the op that queued the work, and so the op's operands. Ranks queue works in
// one order and gloo's threads carry them in any: so a work waits for room, and never for another work.
// Thread rule: begin_to_hold(), stop_holding() and the ops belong to the training thread; works run on any.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <functional>
#include <memory>
#include <string_view>

#include "vedette/session.h"

namespace vedette::adapter {

// "userfaultfd, UFFDIO_MOVE" and "userfaultfd, mremap" serve a system call's access to memory that is away.
bool serves_system_calls(const Session& session);

// Works that begin from now on are held, where the machine needs it. `session` is borrowed until stop_holding(), after
// which no work holds anything of it.
void begin_to_hold(Session& session, std::function<void(std::string_view)> say);
void stop_holding(const Session& session) noexcept;

// This thread carries a work of gloo's: its allocations are gloo's own, outside the budget.
bool carries_a_work() noexcept;

// While it lives, works that this thread's op queues hold these arguments.
class OpOfWorks {
 public:
  explicit OpOfWorks(c10::ArrayRef<const c10::IValue> arguments);

 private:
  c10::DebugInfoGuard guard_;
};

// Moves operands that are too much to be held to ordinary memory; before an op of works begins.
void send_from_ordinary_memory(c10::ArrayRef<const c10::IValue> arguments);

}  // namespace vedette::adapter
