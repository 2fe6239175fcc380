// The predicted begins of the next ops, from an earlier step: in compute time, so waits are left out.
//
// Pure. Copies share one list of times, which nothing changes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "vedette/units.h"

namespace vedette {

struct OpSchedule {
  std::shared_ptr<const std::vector<Nanoseconds>> begins;  // of each op of that step; last, when it ended
  std::size_t op = 0;                                      // of that step: the running one, or the one that just ended
  double longer = 1;                                       // ops of the running step take so many times as long

  bool is_known() const noexcept { return begins != nullptr && op + 1 < begins->size(); }
  // The op that is `ops` after this one is one of that step.
  bool has(std::uint64_t ops) const noexcept { return is_known() && ops < begins->size() - 1 - op; }
  // From the begin of the next op until that of the one `ops` after this op, or until the step ends. Needs is_known().
  double ns_until(std::uint64_t ops) const noexcept {
    const auto last = static_cast<std::uint64_t>(begins->size() - 1 - op);
    const auto then = static_cast<std::size_t>(std::clamp<std::uint64_t>(ops, 1, last));
    return static_cast<double>(((*begins)[op + then] - (*begins)[op + 1]).value) * longer;
  }
};

}  // namespace vedette
