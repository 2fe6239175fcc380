// The table of stacks, and the machine that one is: see stack.h.
#include "session/stack.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "base/assert.h"
#include "base/daily.h"
#include "base/readable.h"

namespace vedette::detail {

std::span<const StackKind> stack_kinds() noexcept {
  static constexpr StackKind kinds[] = {
      {"nvme:DIRECTORY", open_nvme_stack},
      {"host", open_host_stack, true},
      {"host:SIZE+nvme:DIRECTORY", open_host_nvme_stack, true},
      {"numa:NODE+nvme:DIRECTORY", open_numa_nvme_stack, true},
      {"numa:NODE", open_numa_stack, true},  // behind the longer one, whose end it would take for its argument's
  };
  return kinds;
}

namespace {

struct Part {
  std::string_view scheme;
  std::optional<std::string_view> argument;
};

// The last of `most` parts is the rest: a directory's name may have a '+'.
std::vector<Part> parts_of(std::string_view text, std::size_t most) {
  std::vector<Part> parts;
  for (bool more = true; more;) {
    const std::size_t end = parts.size() + 1 < most ? std::min(text.find('+'), text.size()) : text.size();
    const std::string_view part = text.substr(0, end);
    const std::size_t colon = part.find(':');
    parts.push_back({.scheme = part.substr(0, colon), .argument = std::nullopt});
    if (colon != part.npos) parts.back().argument = part.substr(colon + 1);
    more = end < text.size();
    text.remove_prefix(more ? end + 1 : end);
  }
  return parts;
}

}  // namespace

std::optional<std::vector<std::string_view>> arguments_of(std::string_view usage, std::string_view slow) {
  const std::vector<Part> wanted = parts_of(usage, ~std::size_t{0});
  const std::vector<Part> parts = parts_of(slow, wanted.size());
  if (parts.size() != wanted.size()) return std::nullopt;
  std::vector<std::string_view> arguments;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool same =
        parts[i].scheme == wanted[i].scheme && parts[i].argument.has_value() == wanted[i].argument.has_value();
    if (!same) return std::nullopt;
    if (parts[i].argument) arguments.push_back(*parts[i].argument);
  }
  return arguments;
}

std::unique_ptr<Store> bounded(std::unique_ptr<Store> store, const StackArguments& arguments) {
  if (const std::uint64_t speed = arguments.bytes_per_s; speed > 0)
    store = throttled(std::move(store), {.read_bytes_per_s = speed, .write_bytes_per_s = speed, .one_bus = true});
  const std::uint64_t writes = arguments.writes_bytes_per_s;
  if (writes == 0) return store;
  constexpr std::uint64_t at_once = 24 * requests_in_flight;  // slots: more than SlowTier::measure() writes
  const Nanoseconds saved_up = transfer_time({at_once * store->slot_bytes().value}, writes);
  return throttled(std::move(store), {.write_bytes_per_s = writes, .saved_up = saved_up});
}

namespace {

// "nvme:~/spill" lies in the user's home directory, as it would for a shell.
std::string home_expanded(std::string slow) {
  const std::size_t at = slow.find(":~/");
  const bool ends = slow.ends_with(":~");
  const char* const home = ::secure_getenv("HOME");
  if (home == nullptr || (at == slow.npos && !ends)) return slow;
  return slow.replace(ends ? slow.size() - 1 : at + 1, 1, home);
}

bool is_path(std::string_view slow) {
  return slow.starts_with('/') || slow.starts_with("./") || slow.starts_with("../") || slow.starts_with('~');
}

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789.") == text.npos; }

bool is_folder(std::string_view slow) {
  std::error_code unknown;
  return std::filesystem::is_directory(slow.substr(slow.find(':') + 1), unknown);
}

struct AsSlowAs {
  std::string words;                   // without the preset
  const SlowMemory* preset = nullptr;  // that the first part names
};

AsSlowAs without_preset(std::string_view slow) {
  const std::string_view first = slow.substr(0, slow.find('+'));
  const std::size_t at = first.rfind('@');
  const SlowMemory* const preset = at == first.npos ? nullptr : slow_memory_named(first.substr(at + 1));
  if (preset == nullptr) return {};
  return {.words = std::string(first.substr(0, at)).append(slow.substr(first.size())), .preset = preset};
}

}  // namespace

Result<Stack> open_stack(const SessionOptions& options) {
  const std::string words = home_expanded(options.slow);
  std::string_view slow = words;
  std::uint64_t bytes_per_s = 0;
  const std::size_t at = slow.rfind('@');
  if (at != slow.npos && slow.ends_with("B/s")) {
    const auto bound = read_speed(slow.substr(at + 1));
    if (!bound)
      return Error{.cause = Cause::unsupported,
                   .message = "slow tier '" + options.slow + "' has no speed after '@'; write 500MB/s or 0.5GB/s"};
    bytes_per_s = *bound;
    slow = slow.substr(0, at);
  } else if (at != slow.npos && is_number(slow.substr(at + 1)) && !is_folder(slow)) {
    return Error{.cause = Cause::unsupported,
                 .message = "slow tier '" + options.slow +
                            "' has a speed without a unit after '@'; write @500MB/s or " +
                            "@0.5GB/s, or make the directory first where the name is meant so"};
  }
  std::uint64_t writes = 0;
  if (!options.max_writes.empty()) {
    constexpr std::uint64_t seconds_a_day = 86'400;
    const auto asked = read_max_writes(options.max_writes);
    if (!asked || slow.find("nvme:") == slow.npos)
      return Error{
          .cause = Cause::unsupported,
          .message = "max_writes '" + options.max_writes +
                     (asked ? "' bounds writes to a disk, and slow tier '" + options.slow + "' has none; leave it out"
                            : "' is no number of bytes a day; write 500GB/day or 2TB/day")};
    if (asked->a_day) writes = std::max<std::uint64_t>(1, *asked->a_day / seconds_a_day);
  }
  const AsSlowAs as = without_preset(slow);
  std::string usages;
  for (const StackKind& kind : stack_kinds()) {
    const bool made_slower = as.preset != nullptr && kind.is_memory;
    if (auto arguments = arguments_of(kind.usage, made_slower ? std::string_view(as.words) : slow))
      return kind.open(options, {.of_parts = *std::move(arguments),
                                 .bytes_per_s = bytes_per_s,
                                 .writes_bytes_per_s = writes,
                                 .as_slow_as = made_slower ? as.preset : nullptr});
    usages.append(usages.empty() ? "" : " or ").append(kind.usage);
  }
  return Error{.cause = Cause::unsupported,
               .message = "slow tier '" + options.slow + "' is unknown; " +
                          (is_path(slow) ? "did you mean 'nvme:" + options.slow + "'?" : "use " + usages)};
}

namespace {

struct Shares {  // bytes a second; alone: 0 where the directions do not share a bus
  std::uint64_t in = 0, out = 0, in_alone = 0, out_alone = 0;
};

Shares shares_of(const LinkSpeed& speed) {
  if (!speed.one_bus()) return {.in = speed.read, .out = speed.write};
  // Both directions at once get less than the sum: each gets its part of the measured sum.
  const double scale =
      static_cast<double>(speed.mixed) / static_cast<double>(std::max<std::uint64_t>(1, speed.read + speed.write));
  return {.in = static_cast<std::uint64_t>(static_cast<double>(speed.read) * scale),
          .out = static_cast<std::uint64_t>(static_cast<double>(speed.write) * scale),
          .in_alone = speed.read_alone(),
          .out_alone = speed.write_alone()};
}

}  // namespace

Machine machine_of(Bytes fast_memory, Bytes chunk, std::span<const Tier> slow, std::span<const LinkHabits> habits) {
  VEDETTE_ASSERT(slow.size() == habits.size());
  Machine machine{.tiers = {{.name = "dram", .capacity = fast_memory, .addressable = true}},
                  .fault_time = default_fault_time,
                  .granule = chunk,
                  .habits = habits_of_sessions};
  for (std::uint32_t k = 0; k < slow.size(); ++k) {
    const TierIndex here{k + 1};
    // Link::shared would name the bus, but plans of one bus are slower in sessions (docs/tried.md, "one bus of the
    // mixed bandwidth"), since links of half the speed leave slack. Planners that want the bus ask
    // on_its_bus.
    const Shares shares = shares_of(habits[k].speed);
    machine.tiers.push_back(slow[k]);
    machine.links.push_back({.source = here,
                             .target = {0},
                             .bytes_per_s = shares.in,
                             .latency = habits[k].latency,
                             .alone_bytes_per_s = shares.in_alone});
    machine.links.push_back({.source = {0},
                             .target = here,
                             .bytes_per_s = shares.out,
                             .latency = habits[k].latency,
                             .alone_bytes_per_s = shares.out_alone});
  }
  return machine;
}

}  // namespace vedette::detail
