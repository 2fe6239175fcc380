#include "os/signals.h"

#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/architecture.h"
#include "base/assert.h"
#include "os/uffd.h"
#include "vedette/units.h"

namespace vedette {
namespace {

constexpr std::size_t slots = 32;  // a session needs two claims; the rest is for tests
constexpr std::size_t no_slot = ~std::size_t{0};

struct Slot {
  std::atomic<std::uintptr_t> begin{0};  // 0: no claim. release: pairs with the acquire in ask()
  std::atomic<std::uint32_t> inside{0};  // threads that may be calling serve
  std::uintptr_t end = 0;
  SegvClaim::Serve serve = nullptr;  // one of the two
  FaultHandler handler = nullptr;
  void* context = nullptr;
  std::atomic<SegvOrder> order{SegvOrder::memory};
  bool taken = false;  // under the mutex
};

// State that a signal handler reads must outlive every thread, so this is the one place with globals.
std::array<Slot, slots> table;
std::mutex table_mutex;  // of claims being made and ended; never taken by the handler
// Handlers that were there before ours, oldest first. More than one when the program installs its own over ours and a
// later claim puts ours in front again. Written under the mutex; release: pairs with the acquire in call_previous().
constexpr std::size_t most_previous = 16;
std::array<struct sigaction, most_previous> previous;
std::atomic<std::size_t> previous_count{0};

// The number of handlers that a fault has been through, one having called the next. Such a handler may chain back to
// this one with its siginfo, so the number travels there, in the last words: the kernel clears them
// (copy_siginfo_to_user), and they have no other use. A counter of the thread would stay up when a handler leaves by a
// jump.
struct Journey {
  std::uint32_t mark = 0;  // journey_mark where the number is ours
  std::uint32_t handlers = 0;
};
constexpr std::uint32_t journey_mark = 0x7ede77e1;

std::byte* last_words(siginfo_t* info) noexcept {
  static_assert(sizeof(siginfo_t) == 128);
  return reinterpret_cast<std::byte*>(info) + sizeof(siginfo_t) - sizeof(Journey);
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

// Apart from on_segv(): a thread that may be cancelled at any instruction can end inside of a function only while none
// that promises not to throw has become a part of it.
//
// True: a claim served the fault, or it has passed.
[[gnu::noinline]] bool served(std::uintptr_t address, bool write) noexcept {
  bool stale = false;
  for (const SegvOrder order : {SegvOrder::memory, SegvOrder::tracker}) {
    for (Slot& slot : table) {
      if (slot.begin.load(std::memory_order_acquire) == 0 || slot.order.load(std::memory_order_relaxed) != order)
        continue;
      const SegvAnswer answer = ask(slot, address, write);
      if (answer == SegvAnswer::retry) return true;
      stale = stale || answer == SegvAnswer::stale;
    }
  }
  return stale;
}

// A claim may wait in calls at which a cancelled thread ends (pthread_cancel), by unwinding through functions that
// promise not to throw. Such a thread ends after the fault; one that may be cancelled anywhere ends right here. The
// type is changed, too: a request that is on its way when the state changes looks at nothing else (glibc).
bool served_uncancelled(std::uintptr_t address, bool write) {
  int state = PTHREAD_CANCEL_ENABLE, type = PTHREAD_CANCEL_DEFERRED;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  const bool done = served(address, write);
  ::pthread_setcancelstate(state, nullptr);
  ::pthread_setcanceltype(type, nullptr);
  return done;
}

void die_of(int signal, const siginfo_t* info) noexcept {
  // A fault kills when it is repeated, with its own address; a signal that was sent has to be sent again.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

[[gnu::noinline]] void call_previous(int signal, siginfo_t* info, void* context) noexcept {
  const std::size_t count = previous_count.load(std::memory_order_acquire);
  Journey so_far;
  std::memcpy(&so_far, last_words(info), sizeof so_far);
  const std::size_t called = so_far.mark == journey_mark ? so_far.handlers : 0;
  if (called >= count) return die_of(signal, info);
  const struct sigaction& action = previous[count - 1 - called];
  const bool has_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (!has_info && action.sa_handler == SIG_IGN && info->si_code <= 0) return;  // sent by a process, ignored
  if (!has_info && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) return die_of(signal, info);
  so_far = {.mark = journey_mark, .handlers = static_cast<std::uint32_t>(called + 1)};
  std::memcpy(last_words(info), &so_far, sizeof so_far);
  if (has_info) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

void on_segv(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool access = info->si_code == SEGV_ACCERR || info->si_code == SEGV_MAPERR;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool done = access && served_uncancelled(address, was_write(context));
  errno = saved_errno;
  if (!done) call_previous(signal, info, context);
}

// A forked child has no arena (MADV_DONTFORK) and none of the threads that would serve it: a touch must kill it, not
// wait for ever. Trackers stay, for they open their pages themselves.
void forget_memories_in_child() noexcept {
  for (Slot& slot : table) {
    slot.inside.store(0);
    if (slot.order.load(std::memory_order_relaxed) == SegvOrder::memory) slot.begin.store(0);
  }
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_segv;
}

bool same_handler(const struct sigaction& a, const struct sigaction& b) noexcept {
  const bool infos = (a.sa_flags & SA_SIGINFO) != 0;
  if (infos != ((b.sa_flags & SA_SIGINFO) != 0)) return false;
  return infos ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler;
}

// Remembers the handler that ours is put in front of; one that comes again is known.
Result<void> remember(const struct sigaction& current) {
  const std::size_t count = previous_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i)
    if (same_handler(previous[i], current)) return {};
  if (count == most_previous) {
    return Error{
        .cause = Cause::unsupported,
        .message = "SIGSEGV handlers were installed over ours too often; install yours once, before the session"};
  }
  if (count == 0) {
    if (const int error = ::pthread_atfork(nullptr, nullptr, forget_memories_in_child); error != 0) {
      return system_error("pthread_atfork", error, "");
    }
  }
  previous[count] = current;
  previous_count.store(count + 1, std::memory_order_release);
  return {};
}

// Ours comes first again at every claim, if the program has put another in front meanwhile.
Result<void> install() {
  struct sigaction current {};
  if (::sigaction(SIGSEGV, nullptr, &current) != 0) return system_error("asking for the SIGSEGV handler", errno, "");
  if (is_ours(current)) return {};
  if (auto remembered = remember(current); !remembered) return remembered;
  struct sigaction action {};
  action.sa_sigaction = on_segv;
  // NODEFER: a handler of the program that we chain to may touch the arena itself.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGSEGV, &action, nullptr) != 0) return system_error("installing a SIGSEGV handler", errno, "");
  // A sanitizer may take the call, say yes and do nothing.
  if (::sigaction(SIGSEGV, nullptr, &current) != 0 || !is_ours(current)) {
    return Error{.cause = Cause::unavailable,
                 .message =
                     "SIGSEGV has a handler that lets no other be installed; with AddressSanitizer set "
                     "ASAN_OPTIONS=handle_segv=1, or "
                     "allow userfaultfd"};
  }
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
               .message = "too many memories and trackers use SIGSEGV in this process; close some"};
}

void give_back_slot(std::size_t index) noexcept {
  Slot& slot = table[index];
  slot.begin.store(0);
  while (slot.inside.load() != 0) ::sched_yield();
  const std::lock_guard lock(table_mutex);
  slot.taken = false;
}

bool claimed() noexcept {
  for (const Slot& slot : table)
    if (slot.begin.load(std::memory_order_relaxed) != 0) return true;
  return false;
}

}  // namespace

void come_first_for_segv() noexcept {
  if (!claimed()) return;
  struct sigaction current {};
  if (::sigaction(SIGSEGV, nullptr, &current) != 0 || is_ours(current)) return;
  const std::lock_guard lock(table_mutex);
  static_cast<void>(install());  // refused: the program's handler stays in front, and may call ours
}

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

}  // namespace vedette
