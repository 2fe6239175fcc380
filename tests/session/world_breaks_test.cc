// The world breaks, at every so manieth call (world_breaks.h); world_breaks_slow_test takes all of them.
#include "session/world_breaks.h"

namespace vedette::world_breaks_test {
namespace {

using testing::WorldBreaks;

TEST_P(WorldBreaks, NowAndThen) { break_sparsely(607); }

INSTANTIATE_TEST_SUITE_P(Worlds, WorldBreaks, ::testing::ValuesIn(testing::worlds_in_parts(1)), testing::name_of);

}  // namespace
}  // namespace vedette::world_breaks_test
