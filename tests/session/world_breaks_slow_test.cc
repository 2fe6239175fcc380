// The world breaks, at every single call (world_breaks.h): minutes for each world.
#include "session/world_breaks.h"

namespace vedette {
namespace {

using testing::WorldBreaks;

TEST_P(WorldBreaks, AtEveryCall) { break_every(1); }

INSTANTIATE_TEST_SUITE_P(Worlds, WorldBreaks, ::testing::ValuesIn(testing::worlds), [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace vedette
