// Fingerprints of decisions, and of operators, one value at a time. Pure.
#pragma once
#include <cstdint>

namespace vedette {

constexpr std::uint64_t mixed(std::uint64_t fingerprint, std::uint64_t value) {
  return (fingerprint ^ value) * 0x9E3779B97F4A7C15U ^ (fingerprint >> 29);
}

}  // namespace vedette
