// Ten thousand steps that never repeat, of three of the shapes: caches that begin anew, sequences of ops that hardly
// come again, and the one that is slowest beside plain. Nothing that is remembered of them grows, and the bytes are
// right.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "session/irregular_shapes.h"
#include "support/resident_bytes.h"

namespace vedette::many_irregular_steps_test {
namespace {

using testing::ExpertsDrawn;
using testing::GrowingCache;
using testing::make_shape;
using testing::ReplayBuffer;
using testing::resident_bytes;
using testing::SessionPlayer;
using testing::Shape;
using testing::ShapeEntry;

constexpr std::size_t steps = 10'000, first = 1'000;

struct Figures {
  std::uint64_t resident = 0, held = 0;  // of the process; of all that malloc has given
  std::size_t plans = 0;
};

Figures figures(const Session& session) {
  const auto heap = ::mallinfo2();
  return {.resident = resident_bytes(), .held = heap.uordblks + heap.hblkhd, .plans = session.planned_steps().size()};
}

struct Ended {
  std::uint64_t state = 0;
  std::uint64_t peak = 0;
  Figures after_first, last;
};

Ended run(const ShapeEntry& shape, Bytes budget) {
  const auto session = testing::open_session(budget, "host", "vedette");
  SessionPlayer player(*session);
  const auto program = shape.make(player);
  Ended ended;
  for (std::size_t s = 0; s < steps; ++s) {
    program->step(s);
    if (s + 1 == first) ended.after_first = figures(*session);
    if (s + 1 == steps) ended.last = figures(*session);
  }
  ended.state = program->state();
  ended.peak = session->counters().peak_bytes.value;
  return ended;
}

class ManyIrregularSteps : public ::testing::TestWithParam<ShapeEntry> {};

TEST_P(ManyIrregularSteps, GrowNothing) {
  // A step of these takes some ten KiB in tables. Holes between what malloc has given come to 1.6 MiB in 9,000 steps.
  constexpr std::uint64_t bound = 1 << 20, bound_with_holes = 4 << 20;
  const Ended plenty = run(GetParam(), 64_MiB);
  const Ended tight = run(GetParam(), {std::max<std::uint64_t>(plenty.peak / 4 / Shape::chunk, 10) * Shape::chunk});
  std::printf("resident and held after %zu steps: %lu, %lu KiB, %zu plans; after %zu: %lu, %lu KiB, %zu plans\n", first,
              tight.after_first.resident >> 10, tight.after_first.held >> 10, tight.after_first.plans, steps,
              tight.last.resident >> 10, tight.last.held >> 10, tight.last.plans);
  EXPECT_EQ(tight.state, plenty.state);
  EXPECT_LE(tight.last.held, tight.after_first.held + bound);
  EXPECT_LE(tight.last.resident, tight.after_first.resident + bound_with_holes);
  EXPECT_LE(tight.last.plans, 10u);
}

INSTANTIATE_TEST_SUITE_P(AtAQuarter, ManyIrregularSteps,
                         ::testing::Values(ShapeEntry{"growing_cache", make_shape<GrowingCache>},
                                           ShapeEntry{"experts", make_shape<ExpertsDrawn>},
                                           ShapeEntry{"replay_buffer", make_shape<ReplayBuffer>}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace vedette::many_irregular_steps_test
