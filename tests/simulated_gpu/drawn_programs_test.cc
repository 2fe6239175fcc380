// VEDETTE_SEEDS, as in "100-250", are others than the first 8.
#include "simulated_gpu/drawn_programs.h"

#include <string>

namespace vedette::test::drawn_programs_test {
namespace {

TEST_P(DrawnGpuPrograms, HaveThePlainRunsBits) { expect_plain_runs_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnGpuPrograms, drawn_seeds(8),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace vedette::test::drawn_programs_test
