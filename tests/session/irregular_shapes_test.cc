// Eight shapes of programs whose steps never repeat, at a half and at a quarter of what each needs: the bytes of a
// session with plenty of memory. bench/irregular_test has the programs themselves, which need libtorch.
#include "session/irregular_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace vedette::irregular_shapes_test {
namespace {

using testing::irregular_shapes;
using testing::SessionPlayer;
using testing::Shape;

constexpr std::size_t steps = 20;

struct Ended {
  std::uint64_t state = 0;
  Counters counters;
};

Ended run(std::size_t shape, Bytes budget) {
  const auto session = testing::open_session(budget, "host", "vedette");
  SessionPlayer player(*session);
  const auto program = irregular_shapes[shape].make(player);
  for (std::size_t s = 0; s < steps; ++s) program->step(s);
  return {.state = program->state(), .counters = session->counters()};
}

class IrregularShapes : public ::testing::TestWithParam<std::tuple<std::size_t, std::uint64_t>> {};

TEST_P(IrregularShapes, EndWithTheBytesOfPlentyOfMemory) {
  const auto [shape, percent] = GetParam();
  const Ended plenty = run(shape, 64_MiB);
  ASSERT_EQ(plenty.counters.bytes_out.value, 0u);
  const Bytes budget{std::max<std::uint64_t>(plenty.counters.peak_bytes.value * percent / 100 / Shape::chunk, 10) *
                     Shape::chunk};
  const Ended tight = run(shape, budget);
  EXPECT_EQ(tight.state, plenty.state);
  EXPECT_LE(tight.counters.resident_max_bytes.value, budget.value);
  EXPECT_GT(tight.counters.bytes_in.value, 0u) << "a budget this small must have moved something";
}

INSTANTIATE_TEST_SUITE_P(AtHalfAndQuarter, IrregularShapes,
                         ::testing::Combine(::testing::Range(std::size_t{0}, irregular_shapes.size()),
                                            ::testing::Values(50, 25)),
                         [](const auto& each) {
                           return std::string(irregular_shapes[std::get<0>(each.param)].name) + "_at_" +
                                  std::to_string(std::get<1>(each.param)) + "_percent";
                         });

}  // namespace
}  // namespace vedette::irregular_shapes_test
