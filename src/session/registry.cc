#include "session/registry.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "session/core.h"

namespace vedette::detail {
namespace {

// Of sessions whose tensors live, the open one included. A slot of one that has ended is the next one's.
constexpr std::size_t most_sessions = 256;

// Never changed and never deleted: a thread that looks an address up may have it in hand.
struct Entry {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  SessionCore* core = nullptr;
};
using Slot = std::atomic<const Entry*>;

std::array<Slot, most_sessions>& slots() noexcept {
  static std::array<Slot, most_sessions> table;
  return table;
}
std::atomic<std::size_t> used{0};
std::mutex registering;

constexpr Entry nobodys;

// Entries of sessions that have ended; a scope of the program may still name their cores.
std::vector<const Entry*>& ended() {
  static auto* const all = new std::vector<const Entry*>;
  return *all;
}

const Entry& entry(std::size_t slot) noexcept { return *slots()[slot].load(std::memory_order_acquire); }

}  // namespace

SessionCore* owner_of(const void* memory) noexcept {
  const auto* address = static_cast<const std::byte*>(memory);
  const std::size_t count = used.load(std::memory_order_acquire);  // pairs with the release in register_session
  for (std::size_t i = count; i-- > 0;) {
    const Entry& each = entry(i);  // pairs with the release in register_session
    if (address >= each.begin && address < each.begin + each.bytes) return each.core;
  }
  return nullptr;
}

bool session_is_open() noexcept {
  const std::size_t count = used.load(std::memory_order_acquire);  // pairs with the release in register_session
  for (std::size_t i = 0; i < count; ++i)
    if (const SessionCore* const core = entry(i).core; core != nullptr && core->is_open() && !core->inherited())
      return true;
  return false;
}

namespace {

// The first free slot, or `count`.
std::size_t free_slot(std::size_t count) {
  std::size_t found = count;
  for (std::size_t i = count; i-- > 0;) {
    const Entry* const each = &entry(i);
    if (each->core != nullptr && !each->core->inherited() && each->core->has_ended()) {
      slots()[i].store(&nobodys, std::memory_order_release);  // before other memory can have its addresses
      each->core->give_back_addresses();
      ended().push_back(each);
    }
    if (entry(i).core == nullptr) found = i;
  }
  return found;
}

}  // namespace

Result<SessionCore*> register_session(std::unique_ptr<SessionCore> core) {
  const std::lock_guard lock(registering);
  if (session_is_open())  // two threads got here at once
    return Error{.cause = Cause::unsupported, .message = "a second session while one lives: end the first one"};
  const std::size_t count = used.load(std::memory_order_relaxed);
  const std::size_t slot = free_slot(count);
  if (slot == most_sessions)
    return Error{.cause = Cause::unsupported,
                 .message =
                     "tensors of 256 earlier sessions live in this process; end them, or open one session for "
                     "all epochs"};
  SessionCore* const opened = core.release();
  const auto bytes = static_cast<std::size_t>(opened->arena().bytes().value);
  slots()[slot].store(new Entry{.begin = opened->arena().base(), .bytes = bytes, .core = opened},
                      std::memory_order_release);
  if (slot == count) used.store(count + 1, std::memory_order_release);
  return opened;
}

void registry_in_child() noexcept { std::construct_at(&registering); }

void close_session(SessionCore* core) noexcept {
  if (core->inherited()) return;
  const std::lock_guard lock(registering);
  core->close();
}

KeptByClosed shrink_closed_sessions(Bytes most) noexcept {
  const std::lock_guard lock(registering);
  const std::size_t count = used.load(std::memory_order_relaxed);
  Bytes at_most;
  const auto shrunk = [&](auto share_of) {
    std::vector<Bytes> kept(count);
    at_most = {};
    for (std::size_t i = 0; i < count; ++i) {
      SessionCore* const core = entry(i).core;
      if (core == nullptr || core->is_open() || core->inherited()) continue;
      kept[i] = core->memory().wind_down(share_of(i));
      at_most = at_most + core->memory().may_keep();
    }
    return kept;
  };
  const auto sum = [](const std::vector<Bytes>& parts) { return std::accumulate(parts.begin(), parts.end(), Bytes{}); };
  const std::vector<Bytes> kept = shrunk([](std::size_t) { return Bytes{~std::uint64_t{0}}; });
  const Bytes all = sum(kept);
  if (all <= most) return {all, at_most};
  const double share = static_cast<double>(most.value) / static_cast<double>(all.value);
  const std::vector<Bytes> less = shrunk(
      [&](std::size_t i) { return Bytes{static_cast<std::uint64_t>(static_cast<double>(kept[i].value) * share)}; });
  return {sum(less), at_most};
}

}  // namespace vedette::detail
