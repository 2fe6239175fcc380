// The table of stacks, and the machine that one is: see stack.h.
#include "session/stack.h"

#include <algorithm>
#include <string>

#include "base/assert.h"

namespace vedette::detail {

std::span<const StackKind> stack_kinds() noexcept {
  static constexpr StackKind kinds[] = {
      {"nvme", "nvme:DIRECTORY", open_nvme_stack},
      {"host", "host", open_host_stack},
  };
  return kinds;
}

Result<Stack> open_stack(const SessionOptions& options) {
  const std::string_view slow = options.slow;
  const auto colon = std::min(slow.find(':'), slow.size());
  const std::string_view scheme = slow.substr(0, colon);
  std::string usages;
  for (const StackKind& kind : stack_kinds()) {
    const bool takes_argument = kind.usage.find(':') != kind.usage.npos;
    if (kind.scheme == scheme && takes_argument == (colon < slow.size()))
      return kind.open(options, slow.substr(std::min(colon + 1, slow.size())));
    usages.append(usages.empty() ? "" : " or ").append(kind.usage);
  }
  return Error{.cause = Cause::unsupported,
               .message = "slow tier '" + options.slow + "' is unknown; use " + usages,
               .errno_value = 0};
}

namespace {

struct Shares {  // bytes a second; alone: 0 where the directions do not share a bus
  std::uint64_t in = 0, out = 0, in_alone = 0, out_alone = 0;
};

Shares shares_of(const LinkSpeed& speed) {
  if (!speed.one_bus()) return {.in = speed.read, .out = speed.write};
  // Both directions at once get less than the sum: each gets its part of what was measured of both.
  const double scale =
      static_cast<double>(speed.mixed) / static_cast<double>(std::max<std::uint64_t>(1, speed.read + speed.write));
  return {.in = static_cast<std::uint64_t>(static_cast<double>(speed.read) * scale),
          .out = static_cast<std::uint64_t>(static_cast<double>(speed.write) * scale),
          .in_alone = speed.read_alone(),
          .out_alone = speed.write_alone()};
}

}  // namespace

Machine machine_of(Bytes fast_memory, Bytes chunk, std::span<const SlowTier> slow, std::span<const LinkSpeed> speeds) {
  VEDETTE_ASSERT(slow.size() == speeds.size());
  Machine machine{.tiers = {{.name = "dram", .capacity = fast_memory, .addressable = true}},
                  .links = {},
                  .fault_time = default_fault_time,
                  .granule = chunk,
                  .can_recompute = false,
                  .can_reorder = false,
                  .habits = habits_of_sessions};
  for (std::uint32_t k = 0; k < slow.size(); ++k) {
    const TierIndex here{k + 1};
    const Shares shares = shares_of(speeds[k]);
    machine.tiers.push_back(slow[k].tier);
    machine.links.push_back({.source = here,
                             .target = {0},
                             .bytes_per_s = shares.in,
                             .latency = slow[k].latency,
                             .shared = std::nullopt,
                             .alone_bytes_per_s = shares.in_alone});
    machine.links.push_back({.source = {0},
                             .target = here,
                             .bytes_per_s = shares.out,
                             .latency = slow[k].latency,
                             .shared = std::nullopt,
                             .alone_bytes_per_s = shares.out_alone});
  }
  return machine;
}

}  // namespace vedette::detail
