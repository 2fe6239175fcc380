#include "os/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <ucontext.h>
#include <utility>

#include "base/assert.h"
#include "os/uffd.h"
#include "vedette/units.h"

namespace vedette {
namespace {

constexpr std::size_t slots = 32;    // a session needs two claims; the rest is for tests
constexpr std::size_t no_slot = ~std::size_t{0};

struct Slot {
  std::atomic<std::uintptr_t> begin{0};   // 0: nobody is to be asked. release: pairs with the acquire in ask()
  std::atomic<std::uint32_t> inside{0};   // threads that may be calling serve
  std::uintptr_t end = 0;
  SegvClaim::Serve serve = nullptr;       // one of the two
  FaultHandler handler = nullptr;
  void* context = nullptr;
  std::atomic<SegvOrder> order{SegvOrder::memory};
  bool taken = false;                     // under the mutex
};

// What a signal handler can see must outlive every thread, so this is the one place with globals.
std::array<Slot, slots> table;
std::mutex table_mutex;                   // of claims being made and ended; never taken by the handler
// Handlers that were there before ours, oldest first. More than one when the program installs its own over ours and a later
// claim puts ours in front again. Written under the mutex; release: pairs with the acquire in call_previous().
constexpr std::size_t most_previous = 16;
std::array<struct sigaction, most_previous> previous;
std::atomic<std::size_t> previous_count{0};

// How many of them are running on this thread, one having called the next: such a one may chain back to us.
// initial-exec, because the first touch of other thread-local memory may allocate.
__attribute__((tls_model("initial-exec"))) thread_local std::size_t chained = 0;

bool is_write([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;  // bit 1 of the page fault's code
#else
  return true;                            // unknown: a write is the safe assumption
#endif
}

SegvAnswer ask(Slot& slot, std::uintptr_t address, bool write) noexcept {
  if (slot.begin.load(std::memory_order_acquire) == 0) return SegvAnswer::pass;
  // seq_cst on both sides: either we see that the claim was retired, or the destructor sees us inside.
  slot.inside.fetch_add(1);
  SegvAnswer answer = SegvAnswer::pass;
  const std::uintptr_t begin = slot.begin.load();
  if (begin != 0 && address >= begin && address < slot.end) {
    std::byte* const at = reinterpret_cast<std::byte*>(address);
    if (slot.serve != nullptr) {
      answer = slot.serve(slot.context, at, write);
    } else if (slot.handler(slot.context, at, write)) {
      answer = SegvAnswer::retry;
    }
  }
  slot.inside.fetch_sub(1);
  return answer;
}

// True: somebody served the fault, or it has passed.
bool served(std::uintptr_t address, bool write) noexcept {
  bool stale = false;
  for (const SegvOrder order : {SegvOrder::memory, SegvOrder::tracker}) {
    for (Slot& slot : table) {
      if (slot.begin.load(std::memory_order_acquire) == 0 || slot.order.load(std::memory_order_relaxed) != order) continue;
      const SegvAnswer answer = ask(slot, address, write);
      if (answer == SegvAnswer::retry) return true;
      stale = stale || answer == SegvAnswer::stale;
    }
  }
  return stale;
}

void die_of(int signal, const siginfo_t* info) noexcept {
  // A fault kills when it is repeated, with its own address; a signal that was sent has to be sent again.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

void call_previous(int signal, siginfo_t* info, void* context) noexcept {
  const std::size_t count = previous_count.load(std::memory_order_acquire);
  if (chained >= count) return die_of(signal, info);
  const struct sigaction& action = previous[count - 1 - chained];
  const bool has_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (!has_info && action.sa_handler == SIG_IGN && info->si_code <= 0) return;  // sent by somebody, ignored
  if (!has_info && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) return die_of(signal, info);
  ++chained;
  if (has_info) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
  --chained;
}

void on_segv(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool access = info->si_code == SEGV_ACCERR || info->si_code == SEGV_MAPERR;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool done = access && served(address, is_write(context));
  errno = saved_errno;
  if (!done) call_previous(signal, info, context);
}

// A forked child has no arena (MADV_DONTFORK) and none of the threads that would serve it: a touch must kill it, not wait for
// ever. Trackers stay, for they open their pages themselves.
void forget_memories_in_child() noexcept {
  for (Slot& slot : table) {
    slot.inside.store(0);
    if (slot.order.load(std::memory_order_relaxed) == SegvOrder::memory) slot.begin.store(0);
  }
}

// Ours comes first again at every claim, if the program has put another in front meanwhile.
Result<void> install() {
  const std::size_t count = previous_count.load(std::memory_order_relaxed);
  struct sigaction current {};
  if (::sigaction(SIGSEGV, nullptr, &current) != 0) return system_error("asking for the SIGSEGV handler", errno, "");
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_segv) return {};
  if (count == most_previous) {
    return Error{.cause = Cause::unsupported,
                 .message = "SIGSEGV handlers were installed over ours too often; install yours once, before the session",
                 .errno_value = 0};
  }
  if (count == 0) {
    if (const int error = ::pthread_atfork(nullptr, nullptr, forget_memories_in_child); error != 0) {
      return system_error("pthread_atfork", error, "");
    }
  }
  previous[count] = current;
  previous_count.store(count + 1, std::memory_order_release);
  struct sigaction action {};
  action.sa_sigaction = on_segv;
  // NODEFER: a handler of the program that we chain to may touch the arena itself.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGSEGV, &action, nullptr) != 0) return system_error("installing a SIGSEGV handler", errno, "");
  return {};
}

Result<std::size_t> take_slot(Span<std::uintptr_t> addresses, SegvOrder order, void* context, SegvClaim::Serve serve,
                              FaultHandler handler) {
  const std::lock_guard lock(table_mutex);
  if (auto ready = install(); !ready) return ready.error();
  for (std::size_t i = 0; i < slots; ++i) {
    Slot& slot = table[i];
    if (slot.taken) continue;
    slot.taken = true;
    slot.end = addresses.end;
    slot.serve = serve;
    slot.handler = handler;
    slot.context = context;
    slot.order.store(order, std::memory_order_relaxed);
    slot.begin.store(addresses.begin);
    return i;
  }
  return Error{.cause = Cause::unsupported,
               .message = "too many memories and trackers use SIGSEGV in this process; close some",
               .errno_value = 0};
}

void give_back_slot(std::size_t index) noexcept {
  Slot& slot = table[index];
  slot.begin.store(0);
  while (slot.inside.load() != 0) ::sched_yield();
  const std::lock_guard lock(table_mutex);
  slot.taken = false;
}

}  // namespace

Result<SegvClaim> SegvClaim::make(SegvOrder order, std::byte* begin, std::size_t bytes, Serve serve, void* context) {
  VEDETTE_ASSERT(begin != nullptr && bytes > 0 && serve != nullptr);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  auto slot = take_slot({.begin = first, .end = first + bytes}, order, context, serve, nullptr);
  if (!slot) return slot.error();
  return SegvClaim(*slot);
}

SegvClaim::SegvClaim(SegvClaim&& other) noexcept : slot_(std::exchange(other.slot_, no_slot)) {}

void SegvClaim::retire() noexcept {
  if (slot_ != no_slot) table[slot_].begin.store(0);
}

SegvClaim::~SegvClaim() {
  if (slot_ != no_slot) give_back_slot(slot_);
}

Result<FaultHandlerId> add_fault_handler(FaultHandler handler, void* self) {
  VEDETTE_ASSERT(handler != nullptr);
  auto slot = take_slot({.begin = 1, .end = ~std::uintptr_t{0}}, SegvOrder::tracker, self, nullptr, handler);
  if (!slot) return slot.error();
  return FaultHandlerId{*slot};
}

void remove_fault_handler(FaultHandlerId id) noexcept {
  if (id.slot != no_slot) give_back_slot(id.slot);
}

}  // namespace vedette
