// Stacks of tiers: fast memory over one slow tier or several. A combination is a file (stack_nvme.cc, ...) and a line
// in the table of stack.cc; it opens the store that reaches its slow tiers and says what they are. The machine that
// policies plan for is built from that and from the speed that was measured when the store was opened.
//
// Thread rule: any thread.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tier/link_speed.h"
#include "tier/store.h"
#include "vedette/model.h"
#include "vedette/session.h"

namespace vedette::detail {

struct SlowTier {
  Tier tier;
  Nanoseconds latency;  // of one move, before its first byte
};

struct Stack {
  std::unique_ptr<Store> store;
  std::vector<SlowTier> slow;  // fastest first; the machine's tiers 1, 2, ...
};

constexpr std::uint32_t requests_in_flight = 16;  // bandwidth is flat beyond 8 (bench/migrate); the rest covers bursts

struct StackKind {
  std::string_view scheme;  // of SessionOptions::slow, before the colon
  std::string_view usage;   // "nvme:DIRECTORY"
  Result<Stack> (*open)(const SessionOptions& options, std::string_view argument);  // after the colon
};
std::span<const StackKind> stack_kinds() noexcept;

// The store of options.slow. Error: the tier is unknown, or cannot be opened.
Result<Stack> open_stack(const SessionOptions& options);

// An access to a chunk that is away and that no op announced: the fault, the migrator's turn and the thread's waking,
// without the transfer. A default: nothing measures it yet.
constexpr Nanoseconds default_fault_time{100'000};

// Tiers and links between fast memory and each slow tier. `speeds[k]` was measured between fast memory and slow[k]; two
// slow tiers have no link of their own. Where both directions share a bus, the links say what each carries beside the
// other, and what it carries alone.
Machine machine_of(Bytes fast_memory, Bytes chunk, std::span<const SlowTier> slow, std::span<const LinkSpeed> speeds);

Result<Stack> open_nvme_stack(const SessionOptions& options, std::string_view directory);
Result<Stack> open_host_stack(const SessionOptions& options, std::string_view nothing);

}  // namespace vedette::detail
