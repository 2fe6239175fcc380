#include "support/faulty_store.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/assert.h"

namespace vedette {
namespace {

using Direction = StoreRequest::Direction;
constexpr int garbage = 0xA5;

}  // namespace

FaultyStore::FaultyStore(std::unique_ptr<Store> inner, FaultyStoreOptions options)
    : StoreWrapper(std::move(inner)),
      options_(std::move(options)),
      mechanism_(std::string(inner_->mechanism()) + ", broken on purpose"),
      random_(options_.seed),
      held_(inner_->depth()),
      completed_(inner_->depth()) {}

FaultyStore::~FaultyStore() = default;

std::optional<StoreFault> FaultyStore::fault_for(Direction direction) {
  const std::uint64_t of_all = reads_ + writes_;
  const std::uint64_t of_direction = direction == Direction::read ? reads_++ : writes_++;
  for (const StoreFault& fault : options_.script) {
    if (fault.direction && *fault.direction != direction) continue;
    if (fault.nth == (fault.direction ? of_direction : of_all)) return fault;
  }
  if (options_.fail_one_in != 0 && random_() % options_.fail_one_in == 0) return StoreFault{};
  if (options_.delay_one_in != 0 && random_() % options_.delay_one_in == 0) {
    return StoreFault{.kind = StoreFault::Kind::delay, .delay = {static_cast<std::int64_t>(random_() % 2'000'000)}};
  }
  return {};
}

void FaultyStore::break_bytes(const StoreFault& fault, std::byte* bytes) {
  const std::size_t size = slot_bytes().value;
  if (fault.kind == StoreFault::Kind::torn) std::memset(bytes + size / 2, garbage, size / 2);
  if (fault.kind == StoreFault::Kind::corrupt) bytes[random_() % size] ^= std::byte{1} << (random_() % 8);
}

void FaultyStore::submit(std::span<const StoreRequest> requests) noexcept {
  std::size_t place = 0;
  for (const StoreRequest& request : requests) {
    while (place < held_.size() && held_[place].busy) ++place;
    VEDETTE_ASSERT(place < held_.size());  // at most depth() in flight
    held_[place] = Held{.request = request, .fault = fault_for(request.direction), .due = Clock::now(), .busy = true};
    start(place);
  }
}

void FaultyStore::start(std::size_t place) {
  Held& held = held_[place];
  StoreRequest inner = held.request;
  inner.token = place;
  if (held.fault) {
    ++faults_;
    if (held.fault->kind == StoreFault::Kind::fail) return arrive(held, 0);
    if (held.fault->kind == StoreFault::Kind::delay) held.due += std::chrono::nanoseconds(held.fault->delay.value);
    const bool breaks = held.fault->kind != StoreFault::Kind::delay;
    if (breaks && inner.direction == Direction::write) {  // the caller's bytes stay as they are
      held.copy = {static_cast<std::byte*>(std::aligned_alloc(4096, slot_bytes().value)), std::free};
      std::memcpy(held.copy.get(), inner.memory, slot_bytes().value);
      break_bytes(*held.fault, held.copy.get());
      inner.memory = held.copy.get();
    }
  }
  inner_->submit({&inner, 1});
}

void FaultyStore::arrive(Held& held, int error) {
  held.arrived = true;
  held.error = error;
  if (error != 0 || !held.fault) return;
  using Kind = StoreFault::Kind;
  const Kind kind = held.fault->kind;
  if (kind == Kind::fail || kind == Kind::torn) held.error = held.fault->error;
  if (held.request.direction == Direction::read) break_bytes(*held.fault, held.request.memory);
}

std::size_t FaultyStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24 * 365);
  const auto deadline = Clock::now() + std::min(longest, std::chrono::nanoseconds(timeout.value));
  for (bool waited = false;; waited = true) {
    const auto now = Clock::now();
    std::size_t count = 0;
    auto until = deadline;
    for (Held& held : held_) {
      if (!held.arrived) continue;
      if (held.due > now || count == out.size()) {
        until = std::min(until, held.due);
        continue;
      }
      out[count++] = {.token = held.request.token, .error = held.error, .tier = held.tier};
      held = Held{};
    }
    const bool woken = woken_.exchange(false, std::memory_order_acquire);  // pairs with wake()
    if (count > 0 || woken || (waited && now >= deadline)) return count;
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - now).count();
    const std::size_t arrived = inner_->wait(completed_, {std::max<std::int64_t>(0, left)});
    for (std::size_t i = 0; i < arrived; ++i) {
      held_[completed_[i].token].tier = completed_[i].tier;
      arrive(held_[completed_[i].token], completed_[i].error);
    }
  }
}

void FaultyStore::wake() noexcept {
  woken_.store(true, std::memory_order_release);  // pairs with the exchange in wait()
  inner_->wake();
}

}  // namespace vedette
