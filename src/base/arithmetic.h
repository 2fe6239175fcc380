// Whole numbers: multiples, and a sequence of random ones. Pure.
#pragma once
#include <cstdint>

namespace vedette {

// `value` rounded up to a multiple of `unit`, which is not 0.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

// SplitMix64 (Steele, Lea and Flood, OOPSLA'14): the same numbers everywhere.
constexpr std::uint64_t next_random(std::uint64_t& state) noexcept {
  std::uint64_t x = state += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace vedette
