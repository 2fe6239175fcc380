// Fast memory over the memory of another NUMA node (or of a CXL device, which is a node without processors), copied.
#include <algorithm>
#include <charconv>
#include <string>

#include "os/devices.h"
#include "session/stack.h"

namespace vedette::detail {

Result<Stack> open_numa_stack(const SessionOptions& options, const StackArguments& arguments) {
  const std::string_view text = arguments.of_parts.front();
  const std::vector<NumaNode> nodes = find_numa_nodes();
  std::uint32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = failure == std::errc() && end == text.data() + text.size();
  const auto node =
      std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& each) { return each.number == number; });
  const auto refused = [&](const std::string& why) {
    return Error{.cause = Cause::unsupported, .message = "slow tier '" + options.slow + "': " + why, .errno_value = 0};
  };
  if (nodes.size() < 2)
    return refused("this machine has one NUMA node, whose memory is the fast one; use nvme:DIRECTORY");
  if (!is_number || node == nodes.end()) {
    std::string known;
    for (const NumaNode& each : nodes) known += (known.empty() ? "" : ", ") + std::to_string(each.number);
    return refused("there is no such NUMA node; there are " + known);
  }
  const std::uint64_t slots = std::min<std::uint64_t>(node->memory.value / options.chunk.value, unlimited_slots - 1);
  auto store = open_numa_store(options.chunk, requests_in_flight, number, static_cast<std::uint32_t>(slots));
  if (!store) return store.error();
  Stack stack;
  stack.store = bounded(std::move(*store), arguments);
  stack.slow.push_back({.name = "numa", .capacity = node->memory, .addressable = false});
  return stack;
}

}  // namespace vedette::detail
