// The programs of bench/irregular with small shapes, at a half and at a quarter of what each needs: the same bits.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "counting_allocator.h"
#include "irregular_programs.h"

namespace vedette::bench::irregular_test {
namespace {

const bool plain_runs_are_counted = (examples::count_allocations(), true);
const bool plain_runs_are_exact = (resolve_vector_math(), true);

class Irregular : public ::testing::TestWithParam<std::tuple<std::size_t, std::uint64_t>> {};

TEST_P(Irregular, GivesTheSameBits) {
  const auto [number, percent] = GetParam();
  const Program& program = irregular_programs()[number];
  at::set_num_threads(2);
  bench::Run plain{.small = true, .steps = 16}, guarded = plain;
  examples::forget_peak();
  torch::manual_seed(3);
  program.run(plain);
  constexpr Bytes chunk = 32_KiB;
  const std::uint64_t budget = std::max(examples::counted_peak_bytes() * percent / 100, 12 * chunk.value);
  Guard guard({.fast_memory = {budget}, .slow = "host", .chunk = chunk, .on_message = [](std::string_view) {}});
  guarded.guard = &guard;
  torch::manual_seed(3);
  program.run(guarded);
  EXPECT_EQ(guarded.losses, plain.losses);
  EXPECT_EQ(guarded.bits, plain.bits);
  EXPECT_NE(plain.bits, 0u) << "nothing was compared";
  EXPECT_GT(guard.counters().bytes_in.value, 0u) << "a budget this small must have moved something";
  EXPECT_FALSE(guard.session().take_error());
}

INSTANTIATE_TEST_SUITE_P(AtHalfAndQuarter, Irregular,
                         ::testing::Combine(::testing::Range(std::size_t{0}, irregular_programs().size()),
                                            ::testing::Values(50, 25)),
                         [](const auto& each) {
                           return std::string(irregular_programs()[std::get<0>(each.param)].name) + "_at_" +
                                  std::to_string(std::get<1>(each.param)) + "_percent";
                         });

}  // namespace
}  // namespace vedette::bench::irregular_test
