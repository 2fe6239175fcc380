// Fast memory over the memory of another NUMA node (or of a CXL device, which is a node without processors). Ops may
// use their operands there; and the same over a file on a disk. Room is what the node has free, never what it has: the
// store takes it in pieces, and a node that is full is an Error, or the disk's turn.
#include <algorithm>
#include <optional>
#include <string>

#include "base/readable.h"
#include "os/devices.h"
#include "session/stack.h"

namespace vedette::detail {
namespace {

struct NodeArgument {  // of "NODE" or "NODE:SIZE"
  NodeIndex node;
  std::optional<Bytes> most;
  Bytes room;  // that the node could give now, at most `most`
};

Result<NodeArgument> read_node(std::string_view text, const SessionOptions& options) {
  const auto refused = [&](const std::string& why) {
    return Error{.cause = Cause::unsupported, .message = "slow tier '" + options.slow + "': " + why};
  };
  const std::vector<NumaNode> nodes = find_numa_nodes();
  if (nodes.size() < 2)
    return refused("this machine has one NUMA node, whose memory is the fast one; use nvme:DIRECTORY");
  const std::size_t colon = text.find(':');
  const auto node = node_named(text.substr(0, colon), nodes);
  if (!node) return refused(node.error().message);
  NodeArgument argument{.node = *node, .most = std::nullopt};
  if (colon != text.npos) {
    argument.most = read_size(text.substr(colon + 1));
    if (!argument.most) return refused("after the node stands a size such as 64GiB");
  }
  if (options.fast == "numa:" + std::to_string(node->value))
    return refused("fast memory is of that node, too; name another one");
  // The kernel keeps some of what is free for itself: 4 % in a node of 1 GiB (Linux 6.1).
  if (const auto room = room_of_node(*node)) argument.room = {available(*room).value / 16 * 15};
  argument.room = std::min(argument.room, argument.most.value_or(argument.room));
  return argument;
}

std::uint32_t slots_in(Bytes bytes, Bytes chunk) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes.value / chunk.value, unlimited_slots - 1));
}

Error too_small(const SessionOptions& options, const NodeArgument& argument, std::uint64_t fewest) {
  return {.cause = Cause::out_of_memory,
          .message = "slow tier '" + options.slow + "': NUMA node " + std::to_string(argument.node.value) + " has " +
                     readable_exactly(argument.room) + " for it now, and at least " +
                     readable_exactly({fewest * options.chunk.value}) + " are needed; free memory there" +
                     (argument.most ? ", or give it a larger size" : "")};
}

constexpr Bytes whole_node{std::uint64_t{1} << 60};

}  // namespace

Result<Stack> open_numa_stack(const SessionOptions& options, const StackArguments& arguments) {
  const auto argument = read_node(arguments.of_parts.front(), options);
  if (!argument) return argument.error();
  constexpr std::uint64_t fewest = 2 * requests_in_flight;
  if (argument->room.value / options.chunk.value < fewest) return too_small(options, *argument, fewest);
  // Without a size it may grow into what becomes free later. Plans count on what is free now.
  auto store = open_numa_store(options.chunk, requests_in_flight, argument->node,
                               slots_in(argument->most.value_or(whole_node), options.chunk));
  if (!store) return store.error();
  Stack stack;
  stack.store = bounded(std::move(*store), arguments);
  stack.slow.push_back({.name = "numa", .capacity = argument->room, .addressable = true});
  if (arguments.as_slow_as != nullptr) make_as_slow(stack, *arguments.as_slow_as);
  return stack;
}

Result<Stack> open_numa_nvme_stack(const SessionOptions& options, const StackArguments& arguments) {
  const auto argument = read_node(arguments.of_parts.front(), options);
  if (!argument) return argument.error();
  if (argument->room.value / options.chunk.value < fewest_near_slots)
    return too_small(options, *argument, fewest_near_slots);
  const std::uint32_t slots = slots_in(argument->room, options.chunk) - layered_extra_depth;
  auto near = open_numa_store(options.chunk, requests_in_flight + layered_extra_depth, argument->node, slots);
  if (!near) return near.error();
  return open_over_disk(options, arguments,
                        {.store = std::move(*near), .slots = slots, .name = "numa", .addressable = true});
}

}  // namespace vedette::detail
