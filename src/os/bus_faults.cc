#include "os/bus_faults.h"

#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace vedette {
namespace {

std::atomic<BusServer*> serving{nullptr};
std::atomic<std::uint32_t> inside{0};
struct sigaction before {};

void on_bus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  bool write = true;
#if defined(__x86_64__)
  write = (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#endif
  inside.fetch_add(1);
  BusServer* const server = serving.load();
  const bool served =
      server != nullptr && info->si_code > 0 && server->serve_bus(static_cast<std::byte*>(info->si_addr), write);
  inside.fetch_sub(1);
  errno = saved_errno;
  if (served) return;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);  // it dies of the repetition, with its own address
  if (info->si_code <= 0) ::raise(signal);
}

// Once in a process: a handler that was chained to cannot be taken away again.
void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_bus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigaction(SIGBUS, &ours, &before);
  });
}

}  // namespace

Result<BusClaim> BusClaim::make(BusServer& server) {
  BusServer* nobody = nullptr;
  if (!serving.compare_exchange_strong(nobody, &server))
    return Error{.cause = Cause::unsupported, .message = "a second tracker by SIGBUS in one process", .errno_value = 0};
  install_once();
  return BusClaim(&server);
}

BusClaim::~BusClaim() {
  if (server_ == nullptr) return;
  serving.store(nullptr);
  while (inside.load() != 0) ::usleep(100);
}

}  // namespace vedette
