// A rule that the engine follows and the planner simulates. One disk serves both directions, so writes wait for reads
// while more frames are free than the next groups of reads take.
#pragma once
#include <cstdint>

namespace vedette {

constexpr std::uint32_t room_for_reads = 4;  // chunks, beyond those that are reserved

}  // namespace vedette
