// Stands for PyTorch's own tests where there is no source of them.
#include <gtest/gtest.h>

TEST(PyTorchsOwnTests, PassUnderAGuardAsWithoutOne) {
  GTEST_SKIP() << "PyTorch's source: set VEDETTE_PYTORCH_SOURCE to its folder (CONTRIBUTING.md)";
}
