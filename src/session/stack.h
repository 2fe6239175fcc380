// Stacks of tiers: fast memory over one slow tier or several. A combination is a file (stack_nvme.cc, ...) and a line
// in the table of stack.cc; it opens the store that reaches its slow tiers and describes them. The machine that
// policies plan for is built from that and from the speed that was measured when the store was opened.
//
// Thread rule: any thread.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/slow_memory.h"
#include "tier/link_habits.h"
#include "tier/store.h"
#include "vedette/model.h"
#include "vedette/session.h"

namespace vedette::detail {

struct Stack {
  std::unique_ptr<Store> store;
  std::vector<Tier> slow;                // fastest first; the machine's tiers 1, 2, ..., and the store's
  std::string disk;                      // the folder of the last slow tier, where that is a disk
  std::uint64_t writes_bytes_per_s = 0;  // at most, to that disk; 0: no bound
  // as EngineOptions: what an op waits for beside bytes that it uses in place
  std::uint64_t read_in_place = 0, write_in_place = 0;
};
constexpr Bytes no_limit{std::uint64_t{1} << 60};  // of a tier's capacity

constexpr std::uint32_t requests_in_flight = 16;  // bandwidth is flat beyond 8 (bench/migrate); the rest covers bursts

// A part of SessionOptions::slow is a scheme, or a scheme, a colon and an argument; parts are joined by '+'. After the
// last one '@' and a speed may follow, which bounds the slowest tier; after memory, the first part, the name of a
// SlowMemory.
struct StackArguments {
  std::vector<std::string_view> of_parts;  // whose usage has one
  std::uint64_t bytes_per_s = 0;           // both directions together; 0: no bound
  std::uint64_t writes_bytes_per_s = 0;    // as SessionOptions::max_writes; 0: no bound
  const SlowMemory* as_slow_as = nullptr;  // nullptr: the memory is what it is
};
struct StackKind {
  std::string_view usage;  // "nvme:DIRECTORY", "host:SIZE+nvme:DIRECTORY"
  Result<Stack> (*open)(const SessionOptions& options, const StackArguments& arguments);
  bool is_memory = false;  // the first slow tier; it may be made slower
};
std::span<const StackKind> stack_kinds() noexcept;

// The arguments in `slow` where it is of the kind with this usage.
std::optional<std::vector<std::string_view>> arguments_of(std::string_view usage, std::string_view slow);

// The store within its bounds: of both directions together, and of writes over hours.
std::unique_ptr<Store> bounded(std::unique_ptr<Store> store, const StackArguments& arguments);

// A store in memory becomes as slow beside this machine's memory as the other is beside its own: copies by a throttle,
// and uses in place by waits of the engine.
void make_as_slow(Stack& stack, const SlowMemory& as);

// The store of options.slow. Error: the tier is unknown, or cannot be opened.
Result<Stack> open_stack(const SessionOptions& options);

// Tiers and links between fast memory and each slow tier. `habits[k]` was measured between fast memory and slow[k]; two
// slow tiers have no link of their own. Where both directions share a bus, the links have the bandwidth of each beside
// the other, and alone.
Machine machine_of(Bytes fast_memory, Bytes chunk, std::span<const Tier> slow, std::span<const LinkHabits> habits);

Result<Stack> open_nvme_stack(const SessionOptions& options, const StackArguments& directory);
Result<Stack> open_host_stack(const SessionOptions& options, const StackArguments& nothing);
Result<Stack> open_numa_stack(const SessionOptions& options, const StackArguments& node);
Result<Stack> open_host_nvme_stack(const SessionOptions& options, const StackArguments& size_and_directory);
Result<Stack> open_numa_nvme_stack(const SessionOptions& options, const StackArguments& node_and_directory);

// Slots in memory over a file in the directory that is the second argument.
constexpr std::uint64_t fewest_near_slots = 8 + layered_extra_depth;  // one of eight is spare
struct NearTier {
  std::unique_ptr<Store> store;
  std::uint32_t slots = 0;
  std::string name;
  bool addressable = false;  // ops may use it in place
};
Result<Stack> open_over_disk(const SessionOptions& options, const StackArguments& arguments, NearTier near);

}  // namespace vedette::detail
