// Any store made slower: a token bucket for each direction, or one for both, and a latency, on the real clock, so that
// a fast disk can play a slow one. The bucket holds a single slot, unless Throttle::saved_up says more: an idle link
// saves nothing up, and requests of one direction follow each other at its bandwidth. The inner store works at once;
// its completions are held until the link would have delivered them.
//
//   due = max(now, when the link is free) + slot / bandwidth + latency
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "base/assert.h"
#include "tier/store.h"

namespace vedette {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours(24 * 365);  // now() + timeout does not overflow

class ThrottledStore final : public StoreWrapper {
 public:
  ThrottledStore(std::unique_ptr<Store> inner, Throttle throttle);

  void register_memory(std::byte* memory, Bytes bytes) override {
    inner_->register_memory(memory, bytes);
    describe();
  }
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override {
    woken_.store(true, std::memory_order_release);  // pairs with the exchange in wait()
    inner_->wake();
  }
  std::string_view mechanism() const noexcept override { return mechanism_; }

 private:
  struct Held {  // a request on the link: its place is the token that the inner store sees
    std::uint64_t token = 0;
    Clock::time_point due;
    int error = 0;
    TierIndex tier;
    bool busy = false, arrived = false;  // arrived: the inner store has completed it
  };
  void describe();
  std::size_t deliver(std::span<StoreCompletion> out, Clock::time_point now) noexcept;
  Clock::time_point next_due() const noexcept;

  Throttle throttle_;
  std::string mechanism_;
  std::vector<Held> held_;                    // depth() places
  std::vector<StoreCompletion> completed_;    // room for one wait() of the inner store
  Clock::time_point read_free_, write_free_;  // of one bus the first
  std::atomic<bool> woken_{false};
};

ThrottledStore::ThrottledStore(std::unique_ptr<Store> inner, Throttle throttle)
    : StoreWrapper(std::move(inner)), throttle_(throttle), held_(inner_->depth()), completed_(inner_->depth()) {
  describe();
}

void ThrottledStore::describe() {
  const auto words = [](std::uint64_t bytes_per_s) {
    return bytes_per_s == 0 ? std::string("unlimited") : std::to_string(bytes_per_s / 1'000'000) + " MB/s";
  };
  mechanism_ = std::string(inner_->mechanism()) + ", throttled to " + (throttle_.one_bus ? "one bus, read " : "read ") +
               words(throttle_.read_bytes_per_s) + ", write " + words(throttle_.write_bytes_per_s) + ", latency " +
               std::to_string(throttle_.latency.value / 1000) + " us";
}

void ThrottledStore::submit(std::span<const StoreRequest> requests) noexcept {
  const Clock::time_point now = Clock::now();
  std::size_t place = 0;
  for (const StoreRequest& request : requests) {
    while (place < held_.size() && held_[place].busy) ++place;
    VEDETTE_ASSERT(place < held_.size());  // at most depth() in flight
    const bool read = request.direction == StoreRequest::Direction::read;
    Clock::time_point& link_free = read || throttle_.one_bus ? read_free_ : write_free_;
    const std::uint64_t bandwidth = read ? throttle_.read_bytes_per_s : throttle_.write_bytes_per_s;
    link_free = std::max(link_free, now - std::chrono::nanoseconds(throttle_.saved_up.value)) +
                std::chrono::nanoseconds(transfer_time(slot_bytes(), bandwidth).value);
    held_[place] = {.token = request.token,
                    .due = std::max(link_free, now) + std::chrono::nanoseconds(throttle_.latency.value),
                    .busy = true};
    StoreRequest inner = request;
    inner.token = place;
    inner_->submit({&inner, 1});
  }
}

// Requests that have arrived and are due, earliest first.
std::size_t ThrottledStore::deliver(std::span<StoreCompletion> out, Clock::time_point now) noexcept {
  std::size_t count = 0;
  while (count < out.size()) {
    Held* first = nullptr;
    for (Held& held : held_) {
      if (held.arrived && held.due <= now && (first == nullptr || held.due < first->due)) first = &held;
    }
    if (first == nullptr) break;
    out[count++] = {.token = first->token, .error = first->error, .tier = first->tier};
    *first = {};
  }
  return count;
}

Clock::time_point ThrottledStore::next_due() const noexcept {
  Clock::time_point due = Clock::time_point::max();
  for (const Held& held : held_) {
    if (held.arrived) due = std::min(due, held.due);
  }
  return due;
}

std::size_t ThrottledStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  const Clock::time_point deadline = Clock::now() + std::min(longest_wait, std::chrono::nanoseconds(timeout.value));
  for (bool waited = false;; waited = true) {
    const Clock::time_point now = Clock::now();
    const std::size_t count = deliver(out, now);
    const bool woken = woken_.exchange(false, std::memory_order_acquire);
    if (count > 0 || woken || (waited && now >= deadline)) return count;
    const auto left = std::max(Clock::duration{0}, std::min(deadline, next_due()) - now);
    const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const std::size_t arrived = inner_->wait(completed_, Nanoseconds{limit});
    for (std::size_t i = 0; i < arrived; ++i) {
      Held& held = held_[completed_[i].token];
      held.error = completed_[i].error;
      held.tier = completed_[i].tier;
      held.arrived = true;
    }
  }
}

}  // namespace

std::unique_ptr<Store> throttled(std::unique_ptr<Store> inner, Throttle throttle) {
  return std::make_unique<ThrottledStore>(std::move(inner), throttle);
}

}  // namespace vedette
