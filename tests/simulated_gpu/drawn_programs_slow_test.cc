// A hundred programs from seeds on the simulated GPU (drawn_programs.h).
#include <string>

#include "simulated_gpu/drawn_programs.h"

namespace vedette::test::drawn_programs_slow_test {
namespace {

TEST_P(DrawnGpuPrograms, HaveThePlainRunsBits) {
  for (unsigned seed = GetParam(); seed < GetParam() + 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_plain_runs_bits(seed);
  }
}

INSTANTIATE_TEST_SUITE_P(SeedsFrom, DrawnGpuPrograms, ::testing::Range(100u, 200u, 10u),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace vedette::test::drawn_programs_slow_test
