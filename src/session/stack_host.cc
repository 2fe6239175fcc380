// Fast memory over plain memory that is copied: for tests, and the shape of a slower node.
#include "session/stack.h"

namespace vedette::detail {

Result<Stack> open_host_stack(const SessionOptions& options, std::string_view) {
  auto store = open_host_store(options.chunk, requests_in_flight);
  if (!store) return store.error();
  Stack stack;
  stack.store = std::move(*store);
  stack.slow.push_back(
      {.tier = {.name = "host", .capacity = {std::uint64_t{1} << 60}, .addressable = false}, .latency = {100'000}});
  return stack;
}

}  // namespace vedette::detail
