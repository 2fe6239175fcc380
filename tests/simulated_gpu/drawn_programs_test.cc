// VEDETTE_SEEDS, as in "100-250", are others than the first 8.
#include "simulated_gpu/drawn_programs.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace vedette::test {
namespace {

std::pair<unsigned, unsigned> seeds() {
  std::pair<unsigned, unsigned> range(1, 8);
  if (const char* const text = std::getenv("VEDETTE_SEEDS"); text != nullptr)
    std::sscanf(text, "%u-%u", &range.first, &range.second);
  return range;
}

TEST_P(DrawnGpuPrograms, HaveThePlainRunsBits) { expect_plain_runs_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnGpuPrograms, ::testing::Range(seeds().first, seeds().second + 1),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace vedette::test
