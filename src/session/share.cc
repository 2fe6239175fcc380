#include "session/share.h"

#include <errno.h>

#include <algorithm>

#include "base/gpu_name.h"
#include "os/local_socket.h"
#include "session/fast_memory.h"

namespace vedette::detail {
namespace {

constexpr Bytes unit_of_gpu = 256_KiB;

}  // namespace

Needs needs_of(Bytes chunk, Bytes most, Bytes smallest, Bytes peak) {
  const Bytes least = fewest_frames * chunk;
  Needs needs{.floor = std::max(least, smallest), .want = most, .rest = least};
  // beside tensors at their peak, chunks that are begun and moves in flight
  if (peak.value > 0) needs.want = std::min(most, peak + Bytes{peak.value / 16} + least);
  needs.want = std::max(needs.want, needs.floor);
  return needs;
}

Result<std::unique_ptr<Lease>> lease_for(SessionOptions& options) {
  if (options.share.empty()) return std::unique_ptr<Lease>();
  const auto gpu = gpu_number(options.fast);
  std::string path = options.share;
  if (path == "auto") {
    auto found = runtime_socket(gpu);
    if (!found) return found.error();
    path = *found;
  }
  // A GPU's session has no chunks; without a size it wants all there is.
  const Bytes unit = gpu ? unit_of_gpu : options.chunk;
  const Bytes most = options.fast_memory.value == 0 ? Bytes{std::uint64_t{1} << 50} : options.fast_memory;
  // A session does not know its ops yet. On a GPU nothing pages: an eighth of what it wants is there from the start.
  const Bytes floor = gpu && options.fast_memory.value > 0 ? Bytes{most.value / 8} : Bytes{};
  auto lease = Lease::ask(path, program_invocation_short_name, needs_of(unit, most, floor, {}), options.on_message);
  if (lease && *lease != nullptr) {
    const std::uint64_t units = (*lease)->now().value / unit.value;
    options.fast_memory = std::max(units, fewest_frames) * unit;
  }
  return lease;
}

}  // namespace vedette::detail
