// Fast memory over host memory that is copied, over a file on a disk. SIZE bounds the host memory: slots and the
// buffers of moves to the disk lie in it. The disk has a place for whatever is in host memory, too.
#include <string>

#include "base/readable.h"
#include "session/stack.h"

namespace vedette::detail {

Result<Stack> open_host_nvme_stack(const SessionOptions& options, const StackArguments& arguments) {
  const std::vector<std::string_view>& size_and_directory = arguments.of_parts;
  const std::uint64_t chunk = options.chunk.value;
  constexpr std::uint64_t fewest = fewest_near_slots;
  const std::optional<Bytes> host = read_size(size_and_directory[0]);
  if (!host || host->value / chunk < fewest || host->value / chunk >= unlimited_slots) {
    return Error{.cause = Cause::unsupported,
                 .message = "host memory of '" + std::string(size_and_directory[0]) + "' under '" + options.slow +
                            "': give a size such as 8GiB, of at least " + readable_exactly({fewest * chunk})};
  }
  const auto slots = static_cast<std::uint32_t>(host->value / chunk) - layered_extra_depth;
  auto near = open_host_store(options.chunk, requests_in_flight + layered_extra_depth, slots);
  if (!near) return near.error();
  return open_over_disk(
      options, arguments,
      {.store = std::move(*near), .slots = slots, .name = "host", .addressable = arguments.as_slow_as != nullptr});
}

Result<Stack> open_over_disk(const SessionOptions& options, const StackArguments& arguments, NearTier near) {
  constexpr std::uint32_t depth = requests_in_flight + layered_extra_depth;
  auto far = open_nvme_store({.directory = std::string(arguments.of_parts[1]),
                              .slot_bytes = options.chunk,
                              .depth = depth,
                              .mechanism = IoMechanism::best,
                              .direct = true});
  if (!far) return far.error();
  Stack stack;
  stack.store = std::move(near.store);
  if (arguments.as_slow_as != nullptr) make_as_slow(stack, *arguments.as_slow_as);
  auto store = layered(std::move(stack.store), near.slots, bounded(std::move(*far), arguments));
  if (!store) return store.error();
  stack.store = std::move(*store);
  stack.disk = arguments.of_parts[1];
  stack.writes_bytes_per_s = arguments.writes_bytes_per_s;
  const Bytes counted{(near.slots - spare_near_slots(near.slots)) * options.chunk.value};
  stack.slow = {{.name = near.name, .capacity = counted, .addressable = near.addressable},
                {.name = "nvme", .capacity = no_limit}};
  return stack;
}

}  // namespace vedette::detail
