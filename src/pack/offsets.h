// Offsets for lifetimes, as low as can be: first fit in several orders, then a search that is exact where the instance
// is small enough.
//
// 1. Buffers are placed by first fit (AddressTree) in a portfolio of orders until one reaches the bound. An order that
//    becomes worse than the best, or costs more than its share, is given up. No order is best everywhere
//    (docs/pack.md).
// 2. Buffers that still lie too high are decomposed: those that live through their whole part of time go to its bottom,
//    the others fall apart into parts of time that none crosses, and so on. Each part is searched (ExactSearch) at the
//    bound first, then by bisection.
//
// Pure, deterministic: effort is counted in steps. Any thread. O(n log n) per order where little is wasted.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pack/buffers.h"

namespace vedette::pack {

struct Effort {
  std::uint64_t greedy = 0, exact = 0;  // steps of about a nanosecond; 0: by the number of buffers
};

struct Layout {
  std::vector<std::uint64_t> offset;  // by buffer; multiples of its alignment
  Bytes peak;                         // the highest byte in use
  Bytes bound;                        // no plan is below it, as far as it was proven
  std::string how;                    // which order or search found it: "size", "exact", ...
};

// capacity: enough. Without it the peak is made as low as the effort allows; with it, planning stops at the first plan
// that fits and tries longer to find one. The layout is sound also where its peak is above the capacity.
Layout plan_offsets(const Problem& problem, std::optional<Bytes> capacity = std::nullopt, Effort effort = {});

}  // namespace vedette::pack
