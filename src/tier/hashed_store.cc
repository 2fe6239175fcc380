// Wraps a store and keeps a hash of each slot, for two purposes.
//
// It spares writes. A chunk that was only read since its fetch leaves unchanged, and the slot still has its bytes. Page
// tables cannot tell (a moved page counts as written), and an op's word is not enough. So the chunk is hashed when it
// arrives or is written, and again when it leaves; equal chunks are not written. The hash has 128 bits: two different
// contents of 2 MiB agree once in 10^38 times.
//
// On demand it verifies bytes: a fetched chunk must have the hash of the evicted one. Otherwise (a failing disk, a file
// that another program wrote or cut) the read ends with EBADMSG, and the program never sees the bytes.
//
// XXH3 hashes some 10 GB/s on one core, several times a disk's bandwidth. A slot's hash is that of its last successful
// transfer. A chunk that was hashed when it was written, or found unchanged, is not hashed again when it is fetched.
#include "base/architecture.h"
#include VEDETTE_XXHASH

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "tier/store.h"

namespace vedette {
namespace {

class HashedStore final : public StoreWrapper {
 public:
  HashedStore(std::unique_ptr<Store> inner, Hashing hashing)
      : StoreWrapper(std::move(inner)), verify_(hashing == Hashing::verify) {
    describe();
  }

  // The slots' bytes are gone: a write of the same bytes must not be spared.
  void shrink(std::uint32_t slots) noexcept override {
    if (slots < sums_.size()) std::fill(sums_.begin() + slots, sums_.end(), Sum());
    inner_->shrink(slots);
  }
  void discard(std::span<const SlotIndex> slots) noexcept override {
    for (const SlotIndex slot : slots) sum_of(slot) = {};
    inner_->discard(slots);
  }
  void changed(std::span<const SlotIndex> slots) noexcept override {
    for (const SlotIndex slot : slots) sum_of(slot) = {};
  }
  void register_memory(std::byte* memory, Bytes bytes) override {
    inner_->register_memory(memory, bytes);
    describe();
  }
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  std::string_view mechanism() const noexcept override { return mechanism_; }

 private:
  struct Sum {
    XXH128_hash_t hash = {};
    bool known = false;    // the slot holds bytes of this hash
    bool sparing = false;  // they were read last to leave unchanged; known too
  };
  struct Flight {
    StoreRequest request;
    std::optional<XXH128_hash_t> hash;  // of a write whose bytes were hashed
  };
  XXH128_hash_t hash(const std::byte* memory) const noexcept {
    return XXH3_128bits(memory, inner_->slot_bytes().value);
  }
  Sum& sum_of(SlotIndex slot);
  void describe() { mechanism_ = std::string(inner_->mechanism()) + (verify_ ? ", checksums" : ""); }
  int judge(const Flight& flight, int error) noexcept;

  const bool verify_;
  std::string mechanism_;
  // The migrator's alone:
  std::vector<Sum> sums_;        // by slot
  std::vector<Flight> flights_;  // in the inner store
  std::vector<StoreRequest> passed_on_;
  std::vector<std::uint64_t> spared_;  // tokens of writes that wait() has not returned yet
};

HashedStore::Sum& HashedStore::sum_of(SlotIndex slot) {
  if (slot.value >= sums_.size()) sums_.resize(std::max<std::size_t>(slot.value + 1, sums_.size() * 2));
  return sums_[slot.value];
}

// Requests that need no hash go first: the disk works while the rest is hashed.
void HashedStore::submit(std::span<const StoreRequest> requests) noexcept {
  using enum StoreRequest::Direction;
  const auto hashes = [this](const StoreRequest& request) {
    return request.direction == write && (verify_ || sum_of(request.slot).sparing);
  };
  passed_on_.clear();
  for (const StoreRequest& request : requests) {
    if (hashes(request)) continue;
    if (request.direction == write) sum_of(request.slot) = {};
    flights_.push_back({.request = request});
    passed_on_.push_back(request);
  }
  if (!passed_on_.empty()) inner_->submit(passed_on_);
  for (const StoreRequest& request : requests) {
    if (!hashes(request)) continue;
    Sum& sum = sum_of(request.slot);
    const XXH128_hash_t now = hash(request.memory);
    if (sum.sparing && XXH128_isEqual(now, sum.hash) != 0) {
      spared_.push_back(request.token);
      continue;
    }
    sum = {};  // until it has ended well
    flights_.push_back({.request = request, .hash = now});
    inner_->submit({&request, 1});
  }
}

int HashedStore::judge(const Flight& flight, int error) noexcept {
  const StoreRequest& request = flight.request;
  if (error != 0) return error;
  Sum& sum = sum_of(request.slot);
  if (request.direction == StoreRequest::Direction::write) {
    if (flight.hash) sum = {.hash = *flight.hash, .known = true, .sparing = false};
    return 0;
  }
  if (verify_ || (request.remember && !sum.known)) {
    const XXH128_hash_t now = hash(request.memory);
    if (verify_ && sum.known && XXH128_isEqual(now, sum.hash) == 0) return EBADMSG;
    sum = {.hash = now, .known = true, .sparing = false};
  }
  sum.sparing = request.remember;
  return 0;
}

std::size_t HashedStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  if (!spared_.empty()) {
    const std::size_t count = std::min(out.size(), spared_.size());
    for (std::size_t i = 0; i < count; ++i) out[i] = {.token = spared_[i], .error = 0, .spared = true};
    spared_.erase(spared_.begin(), spared_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  const std::size_t count = inner_->wait(out, timeout);
  for (StoreCompletion& completion : out.first(count)) {
    const auto flight = std::find_if(flights_.begin(), flights_.end(),
                                     [&](const Flight& f) { return f.request.token == completion.token; });
    VEDETTE_ASSERT(flight != flights_.end());
    completion.error = judge(*flight, completion.error);
    *flight = flights_.back();
    flights_.pop_back();
  }
  return count;
}

}  // namespace

std::unique_ptr<Store> hashed(std::unique_ptr<Store> inner, Hashing hashing) {
  return std::make_unique<HashedStore>(std::move(inner), hashing);
}

}  // namespace vedette
