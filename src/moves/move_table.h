// A plan's moves by the part at which each starts, and the next use of each operand of each part. Parts are ops, or
// sections of ops.
//
// Pure; lists of all parts lie end to end.
#pragma once
#include <cstdint>
#include <span>
#include <utility>

#include "base/grouped.h"
#include "moves/executor.h"
#include "pack/units.h"

namespace vedette::detail {

class MoveTable {
 public:
  explicit MoveTable(std::size_t parts = 0)
      : MoveTable({parts, {}}, {parts, {}}, {parts, {}}, {parts, {}}, {parts, {}}) {}
  MoveTable(Grouped<OpMoves::Fetch> fetches, Grouped<OpMoves::Departure> departures,
            Grouped<OpMoves::NextUse> next_uses, Grouped<OpMoves::Made> made, Grouped<OpMoves::InPlace> in_place)
      : fetches_(std::move(fetches)),
        departures_(std::move(departures)),
        next_uses_(std::move(next_uses)),
        made_(std::move(made)),
        in_place_(std::move(in_place)) {}
  std::size_t size() const noexcept { return fetches_.size(); }
  OpMoves operator[](std::size_t part) const {  // lives as long as the table
    return {.fetches = fetches_[part],
            .departures = departures_[part],
            .next_uses = next_uses_[part],
            .made = made_[part],
            .in_place = in_place_[part]};
  }
  std::span<OpMoves::Fetch> fetches_to_place(std::size_t part) { return fetches_.of(part); }
  std::span<OpMoves::Made> made_to_place(std::size_t part) { return made_.of(part); }

 private:
  Grouped<OpMoves::Fetch> fetches_;
  Grouped<OpMoves::Departure> departures_;
  Grouped<OpMoves::NextUse> next_uses_;
  Grouped<OpMoves::Made> made_;
  Grouped<OpMoves::InPlace> in_place_;
};

// The plan has units leave for several slow tiers, or ops use them in place in another one.
bool chooses_tiers(const Plan& plan);

// Early fetches start one part before the plan says: an executor lets them only into room that the running part needs
// no more. A plan that sends everything to one slow tier has not chosen between them: the store does.
enum class Fetches : std::uint8_t { early, as_planned };
MoveTable tabulate(const Units& units, const Plan& plan, Bytes chunk, Fetches start = Fetches::early);

}  // namespace vedette::detail
