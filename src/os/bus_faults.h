// Page faults of a userfaultfd that come as SIGBUS to the thread that faults: one handler in front of the program's,
// and at most one who serves. What nobody serves goes to the program's handler, or kills the process with its own
// address.
//
// A thread that has SIGBUS blocked while it faults is killed by the kernel.
#pragma once
#include <cstddef>

#include "vedette/result.h"

namespace vedette {

class BusServer {
 public:
  // In the handler of the thread that faulted: async-signal-safe, on many threads at once. True: the access can be
  // repeated.
  virtual bool serve_bus(std::byte* at, bool write) noexcept = 0;

 protected:
  ~BusServer() = default;
};

// From make() to the destructor; when that returns no thread is inside serve_bus(). Errors: somebody serves already.
class [[nodiscard("faults are served while this lives")]] BusClaim {
 public:
  static Result<BusClaim> make(BusServer & server);
  BusClaim(BusClaim && other) noexcept : server_(other.server_) { other.server_ = nullptr; }
  BusClaim& operator=(BusClaim&&) = delete;
  ~BusClaim();

 private:
  explicit BusClaim(BusServer * server) noexcept : server_(server) {}
  BusServer* server_;
};

}  // namespace vedette
