// A store in plain memory: the near level of a layered store, the memory of a slower node, and for tests. The copy
// happens inside submit(), the next wait() returns the completion, so a caller sees the same order of events as with a
// disk that is infinitely fast.
//
// Slots live in blocks of a fixed number of slots, so growing moves none. The kernel gives the pages at their first
// write. Pages of a node are there, and bound to it, before reserve() returns: a node that is full is its Error.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/mapping.h"
#include "base/readable.h"
#include "os/node_memory.h"
#include "os/parking.h"
#include "os/uffd.h"
#include "tier/store.h"

namespace vedette {
namespace {

constexpr std::uint32_t slots_per_block = 64;
constexpr Bytes huge_page = 2_MiB;

struct Block {
  Mapping memory;
  Bytes filled;  // from its begin on, of the node; without one: nothing is filled ahead
};

class HostStore final : public OneTierStore {
 public:
  HostStore(Bytes slot_bytes, std::uint32_t depth, std::uint32_t most_slots, std::optional<NodeIndex> node)
      : slot_bytes_(slot_bytes), most_slots_(most_slots), node_(node), ended_(depth) {
    if (node_) mechanism_ = of_node("memory", *node_) + ", copied at once";
  }

  Result<void> reserve(std::uint32_t slots) override;
  void shrink(std::uint32_t slots) noexcept override;
  bool is_memory() const noexcept override { return true; }
  std::byte* memory_of(SlotIndex slot) noexcept override;
  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override;
  std::uint32_t depth() const noexcept override { return static_cast<std::uint32_t>(ended_.size()); }
  Bytes slot_bytes() const noexcept override { return slot_bytes_; }
  std::uint32_t slots_of(TierIndex) const noexcept override { return most_slots_; }
  std::string_view mechanism() const noexcept override { return mechanism_; }

 private:
  Result<void> add_block();
  Result<void> fill(std::uint32_t slots);
  Bytes wanted_of(std::size_t block, std::uint32_t slots) const noexcept;
  Error no_room(std::uint32_t slots) const;

  const Bytes slot_bytes_;
  const std::uint32_t most_slots_;
  const std::optional<NodeIndex> node_;  // none: memory of any node
  std::string mechanism_ = "memory, copied at once";
  std::mutex growing_;
  std::vector<Block> blocks_;           // under growing_
  std::vector<StoreCompletion> ended_;  // a ring of depth() places; the migrator's alone, like the two counters
  std::uint64_t completed_ = 0, returned_ = 0;
  std::mutex waking_;
  std::condition_variable woken_changed_;
  bool woken_ = false;  // under waking_
};

Error HostStore::no_room(std::uint32_t slots) const {
  const std::string of = node_ ? "the slow tier on NUMA node " + std::to_string(node_->value) : "a host store";
  return {.cause = Cause::out_of_memory,
          .message = of + " of " + readable_exactly({slot_bytes_.value * most_slots_}) + " has no room for " +
                     readable_exactly({slot_bytes_.value * slots}) + "; make it larger"};
}

Result<void> HostStore::reserve(std::uint32_t slots) {
  if (slots > most_slots_) return no_room(slots);
  const std::lock_guard lock(growing_);
  while (blocks_.size() * slots_per_block < slots)
    if (auto added = add_block(); !added) return added;
  return node_ ? fill(slots) : Result<void>();
}

Result<void> HostStore::add_block() {
  // The last block ends where the store may end, so that no huge page reaches beyond.
  const std::uint64_t left = most_slots_ - blocks_.size() * slots_per_block;
  auto block = Mapping::reserve({slot_bytes_.value * std::min<std::uint64_t>(slots_per_block, left)}, huge_page);
  if (!block) return block.error();
  ::madvise(block->data(), block->bytes().value, MADV_HUGEPAGE);  // a wish: smaller pages work as well
  ::madvise(block->data(), block->bytes().value, MADV_DONTFORK);  // pages that a child shares could not be lent
  if (node_) {
    if (auto preferred = prefer_node(block->data(), block->bytes(), *node_); !preferred) return preferred;
  }
  blocks_.push_back({.memory = std::move(*block)});
  return {};
}

// Of the block, for so many slots of the store: whole pieces, but for the end of the block.
Bytes HostStore::wanted_of(std::size_t block, std::uint32_t slots) const noexcept {
  const std::uint64_t before = block * slots_per_block;
  const std::uint64_t bytes = slots > before ? (slots - before) * slot_bytes_.value : 0;
  const std::uint64_t pieces = (bytes + node_piece.value - 1) / node_piece.value;
  return std::min(node_piece * pieces, blocks_[block].memory.bytes());
}

// Slots from before the node was full stay: a smaller reservation may find it enough.
Result<void> HostStore::fill(std::uint32_t slots) {
  Bytes held;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    const Bytes wanted = wanted_of(b, slots);
    if (wanted > block.filled) {
      std::byte* const from = block.memory.data() + block.filled.value;
      const Filled filled = fill_from_node(from, wanted - block.filled, *node_, Pages::huge);
      int error = filled.error;
      if (filled.bytes.value > 0 && error == 0) error = bind_to_node(from, filled.bytes, *node_);
      block.filled += filled.bytes;
      if (error != 0) return system_error(of_node("asking for memory", *node_), error, remedy_of_node(error));
    }
    held += block.filled;
    if (wanted > block.filled)
      return Error{.cause = Cause::out_of_memory,
                   .message = "NUMA node " + std::to_string(node_->value) +
                              " has no more memory free: the slow tier has " + readable(held) + " there and needs " +
                              readable({slots * slot_bytes_.value}) +
                              "; end what else uses that node, train something smaller, or let a disk have the rest " +
                              "(slow = \"numa:" + std::to_string(node_->value) + "+nvme:DIRECTORY\")"};
  }
  return {};
}

void HostStore::shrink(std::uint32_t slots) noexcept {
  const std::lock_guard lock(growing_);
  const std::size_t needed = (slots + slots_per_block - 1) / slots_per_block;
  while (blocks_.size() > needed) blocks_.pop_back();
  if (!node_ || blocks_.empty()) return;
  Block& last = blocks_.back();
  const Bytes wanted = wanted_of(blocks_.size() - 1, slots);
  if (last.filled <= wanted) return;
  std::byte* const rest = last.memory.data() + wanted.value;
  // Bound memory that holds nothing must not be touched again: it is kept where it cannot be preferred.
  if (!prefer_node(rest, last.filled - wanted, *node_)) return;
  if (clear_entries(rest, (last.filled - wanted).value) == 0) last.filled = wanted;
}

std::byte* HostStore::memory_of(SlotIndex index) noexcept {
  const std::lock_guard lock(growing_);
  VEDETTE_ASSERT(index.value / slots_per_block < blocks_.size());  // reserved
  return blocks_[index.value / slots_per_block].memory.data() + (index.value % slots_per_block) * slot_bytes_.value;
}

void HostStore::submit(std::span<const StoreRequest> requests) noexcept {
  for (const StoreRequest& request : requests) {
    VEDETTE_ASSERT(completed_ - returned_ < ended_.size());  // at most depth() in flight
    std::byte* place = memory_of(request.slot);
    const bool read = request.direction == StoreRequest::Direction::read;
    std::memcpy(read ? request.memory : place, read ? place : request.memory, slot_bytes_.value);
    ended_[completed_++ % ended_.size()] = {.token = request.token};
  }
}

std::size_t HostStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24 * 365);  // now() + timeout does not overflow
  {
    std::unique_lock lock(waking_);
    if (completed_ == returned_) {
      const auto limit = std::min(longest, std::chrono::nanoseconds(timeout.value));
      woken_changed_.wait_for(lock, limit, [this] { return woken_; });
    }
    woken_ = false;
  }
  std::size_t count = 0;
  while (count < out.size() && returned_ < completed_) out[count++] = ended_[returned_++ % ended_.size()];
  return count;
}

void HostStore::wake() noexcept {
  const std::lock_guard lock(waking_);
  woken_ = true;
  woken_changed_.notify_one();
}

Result<std::unique_ptr<Store>> open_store(Bytes slot_bytes, std::uint32_t depth, std::uint32_t most_slots,
                                          std::optional<NodeIndex> node) {
  if (slot_bytes.value == 0 || slot_bytes.value % 4096 != 0 || depth == 0) {
    return Error{.cause = Cause::malformed_input,
                 .message = "a host store with slots of " + readable_exactly(slot_bytes) + " and depth " +
                            std::to_string(depth) + ": want a multiple of 4096 bytes and at least one request"};
  }
  return std::unique_ptr<Store>(std::make_unique<HostStore>(slot_bytes, depth, most_slots, node));
}

}  // namespace

Result<std::unique_ptr<Store>> open_host_store(Bytes slot_bytes, std::uint32_t depth, std::uint32_t most_slots) {
  return open_store(slot_bytes, depth, most_slots, std::nullopt);
}

Result<std::unique_ptr<Store>> open_numa_store(Bytes slot_bytes, std::uint32_t depth, NodeIndex node,
                                               std::uint32_t most_slots) {
  return open_store(slot_bytes, depth, most_slots, node);
}

}  // namespace vedette
