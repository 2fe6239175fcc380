// The world breaks, at every single call and in every way (world_breaks.h). All of it takes an hour and more for each world, so a run takes one
// of VEDETTE_BREAK_PARTS disjoint parts (16 where it is not set, 1: everything): the part of VEDETTE_BREAK_PART, or of the day.
#include <cstdlib>
#include <ctime>

#include "session/world_breaks.h"

namespace vedette {
namespace {

using testing::WorldBreaks;

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST_P(WorldBreaks, AtEveryCall) {
  const std::uint64_t parts = std::max<std::uint64_t>(number("VEDETTE_BREAK_PARTS", 16), 1);
  const std::uint64_t part = number("VEDETTE_BREAK_PART", static_cast<std::uint64_t>(std::time(nullptr)) / 86'400) % parts;
  std::printf("VEDETTE_BREAK_PART=%lu VEDETTE_BREAK_PARTS=%lu\n", part, parts);
  break_part(part, parts);
}

INSTANTIATE_TEST_SUITE_P(Worlds, WorldBreaks, ::testing::ValuesIn(testing::worlds), [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace vedette
