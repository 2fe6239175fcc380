// The decisions of a search before anything is laid out, and changes of them at random. Pure: the same seed draws the
// same.
#pragma once
#include <cstdint>
#include <optional>

#include "base/mixed.h"
#include "policy/vedette/cover.h"
#include "policy/vedette/recompute.h"
#include "policy/vedette/sweep.h"
#include "policy/vedette/tiers.h"

namespace vedette::planning {

inline constexpr std::uint32_t all_of_it = 100;  // percent

struct Choice {
  RecomputeRule rule;
  Knobs knobs;
  // percent of fast memory that is planned with: what a plan for less does not use comes in early
  std::uint32_t share = all_of_it;
  TierShares far;
  std::optional<LinkPrices> cover;  // stays are a cover by these prices; else those of the sweep with its knobs
};

std::uint64_t fingerprint_of(const Knobs& knobs);
std::uint64_t fingerprint_of(const TierShares& far);
std::uint64_t fingerprint_of(const LinkPrices& prices);

class RandomChanges {
 public:
  // `recomputes`: rules for recomputation are changed too. `step_ns`: of the ops of a step.
  RandomChanges(std::int64_t step_ns, std::int64_t budget, bool recomputes)
      : step_ns_(step_ns), budget_(budget), recomputes_(recomputes) {}
  // from here on also which gaps a rule looks at, the room it leaves, and how far the sweep looks ahead: by leaps
  void widen() noexcept { wide_ = true; }
  void deal() noexcept { deals_ = true; }  // from here on also which tier stays go to
  Choice apply(Choice choice);             // something else in one to three places

 private:
  std::uint64_t draw(std::uint64_t below);
  void change_prices(LinkPrices& prices);
  void leap(Choice& choice);

  std::int64_t step_ns_, budget_;
  bool recomputes_;
  std::uint64_t state_ = 7919;
  bool wide_ = false, deals_ = false;
};

}  // namespace vedette::planning
