// Any store behind checksums: what is written is hashed before it leaves, what is read is hashed again before anybody sees it. A slot
// whose bytes have changed on the way (a disk that lies, a file that somebody else wrote or cut) ends its read with EBADMSG, and is
// never shown to the program as numbers. XXH3 hashes some 10 GB/s on one core, several times what a disk moves.
//
// A slot is known from its last write that ended well; before that its bytes mean nothing, so any will do.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/assert.h"
#include "tier/store.h"

namespace vedette {
namespace {

class CheckedStore final : public Store {
 public:
  explicit CheckedStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) { describe(); }

  Result<void> reserve(std::uint32_t slots) override { return inner_->reserve(slots); }
  void register_memory(std::byte* memory, Bytes bytes) override {
    inner_->register_memory(memory, bytes);
    describe();
  }
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override { inner_->wake(); }
  std::uint32_t depth() const noexcept override { return inner_->depth(); }
  Bytes slot_bytes() const noexcept override { return inner_->slot_bytes(); }
  std::string_view mechanism() const noexcept override { return mechanism_; }

 private:
  struct Sum {
    std::uint64_t hash = 0;
    bool known = false;
  };
  struct Flight {
    StoreRequest request;
    std::uint64_t hash = 0;          // of a write
  };
  std::uint64_t hash(const std::byte* memory) const noexcept { return XXH3_64bits(memory, inner_->slot_bytes().value); }
  void describe() { mechanism_ = std::string(inner_->mechanism()) + ", checksums"; }
  int judge(const Flight& flight, int error) noexcept;

  std::unique_ptr<Store> inner_;
  std::string mechanism_;
  std::vector<Sum> sums_;            // by slot; the migrator's alone, like flights_
  std::vector<Flight> flights_;
};

void CheckedStore::submit(std::span<const StoreRequest> requests) noexcept {
  for (const StoreRequest& request : requests) {
    const bool write = request.direction == StoreRequest::Direction::write;
    if (request.slot.value >= sums_.size()) sums_.resize(std::max<std::size_t>(request.slot.value + 1, sums_.size() * 2));
    if (write) sums_[request.slot.value].known = false;  // until it has ended well
    flights_.push_back({.request = request, .hash = write ? hash(request.memory) : 0});
  }
  inner_->submit(requests);
}

int CheckedStore::judge(const Flight& flight, int error) noexcept {
  Sum& sum = sums_[flight.request.slot.value];
  if (error != 0) return error;
  if (flight.request.direction == StoreRequest::Direction::write) {
    sum = {.hash = flight.hash, .known = true};
    return 0;
  }
  return sum.known && hash(flight.request.memory) != sum.hash ? EBADMSG : 0;
}

std::size_t CheckedStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
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

std::unique_ptr<Store> checked(std::unique_ptr<Store> inner) { return std::make_unique<CheckedStore>(std::move(inner)); }

}  // namespace vedette
