// The stays that a search has laid out before, and the costs of moves that it has simulated: other decisions often come
// to the same. Pure.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "policy/vedette/choice.h"
#include "policy/vedette/sweep.h"

namespace vedette::planning {

class Memo {
 public:
  using Stays = std::optional<std::vector<Stay>>;  // nullopt: they do not fit

  // The stays of that key; made by `lay_out()` where they are not among the latest few.
  template <class LayOut>
  const Stays& laid_out(std::uint64_t key, const LayOut& lay_out) {
    ++time_;
    for (LaidOut& each : laid_out_) {
      if (each.key != key) continue;
      each.used = time_;
      return each.stays;
    }
    if (laid_out_.size() == most)
      laid_out_.erase(std::min_element(laid_out_.begin(), laid_out_.end(),
                                       [](const LaidOut& a, const LaidOut& b) { return a.used < b.used; }));
    laid_out_.push_back({.key = key, .used = time_, .stays = lay_out()});
    return laid_out_.back().stays;
  }

  struct Simulated {
    std::int64_t cost = std::numeric_limits<std::int64_t>::max();  // the largest number: it takes longer than `longest`
    std::int64_t longest = -1;
    bool known(std::int64_t asked) const noexcept {
      return longest >= 0 && (cost != std::numeric_limits<std::int64_t>::max() || asked <= longest);
    }
  };
  Simulated& simulated(std::uint64_t variant, const std::vector<Stay>& stays) {
    std::uint64_t fingerprint = variant;
    for (const Stay& stay : stays) {
      const std::uint64_t flags = (stay.returns ? 2U : 0U) + (stay.writes ? 1U : 0U);
      fingerprint = mixed(fingerprint, std::uint64_t{stay.tensor} << 32 | stay.last_use);
      fingerprint = mixed(fingerprint, std::uint64_t{stay.gone} << 32 | stay.fetch);
      fingerprint = mixed(fingerprint, std::uint64_t{stay.next_use} << 32 | std::uint64_t{stay.tier} << 2 | flags);
      if (stay.later + stay.sooner > 0) fingerprint = mixed(fingerprint, std::uint64_t{stay.later} << 32 | stay.sooner);
    }
    return simulated_[fingerprint];
  }

 private:
  static constexpr std::size_t most = 8;
  struct LaidOut {
    std::uint64_t key = 0, used = 0;
    Stays stays;
  };
  std::vector<LaidOut> laid_out_;
  std::uint64_t time_ = 0;
  std::map<std::uint64_t, Simulated> simulated_;
};

}  // namespace vedette::planning
