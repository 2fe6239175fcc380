// Fast memory over plain memory that is copied: for tests, and the shape of a slower node.
#include "session/stack.h"

namespace vedette::detail {

Result<Stack> open_host_stack(const SessionOptions& options, const StackArguments& arguments) {
  auto store = open_host_store(options.chunk, requests_in_flight);
  if (!store) return store.error();
  Stack stack;
  stack.store = bounded(std::move(*store), arguments);
  stack.slow.push_back({.name = "host", .capacity = no_limit, .addressable = arguments.as_slow_as != nullptr});
  if (arguments.as_slow_as != nullptr) make_as_slow(stack, *arguments.as_slow_as);
  return stack;
}

}  // namespace vedette::detail
