// A store that breaks on purpose: wraps any store and fails, delays, tears or corrupts the n-th request of a script, so
// that a test can ask of every n whether its subject survives. Seeded: the same script and seed break the same bytes.
//
// Invariant: every request is completed exactly once, whatever the script does to it. Thread rule: as Store's.
#pragma once
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tier/store.h"

namespace vedette {

struct StoreFault {
  enum class Kind : std::uint8_t {
    fail,     // completes with `error`; no byte moves
    delay,    // works, and completes `delay` later
    torn,     // the first half moves, the second becomes garbage; completes with `error`
    corrupt,  // one bit flips without an error
  } kind = Kind::fail;
  std::uint64_t nth = 0;                             // which request, from 0, in the order of submission
  std::optional<StoreRequest::Direction> direction;  // counts only requests of this direction; both when empty
  int error = EIO;
  Nanoseconds delay{10'000'000};
};

struct FaultyStoreOptions {
  std::vector<StoreFault> script;
  std::uint64_t seed = 1;          // of the corrupted bit and of the two below
  std::uint32_t fail_one_in = 0;   // besides the script: a request in so many fails with EIO; 0: none
  std::uint32_t delay_one_in = 0;  // or completes up to 2 ms late
};

class FaultyStore final : public StoreWrapper {
 public:
  FaultyStore(std::unique_ptr<Store> inner, FaultyStoreOptions options);
  ~FaultyStore() override;

  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override;
  std::string_view mechanism() const noexcept override { return mechanism_; }

  std::uint64_t requests() const noexcept { return reads_ + writes_; }  // submitted so far, broken ones included
  std::uint64_t faults() const noexcept { return faults_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    StoreRequest request;
    std::optional<StoreFault> fault;
    std::unique_ptr<std::byte, void (*)(void*)> copy{nullptr, nullptr};  // moves instead of the caller's memory
    Clock::time_point due;
    int error = 0;
    TierIndex tier = {1};
    bool busy = false, arrived = false;
  };
  std::optional<StoreFault> fault_for(StoreRequest::Direction direction);
  void start(std::size_t place);
  void arrive(Held& held, int error);
  void break_bytes(const StoreFault& fault, std::byte* bytes);

  FaultyStoreOptions options_;
  std::string mechanism_;
  std::mt19937_64 random_;
  std::vector<Held> held_;
  std::vector<StoreCompletion> completed_;
  std::uint64_t reads_ = 0, writes_ = 0, faults_ = 0;
  std::atomic<bool> woken_{false};
};

}  // namespace vedette
