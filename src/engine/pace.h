// How planned moves of one direction start: up to `group` in one submission, when at most `refill_at` are in flight,
// never more than `most`. Requests that are submitted together end together. Each request more holds a frame that no
// thread can use, and each group wakes the migrator.
//
// Groups spare the processor, not the link: one request of 2 MiB alone takes some 90 us of the machine's two cores
// (submission, interrupt, waking the migrator), one of four that go together 25 us. A session does not measure this.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tier/link_habits.h"

namespace vedette {

struct Pace {
  std::uint32_t most = 0, refill_at = 0, group = 0;
  bool operator==(const Pace&) const = default;
};

// `in_flight`: requests that keep the link busy (LinkHabits). Where two do, one follows the other. Else groups go
// beside a computation; while the program waits for the link, which idles between groups that end together, two by two
// in turns keep it busy.
constexpr Pace pace_of(std::uint32_t in_flight, bool awaited) noexcept {
  if (in_flight <= 2) return {.most = 2, .refill_at = 1, .group = 1};
  if (!awaited) return {.most = in_flight, .refill_at = in_flight / 2, .group = in_flight};
  const std::uint32_t most = std::max(2u, in_flight * 2 / 3);
  return {.most = most, .refill_at = most / 2, .group = 2};
}
static_assert(pace_of(default_in_flight, true) == Pace{.most = 4, .refill_at = 2, .group = 2});

}  // namespace vedette
