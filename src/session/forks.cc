// A fork handler and a SIGSEGV handler for children: see forks.h. Both are async-signal-safe.
#include "session/forks.h"

#include <pthread.h>

#include <atomic>
#include <csignal>

#include "base/assert.h"
#include "base/children.h"
#include "base/this_process.h"
#include "os/uffd.h"
#include "session/core.h"
#include "session/registry.h"

namespace vedette::detail {
namespace {

// Processes; 0: none yet. Relaxed: nothing is handed over, and a child has one thread when it is prepared.
std::atomic<std::uint64_t> first{0};     // that watched
std::atomic<std::uint64_t> prepared{0};  // that watched first, or the child in which in_child() has run
struct sigaction before_ours;            // written by the child's only thread

// A fault elsewhere goes on to the handler that was there, with the siginfo it came with: that may be the library's own
// (os/signals.h), which notes there how far the fault has come.
void on_touch(int signal, siginfo_t* info, void* context) {
  const SessionCore* const owner = owner_of(info->si_addr);
  if (info->si_code > 0 && owner != nullptr && owner->inherited())
    die("a child of fork() touched a tensor of its parent's guard, which children do not inherit; give the child a "
        "copy in ordinary memory (made before the guard, or sent to the child), or start it by spawn");
  if ((before_ours.sa_flags & SA_SIGINFO) != 0) return before_ours.sa_sigaction(signal, info, context);
  const bool sent = info->si_code <= 0;
  if (before_ours.sa_handler == SIG_IGN && sent) return;
  if (before_ours.sa_handler != SIG_DFL && before_ours.sa_handler != SIG_IGN) return before_ours.sa_handler(signal);
  struct sigaction standard {};  // a fault kills when it is repeated; a signal that was sent has to be sent again
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGSEGV, &standard, nullptr);
  if (sent) ::raise(signal);
}

void catch_touches() noexcept {
  struct sigaction current {};
  if (::sigaction(SIGSEGV, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_touch) return;  // a child's child
  before_ours = current;
  struct sigaction action {};
  action.sa_sigaction = on_touch;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, nullptr);
}

void in_child() noexcept {
  prepared.store(this_process(), std::memory_order_relaxed);
  registry_in_child();
  close_what_children_do_not_keep();
  catch_touches();
}

}  // namespace

Result<void> watch_forks() {
  static const int error = ::pthread_atfork(nullptr, nullptr, in_child);
  if (error != 0) return system_error("pthread_atfork", error, "");
  for (auto* const each : {&first, &prepared}) {
    std::uint64_t none = 0;
    each->compare_exchange_strong(none, this_process(), std::memory_order_relaxed);
  }
  const bool of_clone = prepared.load(std::memory_order_relaxed) != this_process();  // which runs no fork handlers
  if (of_clone) in_child();
  return {};
}

void come_first_in_child() noexcept {
  const std::uint64_t watched = first.load(std::memory_order_relaxed);
  if (watched != 0 && watched != this_process()) catch_touches();
}

}  // namespace vedette::detail
