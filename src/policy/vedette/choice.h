// The decisions of a search before anything is laid out, and changes of them at random. Pure: the same seed draws the
// same.
#pragma once
#include <cstdint>
#include <optional>

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

std::uint64_t mixed(std::uint64_t fingerprint, std::uint64_t value);
std::uint64_t fingerprint_of(const Knobs& knobs);
std::uint64_t fingerprint_of(const TierShares& far);
std::uint64_t fingerprint_of(const LinkPrices& prices);

class RandomChanges {
 public:
  // `recomputes`: rules for recomputation are changed too. `step_ns`: of the ops of a step.
  RandomChanges(std::int64_t step_ns, bool recomputes) : step_ns_(step_ns), recomputes_(recomputes) {}
  void start_anew_with_gaps();                  // from here on the least gap of a rule is changed too
  void deal() noexcept { deals_ = true; }       // from here on also which tier stays go to
  void make_small() noexcept { fine_ = true; }  // large changes end in a valley; small ones look for its floor
  bool small() const noexcept { return fine_; }
  Choice apply(Choice choice);  // something else in one to three places

 private:
  std::uint64_t draw(std::uint64_t below);
  void change_prices(LinkPrices& prices);

  static constexpr std::uint64_t seed = 7919;
  const std::int64_t step_ns_;
  const bool recomputes_;
  std::uint64_t state_ = seed;
  bool gaps_ = false, fine_ = false, deals_ = false;
};

}  // namespace vedette::planning
