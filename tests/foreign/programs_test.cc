// Programs of twenty kinds under the guard, with half of the memory that each needs: the same bits.
#include "foreign/budgets.h"

namespace vedette::test::foreign::programs_test {

INSTANTIATE_TEST_SUITE_P(AtHalf, Foreign, of_all_programs({50}), name_of);

TEST(ForeignPrograms, AreTwenty) { EXPECT_GE(all_programs().size(), 20u); }

}  // namespace vedette::test::foreign::programs_test
