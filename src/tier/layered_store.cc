// Three levels without a change above the store: near slots over far ones (near_slots.h has the books).
//
// A write goes near while there is room, or far where the request says so. The near slot used longest ago goes far in
// the background, through a buffer of the store's own, before the near tier is full: a move between tiers. Until such a
// move has ended well the near slot keeps the bytes, so a failure of either store loses nothing. A write or a discard
// of the slot meanwhile makes the move void.
//
//   write   near slot, or far where none is free; a near write that fails is tried far
//   read    near slot, if it has the bytes; a near read that fails is tried far, if that has them too
//
// A near slot that is lent counts as one with a transfer in flight: it keeps its bytes, and no move takes them. It has
// the only newest ones from then on.
//
// What always holds: a slot has at most one transfer of the far store in flight. A move that is void ends without
// effect. Thread rule: as Store's; reserve() shares near_room_ with the migrator. The lock of the books is never held
// while an inner store transfers.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/mapping.h"
#include "tier/near_slots.h"
#include "tier/store.h"

namespace vedette {
namespace {

using Clock = std::chrono::steady_clock;
using Direction = StoreRequest::Direction;
constexpr TierIndex near_tier{1}, far_tier{2};
constexpr std::chrono::nanoseconds longest = std::chrono::hours(24 * 365);  // now() + timeout does not overflow
constexpr std::chrono::nanoseconds glance = std::chrono::microseconds(50);  // at one store while the other works, too
constexpr std::uint32_t rest_after_failure = 64;  // calls of submit() without a new move between tiers

class LayeredStore final : public Store {
 public:
  LayeredStore(std::unique_ptr<Store> near, std::uint32_t near_slots, std::unique_ptr<Store> far, Mapping buffers);
  ~LayeredStore() override;

  Result<void> reserve(std::uint32_t slots) override;
  void shrink(std::uint32_t slots) noexcept override;
  void discard(std::span<const SlotIndex> slots) noexcept override;
  void settle(SlotIndex slot, TierIndex tier) noexcept override;
  void register_memory(std::byte* memory, Bytes bytes) override;
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  bool is_memory() const noexcept override { return near_.store->is_memory(); }
  bool lend(SlotIndex slot) noexcept override;
  void end_loan(SlotIndex slot) noexcept override;
  std::byte* memory_of(SlotIndex slot) noexcept override;
  void wake() noexcept override {
    woken_.store(true, std::memory_order_release);  // pairs with the exchange in wait()
    near_.store->wake();
    far_.store->wake();
  }
  void finish() noexcept override { finish_moves(); }
  std::uint32_t tiers() const noexcept override { return 2; }
  std::uint32_t slots_of(TierIndex tier) const noexcept override {
    return tier == near_tier ? near_slots_ : far_.store->slots_of(near_tier);
  }
  std::uint64_t bytes_between_tiers() const noexcept override { return moved_.load(std::memory_order_relaxed); }
  std::uint32_t depth() const noexcept override { return static_cast<std::uint32_t>(flights_.size()); }
  Bytes slot_bytes() const noexcept override { return far_.store->slot_bytes(); }
  std::string_view mechanism() const noexcept override { return mechanism_; }

 private:
  struct Level {
    std::unique_ptr<Store> store;
    std::uint32_t in_flight = 0;
    std::vector<StoreRequest> batch;  // goes with the next hand_over()
  };
  struct Flight {  // a request of the caller; its place is the token that the inner stores see
    StoreRequest request;
    std::optional<NearIndex> near;  // none: it is the far store's
  };
  struct Moving {  // to the far tier; its token is depth() + its place
    enum class Stage : std::uint8_t { none, reading, writing } stage = Stage::none;
    bool valid = false;
    SlotIndex slot;
    NearIndex near;
    std::byte* memory = nullptr;
  };
  void describe();
  void use_room() { slots_.set_room(near_room_.load(std::memory_order_acquire)); }  // pairs with reserve()
  void begin_transfer(const StoreRequest& request);
  void go_near(std::uint32_t flight, NearIndex near);
  void go_far(std::uint32_t flight);
  void make_void(SlotIndex slot);
  bool writing_far(SlotIndex slot) const noexcept;
  void start_moves();
  bool start_move(Moving& moving);
  void hand_over() noexcept;
  std::size_t take(Level& level, std::chrono::nanoseconds timeout) noexcept;
  void end_transfer(std::uint32_t flight, int error);
  void end_stage(Moving& moving, int error);
  void finish_moves() noexcept;

  Level near_, far_;
  const std::uint32_t near_slots_;
  std::string mechanism_;
  Mapping buffers_;
  std::mutex growing_;
  std::atomic<std::uint32_t> near_room_{0};  // slots of the near store; changed under growing_
  std::atomic<bool> woken_{false};
  std::atomic<std::uint64_t> moved_{0};  // bytes
  std::mutex books_;
  // Under books_, where lend() comes between:
  NearSlots slots_;
  std::array<Moving, layered_extra_depth> moving_;
  std::deque<SlotIndex> planned_;  // to go far
  // The migrator's alone:
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;  // places of flights_
  std::vector<std::uint32_t> held_;  // flights whose far slot a move still writes
  std::uint32_t rest_ = 0;           // calls of submit() until a move may start again
  std::vector<StoreCompletion> ended_, arrived_;
};

LayeredStore::LayeredStore(std::unique_ptr<Store> near, std::uint32_t near_slots, std::unique_ptr<Store> far,
                           Mapping buffers)
    : near_{.store = std::move(near), .in_flight = 0},
      far_{.store = std::move(far), .in_flight = 0},
      near_slots_(near_slots),
      buffers_(std::move(buffers)),
      slots_(near_slots),
      flights_(std::min(near_.store->depth(), far_.store->depth()) - layered_extra_depth),
      arrived_(std::max(near_.store->depth(), far_.store->depth())) {
  for (std::size_t i = 0; i < moving_.size(); ++i) moving_[i].memory = buffers_.data() + i * slot_bytes().value;
  for (std::uint32_t i = depth(); i > 0; --i) free_.push_back(i - 1);
  describe();
}

// Of another thread than the migrator's a ring would take no call: by now no move runs where finish() was called.
LayeredStore::~LayeredStore() { finish_moves(); }

void LayeredStore::describe() {
  mechanism_ = std::to_string(near_slots_) + " slots of " + std::string(near_.store->mechanism()) + ", over " +
               std::string(far_.store->mechanism());
}

// The near store may fail: then there is less of it, as much as it has. The far one has a place for every slot.
Result<void> LayeredStore::reserve(std::uint32_t slots) {
  constexpr std::uint32_t step = 16;
  const std::lock_guard lock(growing_);
  const std::uint32_t near = std::min(slots, near_slots_);
  std::uint32_t room = near_room_.load(std::memory_order_relaxed);
  bool got = near <= room || near_.store->reserve(near);
  if (got) room = std::max(room, near);
  while (!got && room < near) {
    const std::uint32_t more = std::min(near, room + step);
    got = !near_.store->reserve(more);
    if (!got) room = more;
  }
  near_room_.store(room, std::memory_order_release);  // pairs with use_room()
  return far_.store->reserve(slots);
}

void LayeredStore::shrink(std::uint32_t slots) noexcept {
  const std::lock_guard lock(growing_);
  {
    const std::lock_guard books(books_);
    slots_.forget_from({slots});
    for (Moving& moving : moving_) moving.valid = moving.valid && moving.slot.value < slots;
  }
  finish_moves();
  const std::lock_guard books(books_);
  const std::uint32_t room = near_room_.load(std::memory_order_relaxed);
  const std::uint32_t keep = std::min(room, std::max(slots_.set_room(room), std::min(slots, near_slots_)));
  slots_.set_room(keep);
  near_room_.store(keep, std::memory_order_release);
  near_.store->shrink(keep);
  far_.store->shrink(slots);
}

void LayeredStore::discard(std::span<const SlotIndex> slots) noexcept {
  const std::lock_guard lock(books_);
  for (const SlotIndex slot : slots) {
    make_void(slot);
    slots_.forget(slot);
  }
}

void LayeredStore::settle(SlotIndex slot, TierIndex tier) noexcept {
  {
    const std::lock_guard lock(books_);
    if (tier != far_tier || !slots_.near_of(slot)) return;
    planned_.push_back(slot);
    start_moves();
  }
  hand_over();
}

// --- loans -----------------------------------------------------------------------------------------------------------

bool LayeredStore::lend(SlotIndex slot) noexcept {
  const std::lock_guard lock(books_);
  const auto near = is_memory() ? slots_.near_of(slot) : std::nullopt;
  if (!near || slots_.busy(*near)) return false;  // a move to the far tier reads it
  make_void(slot);
  slots_.set_far(slot, false);  // threads may change it
  slots_.use(*near);
  slots_.begin_io(*near);
  return true;
}

void LayeredStore::end_loan(SlotIndex slot) noexcept {
  const std::lock_guard lock(books_);
  slots_.end_io(slots_.near_of(slot).value());
}

std::byte* LayeredStore::memory_of(SlotIndex slot) noexcept {
  const std::lock_guard lock(books_);
  return near_.store->memory_of({slots_.near_of(slot).value().value});
}

void LayeredStore::register_memory(std::byte* memory, Bytes bytes) {
  near_.store->register_memory(memory, bytes);
  far_.store->register_memory(memory, bytes);
  describe();
}

// --- the caller's transfers ------------------------------------------------------------------------------------------

void LayeredStore::submit(std::span<const StoreRequest> requests) noexcept {
  {
    const std::lock_guard lock(books_);
    use_room();
    if (rest_ > 0) --rest_;
    for (const StoreRequest& request : requests) begin_transfer(request);
    start_moves();
  }
  hand_over();
}

void LayeredStore::begin_transfer(const StoreRequest& request) {
  VEDETTE_ASSERT(!free_.empty());  // at most depth() in flight
  const std::uint32_t flight = free_.back();
  free_.pop_back();
  flights_[flight] = {.request = request, .near = std::nullopt};
  std::optional<NearIndex> near;
  if (request.direction == Direction::read) {
    near = slots_.near_of(request.slot);
  } else {
    make_void(request.slot);
    if (request.tier != far_tier) near = slots_.give(request.slot);
    if (!near) slots_.forget(request.slot);
  }
  near ? go_near(flight, *near) : go_far(flight);
}

void LayeredStore::go_near(std::uint32_t flight, NearIndex near) {
  flights_[flight].near = near;
  slots_.begin_io(near);
  StoreRequest request = flights_[flight].request;
  request.slot = {near.value};
  request.token = flight;
  near_.batch.push_back(request);
}

void LayeredStore::go_far(std::uint32_t flight) {
  flights_[flight].near.reset();
  StoreRequest request = flights_[flight].request;
  if (writing_far(request.slot)) return held_.push_back(flight);
  request.token = flight;
  far_.batch.push_back(request);
}

void LayeredStore::end_transfer(std::uint32_t index, int error) {
  const Flight flight = flights_[index];
  const SlotIndex slot = flight.request.slot;
  const bool read = flight.request.direction == Direction::read;
  if (flight.near) {
    slots_.end_io(*flight.near);
    if (error != 0 && !read) slots_.forget(slot);
    if (error != 0 && (!read || slots_.far_has(slot))) return go_far(index);
    if (error == 0 && slots_.near_of(slot) == flight.near) slots_.use(*flight.near);
  } else if (error == 0 && !read) {
    slots_.set_far(slot, true);
  }
  ended_.push_back(
      {.token = flight.request.token, .error = error, .spared = false, .tier = flight.near ? near_tier : far_tier});
  free_.push_back(index);
}

// --- moves between the tiers -----------------------------------------------------------------------------------------

void LayeredStore::make_void(SlotIndex slot) {
  for (Moving& moving : moving_)
    if (moving.slot == slot) moving.valid = false;
  if (!planned_.empty()) std::erase(planned_, slot);
}

bool LayeredStore::writing_far(SlotIndex slot) const noexcept {
  return std::any_of(moving_.begin(), moving_.end(), [&](const Moving& moving) {
    return moving.stage == Moving::Stage::writing && moving.slot == slot;
  });
}

void LayeredStore::start_moves() {
  for (Moving& moving : moving_)
    if (rest_ == 0 && moving.stage == Moving::Stage::none && !start_move(moving)) return;
}

// The plan's slots first, then the least recently used. Bytes still on their way near have to arrive first.
bool LayeredStore::start_move(Moving& moving) {
  std::optional<NearIndex> chosen;
  for (std::size_t left = planned_.size(); left > 0 && !chosen; --left) {
    const SlotIndex slot = planned_.front();
    planned_.pop_front();
    const auto near = slots_.near_of(slot);
    if (!near || slots_.far_has(slot)) continue;
    if (slots_.busy(*near) || writing_far(slot)) {
      planned_.push_back(slot);
    } else {
      chosen = near;
    }
  }
  const auto leaving = std::count_if(moving_.begin(), moving_.end(), [](const Moving& other) { return other.valid; });
  if (!chosen && slots_.crowded(static_cast<std::uint32_t>(leaving))) chosen = slots_.coldest();
  if (!chosen || writing_far(slots_.owner(*chosen))) return false;
  moving.stage = Moving::Stage::reading;
  moving.valid = true;
  moving.slot = slots_.owner(*chosen);
  moving.near = *chosen;
  slots_.begin_io(*chosen);
  const auto token = depth() + static_cast<std::uint64_t>(&moving - moving_.data());
  near_.batch.push_back(
      {.direction = Direction::read, .slot = {chosen->value}, .memory = moving.memory, .token = token});
  return true;
}

void LayeredStore::end_stage(Moving& moving, int error) {
  const bool read = moving.stage == Moving::Stage::reading;
  if (read) slots_.end_io(moving.near);
  if (read && moving.valid && error == 0) {
    moving.stage = Moving::Stage::writing;
    const auto token = depth() + static_cast<std::uint64_t>(&moving - moving_.data());
    return far_.batch.push_back(
        {.direction = Direction::write, .slot = moving.slot, .memory = moving.memory, .token = token});
  }
  moving.stage = Moving::Stage::none;
  if (error != 0) {
    rest_ = rest_after_failure;
  } else if (moving.valid) {
    slots_.set_far(moving.slot, true);
    moved_.fetch_add(slot_bytes().value, std::memory_order_relaxed);
  }
  moving.valid = false;
  const std::vector<std::uint32_t> held = std::exchange(held_, {});
  for (const std::uint32_t flight : held) go_far(flight);
  start_moves();
}

void LayeredStore::finish_moves() noexcept {
  const std::uint32_t rest = std::exchange(rest_, ~std::uint32_t{0});  // none starts
  const auto running = [](const Moving& moving) { return moving.stage != Moving::Stage::none; };
  while (std::any_of(moving_.begin(), moving_.end(), running)) {
    if (near_.in_flight > 0) take(near_, glance);
    if (far_.in_flight > 0) take(far_, glance);
  }
  rest_ = rest;
}

// --- the inner stores ------------------------------------------------------------------------------------------------

// The far store's first: it works while near bytes are copied.
void LayeredStore::hand_over() noexcept {
  for (Level* const level : {&far_, &near_}) {
    if (level->batch.empty()) continue;
    level->in_flight += static_cast<std::uint32_t>(level->batch.size());
    level->store->submit(level->batch);
    level->batch.clear();
  }
}

std::size_t LayeredStore::take(Level& level, std::chrono::nanoseconds timeout) noexcept {
  const std::size_t count = level.store->wait(arrived_, Nanoseconds{timeout.count()});
  level.in_flight -= static_cast<std::uint32_t>(count);
  {
    const std::lock_guard lock(books_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto token = static_cast<std::uint32_t>(arrived_[i].token);
      token < depth() ? end_transfer(token, arrived_[i].error) : end_stage(moving_[token - depth()], arrived_[i].error);
    }
    if (count > 0 && !planned_.empty()) start_moves();  // one may have waited for its bytes to arrive near
  }
  hand_over();
  return count;
}

std::size_t LayeredStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  const Clock::time_point deadline = Clock::now() + std::min(longest, std::chrono::nanoseconds(timeout.value));
  for (bool waited = false;; waited = true) {
    if (near_.in_flight > 0) take(near_, {});
    const std::size_t count = std::min(out.size(), ended_.size());
    std::copy_n(ended_.begin(), count, out.begin());
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
    const bool woken = woken_.exchange(false, std::memory_order_acquire);
    const Clock::time_point now = Clock::now();
    if (count > 0 || woken || (waited && now >= deadline)) return count;
    const auto left = std::max(Clock::duration{0}, deadline - now);
    const bool both = near_.in_flight > 0 && far_.in_flight > 0;
    Level& busy = near_.in_flight > 0 && !both ? near_ : far_;
    take(busy, both ? std::min<Clock::duration>(left, glance) : left);
  }
}

}  // namespace

Result<std::unique_ptr<Store>> layered(std::unique_ptr<Store> near, std::uint32_t near_slots,
                                       std::unique_ptr<Store> far) {
  VEDETTE_ASSERT(near_slots >= 2 && near->slot_bytes() == far->slot_bytes());
  VEDETTE_ASSERT(std::min(near->depth(), far->depth()) > layered_extra_depth);
  auto buffers = Mapping::reserve({far->slot_bytes().value * layered_extra_depth}, 2_MiB);
  if (!buffers) return buffers.error();
  ::madvise(buffers->data(), buffers->bytes().value, MADV_HUGEPAGE);  // a wish; transfers of small pages are cut up
  return std::unique_ptr<Store>(
      std::make_unique<LayeredStore>(std::move(near), near_slots, std::move(far), std::move(*buffers)));
}

}  // namespace vedette
