// The order in which a search tries the sweep's knobs: how far ahead to look differs most from trace to trace; then,
// around the best, the knobs that matter less. Pure.
#pragma once
#include <array>
#include <cstdint>

#include "policy/vedette/sweep.h"

namespace vedette::planning {

// Knobs that are far apart: little looking ahead, some, and all that there is.
inline std::array<Knobs, 4> knobs_apart(std::int64_t step_ns) {
  return {Knobs{.horizon_ns = 0, .clean_ahead_ns = step_ns / 32},
          Knobs{.horizon_ns = step_ns / 16, .clean_ahead_ns = -1},
          Knobs{.horizon_ns = step_ns / 4, .clean_ahead_ns = step_ns / 32},
          Knobs{.horizon_ns = step_ns, .clean_ahead_ns = -1}};
}

// `consider(Knobs)` tries one setting; `best()` returns the best knobs so far.
template <class Consider, class Best>
void try_knobs(std::int64_t step_ns, std::int64_t budget, Consider consider, Best best) {
  const auto consider_with = [&](auto Knobs::*knob, auto value) {
    Knobs knobs = best();
    if (knobs.*knob == value) return;
    knobs.*knob = value;
    consider(knobs);
  };
  for (const std::int64_t part : {0, 4, 64, 1, 16, 256, 2, 8}) {  // of 64ths of a step; those furthest apart first
    for (const std::int64_t clean_ahead : {std::int64_t{-1}, step_ns / 32})
      consider(Knobs{.horizon_ns = step_ns / 64 * part, .clean_ahead_ns = clean_ahead});
  }
  for (const std::int64_t part : {512, 128, 64, 16, 8, 4, 1}) consider_with(&Knobs::clean_ahead_ns, step_ns / part);
  const std::int64_t horizon = best().horizon_ns;
  for (const std::int64_t percent : {60, 75, 85, 115, 135, 160})
    consider_with(&Knobs::horizon_ns, horizon / 100 * percent);
  for (const std::uint32_t percent : {100U, 107U, 125U, 140U, 200U}) consider_with(&Knobs::clean_percent, percent);
  for (const std::uint32_t percent : {120U, 150U}) consider_with(&Knobs::distance_percent, percent);
  for (const std::int64_t part : {100, 50, 25, 12}) consider_with(&Knobs::staging, budget / part);
}

}  // namespace vedette::planning
