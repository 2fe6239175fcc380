// The slow tiers, as the engine uses them: a store's slots, requests and habits.
//
// Slots are reserved a few ahead, and given back where for a while less than half of them was needed. Requests gather
// under the lock, and go to the store without it, as one submission. A slot of memory can be lent to a chunk.
//
// Thread rule: as common.h's. Names with `_unlocking` are the migrator's, and release the lock meanwhile.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/common.h"
#include "tier/link_habits.h"
#include "tier/store.h"

namespace vedette::engine {

class SlowTier : PartOfEngine {
 public:
  SlowTier(Common& engine, std::unique_ptr<Store> store, std::optional<LinkHabits> given);

  void start() { lends_ = memory_->reach().lends && store_->is_memory(); }  // once there is a memory
  // These three, and wake(), also without the lock: the store allows it.
  std::uint32_t tiers() const noexcept { return store_->tiers(); }
  std::uint32_t depth() const noexcept { return store_->depth(); }  // requests in flight, at most
  std::string_view mechanism() const noexcept { return store_->mechanism(); }
  std::uint64_t bytes_between_tiers() const noexcept { return store_->bytes_between_tiers(); }

  // --- habits of each tier (measure.cc) ------------------------------------------------------------------------------
  void measure() noexcept;  // with frames and slots that are not in use yet; once
  bool measured() const noexcept { return !habits_.empty(); }
  const std::vector<LinkHabits>& habits() const noexcept { return habits_; }
  const LinkHabits& slowest() const noexcept { return habits_.back(); }

  // --- frames that are registered for I/O: the kernel keeps their pages ----------------------------------------------
  std::byte* range_to_register() const noexcept;         // of all frames; nullptr: the kernel would not take them
  void register_memory(std::byte* frames, Bytes bytes);  // the migrator's, before the first move
  bool registered() const noexcept { return registered_; }
  void want_unregistered();
  bool unregisters() const noexcept { return unregisters_; }
  bool unregister_unlocking(std::unique_lock<std::mutex>& lock) noexcept;  // true: it has begun or ended

  // --- slots ---------------------------------------------------------------------------------------------------------
  bool has_slots_for(std::uint32_t more);  // living chunks
  Result<void> grow(std::uint32_t more);   // for so many; takes the lock itself
  // Where for a while less than half of the reserved slots was needed. True: the lock was released for it.
  bool give_slots_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept;

  // --- requests ------------------------------------------------------------------------------------------------------
  void ask(const StoreRequest& request) { next_.push_back(request); }
  void settle(SlotIndex slot, TierIndex target) { settling_.push_back({slot, target}); }  // between slow tiers
  bool settles() const noexcept { return !settling_.empty(); }
  // Requests that have gathered go to the store. False: there are none.
  bool pass_on_unlocking(std::unique_lock<std::mutex>& lock) noexcept;
  // Waits for completions, or until kick(). Returns how many there are.
  std::size_t wait_unlocking(std::unique_lock<std::mutex>& lock, std::span<StoreCompletion> done,
                             Nanoseconds timeout) noexcept;
  void kick();  // the migrator has something to do
  void wake() { store_->wake(); }
  void finish() noexcept { store_->finish(); }  // the migrator's last call

  // --- loans ---------------------------------------------------------------------------------------------------------
  bool lends() const noexcept { return lends_; }  // ops may use in place what lies in the first tier
  // Where the slot's bytes are, for a chunk that shows them until end_loan(); nullptr: on a disk, below the memory.
  std::byte* lend(SlotIndex slot) { return store_->lend(slot) ? store_->memory_of(slot) : nullptr; }
  std::byte* lent(SlotIndex slot) { return store_->memory_of(slot); }
  void end_loan(SlotIndex slot) { store_->end_loan(slot); }
  void may_change(SlotIndex slot) { changed_.push_back(slot); }  // while it is lent

 private:
  struct Settling {
    SlotIndex slot;
    TierIndex target;
  };

  std::uint32_t slots_for(std::uint32_t chunks) const noexcept;

  const std::unique_ptr<Store> store_;
  const std::optional<LinkHabits> given_;
  std::vector<LinkHabits> habits_;  // empty until measured
  bool registered_ = false, unregisters_ = false, lends_ = false;

  std::mutex growing_;             // taken before the lock: the store grows or shrinks
  std::uint32_t reserved_ = 0;     // slots
  std::uint32_t most_needed_ = 0;  // living chunks at once, since `since_`
  Nanoseconds since_;

  std::vector<Settling> settling_;
  std::vector<SlotIndex> changed_;
  std::vector<StoreRequest> next_;
  std::vector<StoreRequest> batch_;  // the migrator's alone: its submission
  bool sleeping_ = false;            // the migrator, in wait_unlocking()
};

}  // namespace vedette::engine
