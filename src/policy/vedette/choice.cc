#include "policy/vedette/choice.h"

#include <algorithm>
#include <array>
#include <bit>

namespace vedette::planning {

std::uint64_t fingerprint_of(const Knobs& knobs) {
  std::uint64_t fingerprint = 2;
  for (const std::int64_t value : {knobs.horizon_ns, knobs.clean_ahead_ns, knobs.staging})
    fingerprint = mixed(fingerprint, static_cast<std::uint64_t>(value));
  if (knobs.kept != 0) fingerprint = mixed(fingerprint, static_cast<std::uint64_t>(knobs.kept));
  return mixed(mixed(fingerprint, knobs.distance_percent), knobs.clean_percent);
}

std::uint64_t fingerprint_of(const TierShares& far) {
  std::uint64_t fingerprint = 3 + static_cast<std::uint64_t>(far.rule);
  for (const double weight : far.weights) fingerprint = mixed(fingerprint, std::bit_cast<std::uint64_t>(weight));
  return fingerprint;
}

std::uint64_t fingerprint_of(const LinkPrices& prices) {
  std::uint64_t fingerprint = 5;
  for (const double price : prices.of) fingerprint = mixed(fingerprint, std::bit_cast<std::uint64_t>(price));
  return fingerprint;
}

std::uint64_t RandomChanges::draw(std::uint64_t below) {
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return (state_ >> 33) % below;
}

// Of up to four stretches in a row, which may reach into the next step.
void RandomChanges::change_prices(LinkPrices& prices) {
  constexpr std::array factors = {0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 4.0};
  const std::uint64_t first = draw(LinkPrices::stretches), count = 1 + draw(4);
  const double factor = factors[draw(factors.size())];
  for (std::uint64_t i = first; i < first + count; ++i) prices.of[i % LinkPrices::stretches] *= factor;
}

void RandomChanges::leap(Choice& choice) {
  const std::uint32_t at = choice.rule.shares_at;
  switch (draw(recomputes_ ? 8 : 5)) {
    case 0:
      choice.knobs.horizon_ns =
          std::array{std::int64_t{0}, step_ns_ / 64, step_ns_ / 16, step_ns_ / 4, step_ns_}[draw(5)];
      break;
    case 1:
      choice.knobs.clean_ahead_ns =
          std::array{std::int64_t{-1}, step_ns_ / 512, step_ns_ / 128, step_ns_ / 16}[draw(4)];
      break;
    case 2:
      if (choice.cover) {
        choice.cover.reset();
      } else {
        choice.cover = LinkPrices{};
      }
      break;
    case 3:
      choice.knobs.staging =
          std::array{std::int64_t{0}, budget_ / 100, budget_ / 50, budget_ / 25, budget_ / 12}[draw(5)];
      break;
    case 4:
      choice.knobs.distance_percent = std::array{100U, 120U, 150U}[draw(3)];
      break;
    case 5:
      choice.rule.least_gap_ns = draw(3) == 0 ? 0 : step_ns_ >> (3 + draw(8));
      break;
    case 6:
      choice.rule.leaves_room = !choice.rule.leaves_room;
      break;
    default:
      if (at == 0) {
        choice.rule.least_gap_ns = step_ns_ >> (3 + draw(5));
      } else {
        choice.rule.shares_at = std::array{100U, 90U, 85U, 80U, 70U, 60U}[draw(6)];
      }
  }
}

Choice RandomChanges::apply(Choice choice) {
  constexpr std::array factors = {0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2.0};
  for (std::uint64_t places = 1 + draw(3); places > 0; --places) {
    if (choice.cover && draw(wide_ ? 2 : 10) != 0) {
      change_prices(*choice.cover);
      continue;
    }
    const double factor = factors[draw(factors.size())];
    if (deals_ && draw(3) == 0) {
      double& weight = choice.far.weights[draw(choice.far.weights.size())];
      weight = draw(6) == 0 ? 0 : std::max(weight, 0.1) * factor;
      continue;
    }
    if (wide_ && draw(3) == 0) {
      leap(choice);
      continue;
    }
    switch (draw(recomputes_ ? 8 : 4)) {
      case 0:
        choice.knobs.horizon_ns =
            static_cast<std::int64_t>(static_cast<double>(std::max(choice.knobs.horizon_ns, step_ns_ / 256)) * factor);
        break;
      case 1:
        choice.knobs.clean_ahead_ns =
            choice.knobs.clean_ahead_ns < 0 ? step_ns_ / 32
            : draw(4) == 0                  ? -1
                           : static_cast<std::int64_t>(static_cast<double>(choice.knobs.clean_ahead_ns) * factor);
        break;
      case 2:
        choice.share = std::array{100U, 97U, 95U, 90U, 85U, 80U, 75U, 70U}[draw(8)];
        break;
      case 3:
        choice.knobs.clean_percent = static_cast<std::uint32_t>(100 + draw(10) * 5);
        break;
      case 4:
        choice.rule.depth = std::array{0U, 1U, 2U, 3U, 5U, 8U, 16U, 64U}[draw(8)];
        break;
      case 5:
        for (double& price : choice.rule.ns_per_byte) price *= factor;
        break;
      default: {
        double& price = choice.rule.ns_per_byte[draw(RecomputeRule::segments)];
        const double other = choice.rule.ns_per_byte[draw(RecomputeRule::segments)];
        price = draw(4) == 0 ? std::max(price, other) : price * factor;
      }
    }
  }
  return choice;
}

}  // namespace vedette::planning
