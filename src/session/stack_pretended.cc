// Memory of this machine that plays slower memory of another one, for policies to be tried where there is one kind.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/mapping.h"
#include "session/stack.h"

namespace vedette::detail {
namespace {

// Bytes a second of a copy by one thread, as the engine's are; the best of several.
std::uint64_t copy_speed() {
  constexpr Bytes bytes = 16_MiB;
  const auto from = Mapping::reserve(bytes, 2_MiB), to = Mapping::reserve(bytes, 2_MiB);
  double best = 1e9;
  if (!from || !to) return static_cast<std::uint64_t>(best);
  std::memset(from->data(), 1, bytes.value);
  for (int round = 0; round < 5; ++round) {
    const auto began = std::chrono::steady_clock::now();
    std::memcpy(to->data(), from->data(), bytes.value);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    best = std::max(best, static_cast<double>(bytes.value) / std::max(took.count(), 1e-9));
  }
  return static_cast<std::uint64_t>(best);
}

}  // namespace

void make_as_slow(Stack& stack, const SlowMemory& as) {
  // Memory carries each byte of a copy twice: it is read, and written elsewhere. So much it carries for one thread.
  const auto copy = static_cast<double>(copy_speed()), here = 2 * copy;
  const auto share = [&](std::uint64_t speed) {
    return static_cast<double>(speed) / static_cast<double>(as.fast_bytes_per_s);
  };
  const auto copied = [&](std::uint64_t speed) {
    return static_cast<std::uint64_t>(std::min(copy, here * share(speed)));
  };
  // A use in place takes 1 / share as long as one of fast memory, whose time the op has spent already.
  const auto beside = [&](std::uint64_t speed) {
    return static_cast<std::uint64_t>(here * share(speed) / (1 - share(speed)));
  };
  stack.store = throttled(std::move(stack.store), {.read_bytes_per_s = copied(as.read_bytes_per_s),
                                                   .write_bytes_per_s = copied(as.write_bytes_per_s),
                                                   .latency = as.latency});
  stack.read_in_place = beside(as.read_bytes_per_s);
  stack.write_in_place = beside(as.write_bytes_per_s);
}

}  // namespace vedette::detail
