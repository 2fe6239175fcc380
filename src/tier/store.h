// A slow tier that is reached by I/O: slots of one chunk each, written and read asynchronously. The nvme tier is a
// preallocated file. The host tier is plain memory, for tests. The throttled tier wraps any of them behind a token
// bucket and a latency; the faulty one (tests) breaks the n-th call.
//
// Invariants: every request is completed exactly once, by wait(), with 0 or an errno; a short transfer is
// continued inside the store and never seen outside. The memory of a request stays valid and unmoved until its
// completion.
//
// Thread rule: submit() and wait() are called from one thread, the migrator. wake() and reserve() from any thread.
// register_memory() before the first submit() or wait(), or from the migrator; mechanism() is valid until the next of
// these.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

using SlotIndex = Index<struct SlotTag>;

struct StoreRequest {
  enum class Direction : std::uint8_t { read, write } direction = Direction::read;
  SlotIndex slot;
  std::byte* memory = nullptr;  // slot_bytes of it, aligned to 4096
  std::uint64_t token = 0;      // comes back in the completion
  bool remember = false;        // of a read: these bytes will probably leave again unchanged (see hashed())
};

struct StoreCompletion {
  std::uint64_t token = 0;
  int error = 0;        // 0, or the errno that ended it
  bool spared = false;  // of a write: the slot holds these bytes already, so nothing was written
};

class Store {
 public:
  virtual ~Store() = default;  // no request is in flight

  // Room for slots [0, slots) is there after this, or the Error says why not (disk full).
  virtual Result<void> reserve(std::uint32_t slots) = 0;
  // Slots from `slots` on hold nothing that is needed, and no request of theirs is in flight: their room may be given
  // back. From the thread of submit().
  virtual void shrink(std::uint32_t slots) noexcept = 0;
  // Optional: this memory will be used for requests again and again (registered buffers). Failing is not an error:
  // the store goes on without, and mechanism() says so.
  virtual void register_memory(std::byte* memory, Bytes bytes) = 0;

  virtual void submit(std::span<const StoreRequest> requests) noexcept = 0;  // at most `depth()` in flight
  // Fills `out` with at least one completion, unless wake() was called or nothing came within `timeout`. Returns how
  // many.
  virtual std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept = 0;
  virtual void wake() noexcept = 0;  // ends the running or the next wait()

  virtual std::uint32_t depth() const noexcept = 0;
  virtual Bytes slot_bytes() const noexcept = 0;
  virtual std::string_view mechanism() const noexcept = 0;  // "io_uring, O_DIRECT, registered buffers"
};

enum class IoMechanism : std::uint8_t { best, uring_registered, uring, threads };

struct NvmeStoreOptions {
  std::string directory;  // of a file system; the file has no name there, so kill -9 leaves nothing
  Bytes slot_bytes = {std::uint64_t{2} << 20};
  std::uint32_t depth = 16;  // requests in flight; flat beyond 8 (bench/migrate)
  IoMechanism mechanism = IoMechanism::best;
  bool direct = true;  // O_DIRECT where the file system allows it; else buffered, and mechanism() says so
};
Result<std::unique_ptr<Store>> open_nvme_store(const NvmeStoreOptions&);

Result<std::unique_ptr<Store>> open_host_store(Bytes slot_bytes, std::uint32_t depth);

struct Throttle {
  std::uint64_t read_bytes_per_s = 0, write_bytes_per_s = 0;  // 0: no limit
  Nanoseconds latency;
};
std::unique_ptr<Store> throttled(std::unique_ptr<Store>, Throttle);

// A store that knows slots by the hashes (XXH3, 128 bits) of their bytes. A read that asks to be remembered is hashed,
// unless the slot's hash is known from before; a write of the same bytes to its slot ends at once and moves nothing.
// `verify`: every transfer is hashed, and a read of bytes that are not the ones last written ends with EBADMSG. 24
// bytes of memory a slot; 0.1 to 0.2 ms of the migrator's time for each 2 MiB that is hashed.
enum class Hashing : std::uint8_t { remembered, verify };
std::unique_ptr<Store> hashed(std::unique_ptr<Store>, Hashing);

}  // namespace vedette
