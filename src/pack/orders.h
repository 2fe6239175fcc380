// The orders in which buffers are tried by first fit.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "pack/sections.h"

namespace vedette::pack {

enum class Order : std::uint8_t { birth, size, length, area, balanced, pressure };

std::string_view name(Order order);

// birth: as the program would. size, length, area (their product), balanced (size * sqrt(length)): the larger first.
// pressure: those that live through the fullest moment first (of the part of time that they cover), then the longer.
// Ties go to the earlier birth, which keeps like things together. `born` are the buffers in question, in order of
// birth; all of them live.
std::vector<std::uint32_t> sorted(const Problem& problem, const Timeline& timeline,
                                  const std::vector<std::uint64_t>& load, const std::vector<std::uint32_t>& born,
                                  Order order);

// All buffers that live and have bytes, by birth, then as they are numbered.
std::vector<std::uint32_t> by_birth(const Problem& problem);

}  // namespace vedette::pack
