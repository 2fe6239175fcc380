// A step's plan that finds memory as another plan left it.
#include <vector>

#include "engine/rig.h"

namespace vedette::catching_up_test {
namespace {

using namespace testing;
using detail::StepStart;
using Uses = std::vector<StepStart::Unit>;

// The first op by a plan, at `tick`, of a step that begins at `base`: the plan has `near` in fast memory by then, and
// not `away`.
void begin_plan(Rig& rig, Ticks base, Ticks tick, const Uses& near, const Uses& away) {
  const StepStart start{.near = near, .away = away};
  rig.engine().begin_op({0}, "op", {.tick = tick, .step_begins = base, .start = &start, .planned = true});
  rig.engine().end_op({});
}

TEST(CatchingUp, WhatThePlanHasComesAndWhatItHasAwayLeaves) {
  Rig rig(6);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  rig.born(4, 4);
  begin_plan(rig, 1'000, 1'000, {{at(0), 3}, {at(1), 4}, {at(4), 5}}, {{at(3), 9}, {at(2), 8}});
  EXPECT_TRUE(eventually([&] { return rig.here(0) && rig.here(1); }));
  EXPECT_TRUE(eventually([&] { return !rig.here(2) && !rig.here(3); }));
  EXPECT_TRUE(rig.here(4));
  EXPECT_EQ(rig.engine().counters().faults, 0u);
  EXPECT_EQ(rig.engine().counters().stall_count, 0u);
  for (std::uint32_t c = 0; c < 5; ++c) EXPECT_TRUE(rig.holds(c, c));
}

TEST(CatchingUp, AFullMemoryMakesTheRoomOfWhatThePlanHasAway) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  rig.born(4, 4);
  rig.born(5, 5);
  begin_plan(rig, 1'000, 1'000, {{at(0), 3}, {at(1), 4}}, {{at(3), 9}, {at(2), 8}});
  EXPECT_TRUE(eventually([&] { return rig.here(0) && rig.here(1); }));
  EXPECT_TRUE(rig.here(4));
  EXPECT_TRUE(rig.here(5));
}

// The step goes on in its middle, where the plan took over.
TEST(CatchingUp, WhatWasUsedBeforeStays) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 3; ++c) rig.born(c, c);
  rig.evict({at(0)});
  begin_plan(rig, 1'000, 1'005, {{at(0), 3}}, {{at(2), 9}, {at(1), 4}});
  EXPECT_TRUE(eventually([&] { return !rig.here(2); }));
  rig.engine().quiesce();
  EXPECT_TRUE(rig.here(1));
  EXPECT_FALSE(rig.here(0));
}

TEST(CatchingUp, EndsForAChunkWithTheOpItComesTooLateFor) {
  Rig rig(2);
  rig.fill_without_chunk_0();
  begin_plan(rig, 1'000, 1'000, {{at(0), 3}}, {});  // no room, so it waits
  const ChunkRange operand = at(0);
  const detail::OpMoves::Departure leaves{.chunks = operand};
  rig.engine().begin_op({3}, "op", {.tick = 1'003, .operands = {&operand, 1}, .step_begins = 1'000, .planned = true});
  rig.engine().end_op({&leaves, 1});
  rig.stays_away(0);
}

TEST(CatchingUp, EndsWithThePlan) {
  Rig rig(2);
  rig.fill_without_chunk_0();
  begin_plan(rig, 1'000, 1'000, {{at(0), 3}}, {});  // no room, so it waits
  rig.engine().forget_plan();
  rig.engine().died(at(1));
  rig.engine().quiesce();
  EXPECT_FALSE(rig.here(0));
}

}  // namespace
}  // namespace vedette::catching_up_test
