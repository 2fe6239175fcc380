// Two hundred programs from seeds (drawn_program.h).
#include <gtest/gtest.h>

#include <string>

#include "adapter/drawn_program.h"

namespace vedette::test::drawn_programs_slow_test {
namespace {

class DrawnProgramsSlow : public ::testing::TestWithParam<unsigned> {};

TEST_P(DrawnProgramsSlow, HaveThePlainRunsBits) {
  for (unsigned seed = GetParam(); seed < GetParam() + 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_plain_runs_bits(seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnProgramsSlow, ::testing::Range(100u, 300u, 20u),
                         [](const auto& each) { return "from_" + std::to_string(each.param); });

}  // namespace
}  // namespace vedette::test::drawn_programs_slow_test
