// What a plan says of a chunk, and when it counts: next uses of this step beside those of the step before, and planned
// evictions of chunks that are held.
#include "engine/rig.h"

namespace vedette::next_uses_test {
namespace {

using namespace testing;

constexpr Ticks step = 1'000'000;  // ticks

TEST(NextUses, CountFromTheStepThatTellsThem) {
  Rig rig;
  Engine& engine = rig.engine();
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  // Told in the step before: chunk 1 is used early in this step, 2 and 3 even earlier.
  const std::vector<detail::OpMoves::NextUse> before = {{at(1), step + 5}, {at(2), step + 3}, {at(3), step + 4}};
  engine.begin_op({7}, "op", {.tick = step + 7, .moves = {.next_uses = before}, .step_begins = step, .planned = true});
  engine.end_op({});
  // Told in this step: chunk 0 is used a little later in the next one. Without the steps' bases all four are overdue,
  // and the least overdue is expected first.
  const std::vector<detail::OpMoves::NextUse> now = {{at(0), step + 100}};
  engine.begin_op({2}, "op",
                  {.tick = 2 * step + 2, .moves = {.next_uses = now}, .step_begins = 2 * step, .planned = true});
  engine.end_op({});
  rig.born(4, 4);
  EXPECT_FALSE(rig.here(0)) << "its next use is the furthest";
  for (std::uint32_t c = 1; c < 4; ++c) EXPECT_TRUE(rig.here(c)) << c;
}

TEST(PlannedEvictions, LeaveWhatIsHeldWhereItIs) {
  Rig rig(6);
  for (std::uint32_t c = 0; c < 3; ++c) rig.born(c, c);
  rig.engine().hold(at(1)).value();
  const std::uint64_t faults = rig.engine().counters().faults;
  rig.op({}, {.fetches = {}, .evictions = {at(1)}, .next_uses = {}});
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident) << "not even hidden";
  rig.evict({at(2)});  // the queue has gone by
  rig.evict({at(0)});
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  EXPECT_TRUE(rig.holds(1, 1));
  EXPECT_EQ(rig.engine().counters().faults, faults);
  rig.engine().release_hold(at(1));
}

// A hold that comes right after the op's end finds the chunk hidden, in its write, or away: it is there and stays.
TEST(PlannedEvictions, GiveWayToAHold) {
  Rig rig(6);
  for (std::uint32_t c = 0; c < 3; ++c) rig.born(c, c);
  for (int round = 0; round < 50; ++round) {
    rig.op({}, {.fetches = {}, .evictions = {at(1)}, .next_uses = {}});
    rig.engine().hold(at(1)).value();
    EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
    EXPECT_TRUE(rig.holds(1, 1));
    rig.engine().release_hold(at(1));
  }
}

}  // namespace
}  // namespace vedette::next_uses_test
