// Programs from printed seeds, each with options from the same seed, with and without a guard: the same bits, and an
// end. VEDETTE_SEEDS, as in "100-250", are others than the first 16.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "adapter/drawn_program.h"

namespace vedette::test {
namespace {

std::pair<unsigned, unsigned> seeds() {
  std::pair<unsigned, unsigned> range(1, 16);
  if (const char* const text = std::getenv("VEDETTE_SEEDS"); text != nullptr)
    std::sscanf(text, "%u-%u", &range.first, &range.second);
  return range;
}

class DrawnPrograms : public ::testing::TestWithParam<unsigned> {};

TEST_P(DrawnPrograms, HaveThePlainRunsBits) { expect_plain_runs_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnPrograms, ::testing::Range(seeds().first, seeds().second + 1),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace vedette::test
