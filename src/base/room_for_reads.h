// A rule of sessions that the engine keeps and the planner rehearses: one disk serves both directions, so writes wait
// for reads while more chunks of fast memory are free than the next groups of reads take.
#pragma once
#include <cstdint>

namespace vedette {

constexpr std::uint32_t room_for_reads = 4;  // chunks, beyond those that are promised

}  // namespace vedette
