#include "session/fast_memory.h"

#include <unistd.h>

#include <string>

#include "base/architecture.h"
#include "base/readable.h"
#include "os/probe.h"

namespace vedette::detail {
namespace {

Error unsupported(std::string message) { return {.cause = Cause::unsupported, .message = std::move(message)}; }

}  // namespace

Bytes memory_of_the_machine() noexcept { return {static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size}; }

Result<void> valid_fast_memory(const SessionOptions& options) {
  const std::uint64_t chunk = options.chunk.value;
  if (options.fast_memory.value < fewest_frames * chunk)
    return unsupported("fast_memory of " + readable_exactly(options.fast_memory) + " is too small: at least " +
                       std::to_string(fewest_frames) + " chunks, " + readable_exactly({fewest_frames * chunk}));
  const Bytes all = memory_of_the_machine();
  if (options.fast_memory > all)
    return unsupported("fast_memory of " + readable_exactly(options.fast_memory) + " is more than the machine has, " +
                       readable_exactly(all));
  return {};
}

Result<void> fits_memory_cgroup(const SessionOptions& options) {
  const auto limit = memory_cgroup_limit();
  if (!limit || options.fast_memory + session_overhead <= *limit) return {};
  const std::string both = std::string("fast_memory of ")
                               .append(readable_exactly(options.fast_memory))
                               .append(" in a memory cgroup of ")
                               .append(readable_exactly(*limit));
  const Bytes most = *limit - std::min(*limit, session_overhead);
  if (options.fast_memory >= *limit) {
    return unsupported(std::string(both)
                           .append(" would be killed; at most ")
                           .append(readable_exactly(most))
                           .append(", less what the program itself needs, or raise the limit"));
  }
  if (options.on_message) {
    options.on_message(std::string(both)
                           .append(" leaves less than the ")
                           .append(readable(session_overhead))
                           .append(" that a session may need beside it: the kernel may kill the program"));
  }
  return {};
}

}  // namespace vedette::detail
