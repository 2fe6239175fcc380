#include "engine/slow_tier.h"

#include <algorithm>
#include <utility>

#include "os/parking.h"

namespace vedette::engine {

SlowTier::SlowTier(Common& engine, std::unique_ptr<Store> store, std::optional<LinkHabits> given)
    : PartOfEngine(engine), store_(std::move(store)), given_(given) {}

// --- frames that are registered for I/O ------------------------------------------------------------------------------

std::byte* SlowTier::range_to_register() const noexcept {
  if (!memory_->reach().keeps_buffers || books_.frames() == 0) return nullptr;
  std::byte* const first = memory_->parked({0});
  for (FrameIndex f{1}; f.value < books_.frames(); ++f.value)
    if (memory_->parked(f) != first + f.value * chunk_bytes_.value)
      return nullptr;  // not one range: transfers go on unregistered
  const bool by_ring = store_->mechanism().find("io_uring") != std::string_view::npos;
  return by_ring && may_lock(first, books_.frames() * chunk_bytes_.value) ? first : nullptr;
}

void SlowTier::register_memory(std::byte* frames, Bytes bytes) {
  store_->register_memory(frames, bytes);
  registered_ = true;
}

void SlowTier::want_unregistered() {
  unregisters_ = true;
  kick();
}

bool SlowTier::unregister_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  if (pass_on_unlocking(lock)) return true;
  if (books_.in_flight() > 0) return false;
  lock.unlock();
  store_->register_memory(nullptr, {});
  lock.lock();
  registered_ = unregisters_ = false;
  arrived_.notify_all();
  return true;
}

// --- slots -----------------------------------------------------------------------------------------------------------

std::uint32_t SlowTier::slots_for(std::uint32_t chunks) const noexcept {
  constexpr std::uint32_t step_of_growth = 8;
  // chunks that died while they were written keep their slots until the writes end
  const std::uint32_t wanted = chunks + depth();
  return (wanted + step_of_growth - 1) / step_of_growth * step_of_growth;
}

bool SlowTier::has_slots_for(std::uint32_t more) {
  const std::uint32_t living = books_.live_chunks() + more;
  most_needed_ = std::max(most_needed_, living);  // the store does not shrink below them
  return living + depth() <= reserved_;
}

// Some slots ahead, or just these where the disk is nearly full.
Result<void> SlowTier::grow(std::uint32_t more) {
  const std::lock_guard growing(growing_);
  std::unique_lock lock(mutex_);
  if (has_slots_for(more)) return {};  // another thread has grown it meanwhile
  const std::uint32_t living = books_.live_chunks() + more;
  lock.unlock();
  std::uint32_t reserved = slots_for(living);
  Result<void> grown = store_->reserve(reserved);
  if (!grown) {
    reserved = living + depth();
    grown = store_->reserve(reserved);
  }
  lock.lock();
  if (grown) reserved_ = reserved;
  return grown;
}

bool SlowTier::give_slots_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  constexpr Nanoseconds a_while{10'000'000'000};  // longer than most steps, whose chunks die and are born again
  const auto least = [&] { return slots_for(std::max(most_needed_, books_.slots().limit())); };
  if (program_.now() - since_ < a_while) return false;
  const bool worth = books_.in_flight() == 0 && std::uint64_t{least()} * 2 < reserved_;
  if (worth) {
    lock.unlock();
    const std::lock_guard growing(growing_);
    lock.lock();
    const std::uint32_t keep = least();  // more may be needed by now
    if (books_.in_flight() == 0 && keep < reserved_) {
      reserved_ = keep;
      lock.unlock();
      store_->shrink(keep);
      lock.lock();
    }
  }
  since_ = program_.now();
  most_needed_ = books_.live_chunks();
  return worth;
}

// --- requests --------------------------------------------------------------------------------------------------------

// Slots are discarded before they are written for the chunk that has them now.
bool SlowTier::pass_on_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  const std::vector<SlotIndex> given_back = books_.take_given_back();
  const std::vector<Settling> settling = std::exchange(settling_, {});
  const std::vector<SlotIndex> changed = std::exchange(changed_, {});
  batch_.swap(next_);
  next_.clear();
  if (given_back.empty() && settling.empty() && changed.empty() && batch_.empty()) return false;
  lock.unlock();
  if (!changed.empty()) store_->changed(changed);
  if (!given_back.empty()) store_->discard(given_back);
  for (const Settling& each : settling) store_->settle(each.slot, each.target);
  if (!batch_.empty()) store_->submit(batch_);
  lock.lock();
  return true;  // the lock was released: more may have to start
}

std::size_t SlowTier::wait_unlocking(std::unique_lock<std::mutex>& lock, std::span<StoreCompletion> done,
                                     Nanoseconds timeout) noexcept {
  sleeping_ = true;
  lock.unlock();
  const std::size_t count = store_->wait(done, timeout);
  lock.lock();
  sleeping_ = false;
  return count;
}

void SlowTier::kick() {
  if (!sleeping_) return;
  sleeping_ = false;
  store_->wake();
}

}  // namespace vedette::engine
