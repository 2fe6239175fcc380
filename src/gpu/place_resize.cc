// Another budget of device memory: see place_executor.h.
#include <algorithm>

#include "gpu/place_executor.h"

namespace vedette {

// The lowest offset from which no block lies any more.
Result<std::uint64_t> PlaceExecutor::clear_from(std::uint64_t end) {
  std::uint64_t stays = 0;
  std::vector<BlockIndex> beyond;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i)
    if (arena_.in_place({i}) && arena_.end_of({i}) > end) beyond.push_back({i});
  for (const BlockIndex index : beyond)
    if (!may_leave(index)) stays = std::max(stays, arena_.end_of(index));
  for (const BlockIndex index : beyond) {
    if (arena_.end_of(index) <= stays) continue;
    if (auto left = evict(index, MoveCause::room); !left) {
      if (left.error().cause != Cause::out_of_memory) return left.error();
      stays = std::max(stays, arena_.end_of(index));  // host memory is full
    }
  }
  return std::max(stays, end);
}

Result<Bytes> PlaceExecutor::resize(Bytes budget) {
  const std::uint64_t now = arena_.bytes().value;
  if (budget.value >= now) {
    if (auto mapped = range_.resize(budget); !mapped) {
      static_cast<void>(range_.resize({now}));
      return Error{.cause = Cause::out_of_memory,
                   .message = mapped.error().message + "; free memory of the GPU, or ask for less"};
    }
    arena_.resize(budget);
    return arena_.bytes();
  }
  const auto end = clear_from(budget.value);
  if (!end) return end.error();
  if (*end >= now) return arena_.bytes();
  if (auto waited = device_->synchronize(); !waited) return waited.error();
  remembered_.clear();  // all of it has passed
  arena_.resize({*end});
  if (auto unmapped = range_.resize(arena_.bytes()); !unmapped) return unmapped.error();
  return arena_.bytes();
}

}  // namespace vedette
