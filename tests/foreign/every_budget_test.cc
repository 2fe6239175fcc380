// The same programs with ample memory and with a quarter of what each needs.
#include "foreign/budgets.h"

namespace vedette::test::foreign::every_budget_test {

INSTANTIATE_TEST_SUITE_P(AtAmpleAndQuarter, Foreign, of_all_programs({200, 25}), name_of);

}  // namespace vedette::test::foreign::every_budget_test
