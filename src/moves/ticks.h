// The program's clock: one tick an op or section, growing over steps.
#pragma once
#include <cstdint>

namespace vedette {

using Ticks = std::uint64_t;
constexpr Ticks never = ~Ticks{0};

// Ticks of different steps never meet: no step has this many ops or sections, which StepLogger asserts. A step of more
// ops than are logged ends there for the session; the rest of the ticks is left to sections.
constexpr Ticks ticks_of_a_step = 1'000'000;
constexpr std::uint32_t most_ops_of_a_step = 900'000;

}  // namespace vedette
