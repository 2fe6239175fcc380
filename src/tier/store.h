// Slow tiers that are reached by I/O: slots of one chunk each, written and read asynchronously. The nvme tier is a
// preallocated file. The host tier is plain memory. A layered store has both, near slots over far ones. The throttled
// tier wraps any of them behind a token bucket and a latency; the faulty one (tests) breaks the n-th call.
//
// Invariants: every request is completed exactly once, by wait(), with 0 or an errno; a short transfer is
// continued inside the store and never seen outside. The memory of a request stays valid and unmoved until its
// completion.
//
// Thread rule: submit(), wait(), discard(), settle() and finish() are called from one thread, the migrator. wake(),
// reserve(), lend() and end_loan() from any thread. register_memory() before the first submit() or wait(), or from the
// migrator; mechanism() is valid until the next of these.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "os/node_memory.h"
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
  TierIndex tier = {};          // of a write: the slow tier that shall have the bytes; 0: the store chooses
};

struct StoreCompletion {
  std::uint64_t token = 0;
  int error = 0;         // 0, or the errno that ended it
  bool spared = false;   // of a write: the slot holds these bytes already, so nothing was written
  TierIndex tier = {1};  // the slow tier that the bytes went to or came from
};

constexpr std::uint32_t unlimited_slots = ~std::uint32_t{0};

class Store {
 public:
  virtual ~Store() = default;  // no request is in flight

  // Room for slots [0, slots) is there after this, or the Error says why not (disk full).
  virtual Result<void> reserve(std::uint32_t slots) = 0;
  // Slots from `slots` on hold nothing that is needed, and no request of theirs is in flight: their room may be given
  // back. From the thread of submit().
  virtual void shrink(std::uint32_t slots) noexcept = 0;
  // Nothing in these slots is needed before it is written again, and no request of theirs is in flight.
  virtual void discard(std::span<const SlotIndex> slots) noexcept = 0;
  // The plan moves this slot's bytes to another slow tier, in the background. A store that does not have two tiers has
  // nothing to do.
  virtual void settle(SlotIndex slot, TierIndex tier) noexcept = 0;
  // Slots are memory that the processor reads and writes: their bytes can be used in place.
  virtual bool is_memory() const noexcept { return false; }
  // Until end_loan() the slot's bytes stay where they are, in memory, for threads to use. False: they are on a disk, or
  // on their way. Of a slot that is reserved, not lent, and no request of which is in flight.
  virtual bool lend(SlotIndex) noexcept { return is_memory(); }
  virtual void end_loan(SlotIndex) noexcept {}
  // Of a slot that is lent, where they are. Its pages may be elsewhere while they are used. Any thread.
  virtual std::byte* memory_of(SlotIndex) noexcept { return nullptr; }
  // The bytes of these slots may be other ones by now: they were used in place. From the thread of submit().
  virtual void changed(std::span<const SlotIndex>) noexcept {}
  // Optional: this memory will be used for requests again and again (registered buffers). Failing is not an error:
  // the store goes on without, and mechanism() says so. No bytes: none is registered any more, and the kernel lets go
  // of its pages; no request is in flight.
  virtual void register_memory(std::byte* memory, Bytes bytes) = 0;

  virtual void submit(std::span<const StoreRequest> requests) noexcept = 0;  // at most `depth()` in flight
  // Fills `out` with at least one completion, unless wake() was called or nothing came within `timeout`. Returns how
  // many.
  virtual std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept = 0;
  virtual void wake() noexcept = 0;  // ends the running or the next wait()
  // The last call of the migrator: ends background work.
  virtual void finish() noexcept = 0;

  // Slow tiers, fastest first: a request's tier is one of 1, ..., tiers(). Each has room for so many slots.
  virtual std::uint32_t tiers() const noexcept = 0;
  virtual std::uint32_t slots_of(TierIndex tier) const noexcept = 0;
  virtual std::uint64_t bytes_between_tiers() const noexcept = 0;  // moved in the background so far; from any thread

  virtual std::uint32_t depth() const noexcept = 0;
  virtual Bytes slot_bytes() const noexcept = 0;
  virtual std::string_view mechanism() const noexcept = 0;  // "io_uring, O_DIRECT, registered buffers"
};

// A store of one tier, whose slots keep their bytes until they are written again.
class OneTierStore : public Store {
 public:
  void discard(std::span<const SlotIndex>) noexcept override {}
  void settle(SlotIndex, TierIndex) noexcept override {}
  void finish() noexcept final {}
  std::uint32_t tiers() const noexcept final { return 1; }
  std::uint32_t slots_of(TierIndex) const noexcept override { return unlimited_slots; }
  std::uint64_t bytes_between_tiers() const noexcept final { return 0; }
};

// A store over another one: all that is not overridden is passed on.
class StoreWrapper : public Store {
 public:
  explicit StoreWrapper(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
  Result<void> reserve(std::uint32_t slots) override { return inner_->reserve(slots); }
  void shrink(std::uint32_t slots) noexcept override { inner_->shrink(slots); }
  void discard(std::span<const SlotIndex> slots) noexcept override { inner_->discard(slots); }
  void settle(SlotIndex slot, TierIndex tier) noexcept override { inner_->settle(slot, tier); }
  bool is_memory() const noexcept final { return inner_->is_memory(); }
  bool lend(SlotIndex slot) noexcept final { return inner_->lend(slot); }
  void end_loan(SlotIndex slot) noexcept final { inner_->end_loan(slot); }
  std::byte* memory_of(SlotIndex slot) noexcept final { return inner_->memory_of(slot); }
  void changed(std::span<const SlotIndex> slots) noexcept override { inner_->changed(slots); }
  void register_memory(std::byte* memory, Bytes bytes) override { inner_->register_memory(memory, bytes); }
  void submit(std::span<const StoreRequest> requests) noexcept override { inner_->submit(requests); }
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override {
    return inner_->wait(out, timeout);
  }
  void wake() noexcept override { inner_->wake(); }
  void finish() noexcept final { inner_->finish(); }
  std::uint32_t tiers() const noexcept final { return inner_->tiers(); }
  std::uint32_t slots_of(TierIndex tier) const noexcept final { return inner_->slots_of(tier); }
  std::uint64_t bytes_between_tiers() const noexcept final { return inner_->bytes_between_tiers(); }
  std::uint32_t depth() const noexcept override { return inner_->depth(); }
  Bytes slot_bytes() const noexcept override { return inner_->slot_bytes(); }
  std::string_view mechanism() const noexcept override { return inner_->mechanism(); }

 protected:
  const std::unique_ptr<Store> inner_;
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

// Memory is taken as slots are written, never more than `most_slots` of it; a reserve() beyond them is refused.
Result<std::unique_ptr<Store>> open_host_store(Bytes slot_bytes, std::uint32_t depth,
                                               std::uint32_t most_slots = unlimited_slots);

// The same in the memory of one NUMA node. Errors of reserve(): the node is full, or the kernel refuses to bind memory
// to it. Nothing else takes the room of slots that were reserved.
Result<std::unique_ptr<Store>> open_numa_store(Bytes slot_bytes, std::uint32_t depth, NodeIndex node,
                                               std::uint32_t most_slots);

// Near slots over far ones: tiers 1 and 2. A write goes near while there is room, unless it names tier 2; the least
// recently used slot goes far in the background, before the near tier is full. Every slot has its place in the far
// store, so `near` may fail or be full and nothing is lost. Where near slots are memory they are lent, and stay near
// for as long. `near_slots` of the near store are used, at least 2. Both stores have slots of one size, and
// layered_extra_depth more requests in flight than the layered one.
constexpr std::uint32_t layered_extra_depth = 2;
Result<std::unique_ptr<Store>> layered(std::unique_ptr<Store> near, std::uint32_t near_slots,
                                       std::unique_ptr<Store> far);
// Of the near slots, those that a plan should not count on: they are kept ready for writes.
constexpr std::uint32_t spare_near_slots(std::uint32_t near_slots) noexcept {
  return near_slots / 8 < 1 ? 1 : near_slots / 8 > 16 ? 16 : near_slots / 8;
}

struct Throttle {
  std::uint64_t read_bytes_per_s = 0, write_bytes_per_s = 0;  // 0: no limit
  Nanoseconds latency;
  bool one_bus = false;       // reads and writes follow each other on one link, each at its bandwidth
  Nanoseconds saved_up = {};  // so much of its bandwidth an idle link saves, and has when it is made
};
std::unique_ptr<Store> throttled(std::unique_ptr<Store>, Throttle);

// A store that knows slots by the hashes (XXH3, 128 bits) of their bytes. A read that asks to be remembered is hashed,
// unless the slot's hash is known from before; a write of the same bytes to its slot ends at once and moves nothing.
// `verify`: every transfer is hashed, and a read of bytes that are not the ones last written ends with EBADMSG. 24
// bytes of memory a slot; 0.1 to 0.2 ms of the migrator's time for each 2 MiB that is hashed.
enum class Hashing : std::uint8_t { remembered, verify };
std::unique_ptr<Store> hashed(std::unique_ptr<Store>, Hashing);

}  // namespace vedette
