// Stands for PyTorch's own tests where there is no source of them.
#include <gtest/gtest.h>

TEST(PyTorchsOwnTests, PassUnderAGuardAsWithoutOne) {
  GTEST_SKIP() << "PyTorch's source: scripts/fetch_pytorch_tests.sh brings it, VEDETTE_PYTORCH_SOURCE names it "
                  "(CONTRIBUTING.md)";
}
