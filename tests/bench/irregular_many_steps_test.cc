// Ten thousand steps of the one of bench/irregular's programs that is slowest beside plain libtorch and whose length
// has no end (docs/irregular.md), at a quarter of what it needs. No memory grows, and the bits are those of the plain
// run. tests/session/many_irregular_steps_test has shapes of others, without libtorch.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "counting_allocator.h"
#include "irregular_programs.h"
#include "support/resident_bytes.h"

namespace vedette::bench::irregular_many_steps_test {
namespace {

const bool plain_runs_are_counted = (examples::count_allocations(), true);
const bool plain_runs_are_exact = (resolve_vector_math(), true);

using testing::resident_bytes;

constexpr int steps = 10'000, first = 1'000;

class ManyIrregularSteps : public ::testing::TestWithParam<const char*> {};

TEST_P(ManyIrregularSteps, GrowNothing) {
  const auto& programs = irregular_programs();
  const auto program = std::find_if(programs.begin(), programs.end(),
                                    [](const Program& p) { return p.name == std::string(GetParam()); });
  ASSERT_NE(program, programs.end());
  at::set_num_threads(1);
  bench::Run plain{.small = true, .steps = steps}, guarded = plain;
  examples::forget_peak();
  torch::manual_seed(3);
  program->run(plain);
  constexpr Bytes chunk = 32_KiB;
  const std::uint64_t budget = std::max(examples::counted_peak_bytes() / 4, 12 * chunk.value);
  Guard guard({.fast_memory = {budget}, .slow = "host", .chunk = chunk, .on_message = [](std::string_view) {}});
  guarded.guard = &guard;
  std::uint64_t after_first = 0, last = 0;
  guarded.step_ms.reserve(steps + 1);
  guarded.losses.reserve(steps + 1);
  guarded.after_step = [&] {
    if (guarded.step_ms.size() == first) after_first = resident_bytes();
    if (guarded.step_ms.size() == steps) last = resident_bytes();
  };
  torch::manual_seed(3);
  program->run(guarded);
  std::printf("after %d steps %lu KiB, after %d %lu KiB, %lu MiB came in\n", first, after_first >> 10, steps,
              last >> 10, guard.counters().bytes_in.value >> 20);
  EXPECT_EQ(guarded.losses, plain.losses);
  EXPECT_EQ(guarded.bits, plain.bits);
  EXPECT_GT(guard.counters().bytes_in.value, 0u);
  ASSERT_GT(after_first, 0u);
  EXPECT_LE(last, after_first + (4u << 20));
  EXPECT_LE(guard.session().planned_steps().size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(AtAQuarter, ManyIrregularSteps, ::testing::Values("replay_buffer"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace vedette::bench::irregular_many_steps_test
