#include "session/share.h"

#include <errno.h>

#include <algorithm>

#include "os/local_socket.h"
#include "session/fast_memory.h"

namespace vedette::detail {

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
  if (options.fast != "dram")
    return Error{Cause::unsupported, "share is for host memory, and fast is '" + options.fast + "'; leave share out",
                 0};
  std::string path = options.share;
  if (path == "auto") {
    auto found = runtime_socket();
    if (!found) return found.error();
    path = *found;
  }
  auto lease = Lease::ask(path, program_invocation_short_name, needs_of(options.chunk, options.fast_memory, {}, {}),
                          options.on_message);
  if (lease && *lease != nullptr) {
    const std::uint64_t chunks = (*lease)->now().value / options.chunk.value;
    options.fast_memory = std::max(chunks, fewest_frames) * options.chunk;
  }
  return lease;
}

}  // namespace vedette::detail
