// The world breaks, at every single call and in every way (world_breaks.h), in parts that may run side by side: most of
// a run is waiting. VEDETTE_BREAK_CALL=n and VEDETTE_BREAK_KIND=0..3 (fails, is brief, is late, is corrupt): that call
// alone, VEDETTE_BREAK_TIMES times.
#include <cstdlib>

#include "session/world_breaks.h"

namespace vedette::world_breaks_slow_test {
namespace {

using testing::Break;
using testing::WorldBreaks;

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST_P(WorldBreaks, AtEveryCall) {
  if (std::getenv("VEDETTE_BREAK_CALL") == nullptr) return break_part();
  const auto how = static_cast<Break>(number("VEDETTE_BREAK_KIND", 0) % 4);
  for (std::uint64_t left = number("VEDETTE_BREAK_TIMES", 1); left > 0; --left)
    break_call(number("VEDETTE_BREAK_CALL", 0), how);
  tell_endings();
}

INSTANTIATE_TEST_SUITE_P(Worlds, WorldBreaks, ::testing::ValuesIn(testing::worlds_in_parts(8)), testing::name_of);

}  // namespace
}  // namespace vedette::world_breaks_slow_test
