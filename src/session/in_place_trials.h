// Ops lose time by operands that lie in slower memory, each kind another share of what copies would take. Steps by one
// plan show it: the time of each such op there, beside its time with all operands near. Of several steps the least of
// either counts, so that other work of the machine is no loss.
//
// Pure. Lock rule: the owner's.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "vedette/model.h"

namespace vedette::detail {

class InPlaceTrials {
 public:
  static constexpr std::uint32_t enough = 4;  // steps
  // An op (or a section) used operands there whose bytes links carry in `moves`, and took so long, waits for it
  // included.
  void used(std::uint32_t part, Nanoseconds moves, Nanoseconds took);
  // By names of ops, sorted: of those that have run often enough. `near`: times with all operands near, as `ops`.
  std::vector<InPlacePrice> prices(std::span<const Op> ops, std::span<const Nanoseconds> near) const;
  void clear() { of_parts_.clear(); }
  bool told = false;  // its prices were asked for, and are known

 private:
  struct Trial {
    Nanoseconds moves, took;  // the least
    std::uint32_t steps = 0;
  };
  std::map<std::uint32_t, Trial> of_parts_;
};

// The machine with these prices instead of those of the same ops. True: one differs by a fifth at least, which is worth
// another plan; else nothing has changed.
bool take_prices(std::span<const InPlacePrice> measured, Machine& machine);

}  // namespace vedette::detail
