// A store in plain memory: the near level of a layered store, the memory of a slower node, and for tests. The copy
// happens inside submit(), the next wait() returns the completion, so a caller sees the same order of events as with a
// disk that is infinitely fast.
//
// Slots live in blocks of a fixed number of slots, so growing moves none. The kernel gives the pages at their first
// write.
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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
#include "tier/store.h"

namespace vedette {
namespace {

constexpr std::uint32_t slots_per_block = 64;
constexpr Bytes huge_page = 2_MiB;

class HostStore final : public OneTierStore {
 public:
  HostStore(Bytes slot_bytes, std::uint32_t depth, std::uint32_t most_slots, std::optional<std::uint32_t> node)
      : slot_bytes_(slot_bytes), most_slots_(most_slots), node_(node), ended_(depth) {}

  Result<void> reserve(std::uint32_t slots) override;
  void shrink(std::uint32_t slots) noexcept override;
  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override;
  std::uint32_t depth() const noexcept override { return static_cast<std::uint32_t>(ended_.size()); }
  Bytes slot_bytes() const noexcept override { return slot_bytes_; }
  std::uint32_t slots_of(TierIndex) const noexcept override { return most_slots_; }
  std::string_view mechanism() const noexcept override { return "memory, copied at once"; }

 private:
  std::byte* slot(SlotIndex index) noexcept;

  const Bytes slot_bytes_;
  const std::uint32_t most_slots_;
  const std::optional<std::uint32_t> node_;  // none: memory of any node
  std::mutex growing_;
  std::vector<Mapping> blocks_;         // under growing_
  std::vector<StoreCompletion> ended_;  // a ring of depth() places; the migrator's alone, like the two counters
  std::uint64_t completed_ = 0, returned_ = 0;
  std::mutex waking_;
  std::condition_variable woken_changed_;
  bool woken_ = false;  // under waking_
};

Result<void> bind(const Mapping& block, std::uint32_t node) {
  constexpr std::uint32_t bits = 64, most_nodes = 1024;
  std::array<unsigned long, most_nodes / bits> mask{};
  if (node < most_nodes) mask[node / bits] = 1ul << node % bits;
  const bool bound = node < most_nodes && ::syscall(SYS_mbind, block.data(), block.bytes().value, MPOL_BIND,
                                                    mask.data(), most_nodes, 0) == 0;
  if (bound) return {};
  const int code = node < most_nodes ? errno : EINVAL;
  return Error{.cause = Cause::system,
               .message = "binding memory to NUMA node " + std::to_string(node) + ": " + std::strerror(code) +
                          "; allow mbind (containers: CAP_SYS_NICE) or use another slow tier",
               .errno_value = code};
}

Result<void> HostStore::reserve(std::uint32_t slots) {
  if (slots > most_slots_) {
    return Error{.cause = Cause::out_of_memory,
                 .message = "a host store of " + readable_exactly({slot_bytes_.value * most_slots_}) +
                            " has no room for " + readable_exactly({slot_bytes_.value * slots}) + "; make it larger"};
  }
  const std::lock_guard lock(growing_);
  while (blocks_.size() * slots_per_block < slots) {
    // The last block ends where the store may end, so that no huge page reaches beyond.
    const std::uint64_t left = most_slots_ - blocks_.size() * slots_per_block;
    auto block = Mapping::reserve({slot_bytes_.value * std::min<std::uint64_t>(slots_per_block, left)}, huge_page);
    if (!block) return block.error();
    ::madvise(block->data(), block->bytes().value, MADV_HUGEPAGE);  // a wish: smaller pages work as well
    if (node_) {
      if (auto bound = bind(*block, *node_); !bound) return bound;
    }
    blocks_.push_back(std::move(*block));
  }
  return {};
}

void HostStore::shrink(std::uint32_t slots) noexcept {
  const std::lock_guard lock(growing_);
  const std::size_t needed = (slots + slots_per_block - 1) / slots_per_block;
  while (blocks_.size() > needed) blocks_.pop_back();
}

std::byte* HostStore::slot(SlotIndex index) noexcept {
  const std::lock_guard lock(growing_);
  VEDETTE_ASSERT(index.value / slots_per_block < blocks_.size());  // reserved
  return blocks_[index.value / slots_per_block].data() + (index.value % slots_per_block) * slot_bytes_.value;
}

void HostStore::submit(std::span<const StoreRequest> requests) noexcept {
  for (const StoreRequest& request : requests) {
    VEDETTE_ASSERT(completed_ - returned_ < ended_.size());  // at most depth() in flight
    std::byte* place = slot(request.slot);
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
                                          std::optional<std::uint32_t> node) {
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

Result<std::unique_ptr<Store>> open_numa_store(Bytes slot_bytes, std::uint32_t depth, std::uint32_t node,
                                               std::uint32_t most_slots) {
  return open_store(slot_bytes, depth, most_slots, node);
}

}  // namespace vedette
