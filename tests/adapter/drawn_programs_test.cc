// Programs from printed seeds, each with options from the same seed, with and without a guard: the same bits, and an
// end. VEDETTE_SEEDS, as in "100-250", are others than the first 16.
#include <gtest/gtest.h>

#include <string>

#include "adapter/drawn_program.h"

namespace vedette::test::drawn_programs_test {
namespace {

class DrawnPrograms : public ::testing::TestWithParam<unsigned> {};

TEST_P(DrawnPrograms, HaveThePlainRunsBits) { expect_plain_runs_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnPrograms, drawn_seeds(16),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace vedette::test::drawn_programs_test
