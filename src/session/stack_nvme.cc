// Fast memory over a file on a disk.
#include "session/stack.h"

namespace vedette::detail {

Result<Stack> open_nvme_stack(const SessionOptions& options, const StackArguments& directory) {
  auto store = open_nvme_store({.directory = std::string(directory.of_parts.front()),
                                .slot_bytes = options.chunk,
                                .depth = requests_in_flight,
                                .mechanism = IoMechanism::best,
                                .direct = true});
  if (!store) return store.error();
  Stack stack;
  stack.store = bounded(std::move(*store), directory);
  stack.disk = directory.of_parts.front();
  stack.writes_bytes_per_s = directory.writes_bytes_per_s;
  stack.slow.push_back({.name = "nvme", .capacity = no_limit});
  return stack;
}

}  // namespace vedette::detail
