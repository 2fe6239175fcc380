// Fast memory over a file on a disk.
#include "session/stack.h"

namespace vedette::detail {

Result<Stack> open_nvme_stack(const SessionOptions& options, std::string_view directory) {
  auto store = open_nvme_store({.directory = std::string(directory),
                                .slot_bytes = options.chunk,
                                .depth = requests_in_flight,
                                .mechanism = IoMechanism::best,
                                .direct = true});
  if (!store) return store.error();
  Stack stack;
  stack.store = std::move(*store);
  stack.slow.push_back(
      {.tier = {.name = "nvme", .capacity = {std::uint64_t{1} << 60}, .addressable = false}, .latency = {100'000}});
  return stack;
}

}  // namespace vedette::detail
