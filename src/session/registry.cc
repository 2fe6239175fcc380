#include "session/registry.h"

#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <vector>

#include "session/core.h"

namespace vedette::detail {
namespace {

// Sessions of a process, closed ones with living tensors included. An arena's addresses are never given back, so a slot
// is never reused.
constexpr std::size_t most_sessions = 256;

struct Slot {
  std::atomic<const std::byte*> begin{nullptr};
  std::size_t bytes = 0;
  SessionCore* core = nullptr;
};

std::array<Slot, most_sessions>& slots() noexcept {
  static std::array<Slot, most_sessions> table;
  return table;
}
std::atomic<std::size_t> used{0};
std::mutex registering;

}  // namespace

SessionCore* owner_of(const void* memory) noexcept {
  const auto* address = static_cast<const std::byte*>(memory);
  const std::size_t count = used.load(std::memory_order_acquire);  // pairs with the release in register_session
  for (std::size_t i = count; i-- > 0;) {
    const Slot& slot = slots()[i];
    const std::byte* begin = slot.begin.load(std::memory_order_relaxed);
    if (address >= begin && address < begin + slot.bytes) return slot.core;
  }
  return nullptr;
}

bool session_is_open() noexcept {
  const std::size_t count = used.load(std::memory_order_acquire);  // pairs with the release in register_session
  for (std::size_t i = 0; i < count; ++i)
    if (slots()[i].core->is_open() && !slots()[i].core->inherited()) return true;
  return false;
}

Result<SessionCore*> register_session(std::unique_ptr<SessionCore> core) {
  const std::lock_guard lock(registering);
  if (session_is_open())  // two threads got here at once
    return Error{.cause = Cause::unsupported,
                 .message = "a second session while one lives: end the first one",
                 .errno_value = 0};
  const std::size_t count = used.load(std::memory_order_relaxed);
  if (count == most_sessions)
    return Error{.cause = Cause::unsupported, .message = "more than 256 sessions in one process", .errno_value = 0};
  Slot& slot = slots()[count];
  slot.bytes = core->arena().bytes().value;
  slot.core = core.release();
  slot.begin.store(slot.core->arena().base(), std::memory_order_relaxed);
  used.store(count + 1, std::memory_order_release);
  return slot.core;
}

void close_session(SessionCore* core) noexcept {
  if (core->inherited()) return;
  const std::lock_guard lock(registering);
  core->close();
}

Bytes shrink_closed_sessions(Bytes most) noexcept {
  const std::lock_guard lock(registering);
  const std::size_t count = used.load(std::memory_order_relaxed);
  const auto shrunk = [&](auto share_of) {
    std::vector<Bytes> kept(count);
    for (std::size_t i = 0; i < count; ++i)
      if (SessionCore& core = *slots()[i].core; !core.is_open() && !core.inherited())
        kept[i] = core.wind_down(share_of(i));
    return kept;
  };
  const auto sum = [](const std::vector<Bytes>& parts) { return std::accumulate(parts.begin(), parts.end(), Bytes{}); };
  const std::vector<Bytes> kept = shrunk([](std::size_t) { return Bytes{~std::uint64_t{0}}; });
  const Bytes all = sum(kept);
  if (all <= most) return all;
  const double share = static_cast<double>(most.value) / static_cast<double>(all.value);
  return sum(shrunk(
      [&](std::size_t i) { return Bytes{static_cast<std::uint64_t>(static_cast<double>(kept[i].value) * share)}; }));
}

}  // namespace vedette::detail
