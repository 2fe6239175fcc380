// One SIGSEGV handler for the whole library, in front of the program's own. The owner of a range of addresses claims
// it. A fault that no claim answers goes to the program's handler, or kills the process with the address of the fault,
// as without the library.
//
// Where claims overlap, memory answers before trackers: a fault waits for a chunk that is away, and only a fault in a
// resident chunk is a tracked access.
//
// The handler runs on the faulting thread, on its alternate stack where it has one. It never allocates, locks or logs.
// A thread that has SIGSEGV blocked while it faults is killed by the kernel: nothing can be done for it here.
#pragma once
#include <cstddef>
#include <cstdint>

#include "vedette/result.h"

namespace vedette {

enum class SegvAnswer : std::uint8_t {
  retry,  // served: the access can be repeated
  pass,   // not mine
  // Mine, and accessible by now: repeat, unless a later claim knows why it faulted. Never twice for a fault that
  // repeats without a change.
  stale,
};

enum class SegvOrder : std::uint8_t { memory, tracker };  // memory's claims are asked first

// A claim of [begin, begin + bytes) from construction to destruction. `serve` must be async-signal-safe and may wait;
// it may run on many threads at once, for the last time before the destructor returns.
class [[nodiscard("the claim ends with this object")]] SegvClaim {
 public:
  using Serve = SegvAnswer (*)(void* context, std::byte* address, bool write) noexcept;

  static Result<SegvClaim> make(SegvOrder order, std::byte * begin, std::size_t bytes, Serve serve, void* context);
  SegvClaim(SegvClaim && other) noexcept;
  SegvClaim& operator=(SegvClaim&&) = delete;
  ~SegvClaim();

  // Two steps for owners whose `serve` waits: after retire() no new call begins; those that wait must be let go by the
  // owner, then the destructor waits until they have left.
  void retire() noexcept;

 private:
  explicit SegvClaim(std::size_t slot) noexcept : slot_(slot) {}
  std::size_t slot_;
};

// Puts a handler that the program installed over the library's behind it again, if any range is claimed. A handler that
// passes unknown faults on would do no harm in front; another one would take the library's faults for errors. From any
// thread; one system call.
void come_first_for_segv() noexcept;

// The short form for trackers: asked about every address, after all memories; true means that the access can be
// repeated.
using FaultHandler = bool (*)(void* self, std::byte* address, bool write) noexcept;
struct FaultHandlerId {
  std::size_t slot = ~std::size_t{0};
};
Result<FaultHandlerId> add_fault_handler(FaultHandler handler, void* self);

}  // namespace vedette
