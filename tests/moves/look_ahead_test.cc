// One prediction policy for chunks and blocks: which use is next, whose room is free longest, which fetch is due, and
// until when a fetch gains nothing by room.
#include "moves/look_ahead.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "os/chunk_index.h"

namespace vedette::testing::look_ahead_test {
namespace {

using moves::LookAhead;
using Uses = moves::NextUses<ChunkIndex>;

const auto itself = [](ChunkIndex c) { return c; };

// Twenty ops that took so long each; op 1 runs.
OpSchedule ops_of(std::int64_t ns) {
  auto begins = std::make_shared<std::vector<Nanoseconds>>(1);
  for (int op = 0; op < 20; ++op) begins->push_back(begins->back() + Nanoseconds{ns});
  return {.begins = std::move(begins), .op = 1};
}

TEST(NextUses, AreAsTheyWereToldAndOverdueOnesAsLateAgain) {
  Uses uses;
  uses.begin_op(10);
  uses.expect({.index = {1}, .tick = 14, .dead_at = 12});
  EXPECT_EQ(uses.of({1}), 14u);
  EXPECT_EQ(uses.until({1}), 12u) << "its death comes first";
  uses.begin_op(20);
  EXPECT_EQ(uses.of({1}), 26u);
  EXPECT_EQ(uses.told({1}), 14u);
  EXPECT_EQ(uses.of({7}), 40u) << "nothing was told, and its last use, at 0, is 20 ago";
  uses.used({7});
  uses.begin_op(23);
  EXPECT_EQ(uses.of({7}), 26u);
}

TEST(NextUses, CountTheNextBirthWhereTensorsAreBornTimeAndAgain) {
  Uses uses;
  for (const Ticks tick : {5u, 9u}) {
    uses.begin_op(tick);
    uses.born({0});
  }
  uses.begin_op(10);
  EXPECT_EQ(uses.known_use({0}), 13u);
  uses.tell({0}, 12);
  EXPECT_EQ(uses.known_use({0}), 12u);
  uses.tell({0}, 50);
  EXPECT_EQ(uses.known_use({0}), 13u);
  uses.replaced({0});
  EXPECT_EQ(uses.known_use({0}), never) << "another thing has the index";
}

TEST(NextUses, OfOneOfSeveralTensorsStandBesideThoseOfTheOthers) {
  Uses uses;
  uses.begin_op(1);
  uses.expect_beside_others({.index = {0}, .tick = 4, .dead_at = 6}, true);
  EXPECT_EQ(uses.until({0}), 4u);
  uses.expect_beside_others({.index = {0}, .tick = 9, .dead_at = 3}, false);
  EXPECT_EQ(uses.until({0}), 4u) << "a death among several tensors frees no room";
  uses.begin_op(5);
  uses.expect_beside_others({.index = {0}, .tick = 9}, false);
  EXPECT_EQ(uses.of({0}), 9u) << "the earlier use has been";
}

TEST(NextUses, RoomCountsOpsATransfer) {
  const moves::Calendar step{.ends = 20, .next_begins = 1'000};
  Uses uses;
  uses.begin_op(10);
  uses.expect({.index = {0}, .tick = 16});
  uses.expect({.index = {1}, .tick = 1'004});
  uses.expect({.index = {2}, .tick = 18, .dead_at = 14});
  EXPECT_EQ(uses.room({0}, false, step), 6u) << "out and in";
  EXPECT_EQ(uses.room({0}, true, step), 12u) << "in alone";
  EXPECT_EQ(uses.room({1}, false, step), 14u) << "ticks between two steps are no ops";
  EXPECT_EQ(uses.room({2}, false, step), 8u) << "until its death, and it does not come back";
  EXPECT_EQ(uses.room({2}, true, step), 16u);
  uses.born({0});
  EXPECT_EQ(uses.room({0}, true, step), 0u) << "nothing is known of it yet";
}

TEST(LookAhead, AFetchIsDueWhereItAndThoseBeforeItTakeTheTimeUntilItsOp) {
  Uses uses;
  uses.begin_op(1);
  const std::vector<ChunkIndex> fetches = {{0}, {1}, {2}};
  for (const ChunkIndex c : fetches) uses.expect({.index = c, .tick = 4 + 4 * Ticks{c.value}});  // 4, 8, 12
  LookAhead ahead;
  const auto due = [&](double ns) { return ahead.due(fetches, uses, itself, [&](ChunkIndex) { return ns; }); };
  ahead.begin({});
  EXPECT_EQ(due(1), never) << "no times are known";
  ahead.begin({.schedule = ops_of(100)});  // 200, 600 and 1,000 ns from the next op's begin
  EXPECT_EQ(due(50), 3u) << "of the next op alone";
  EXPECT_EQ(due(200), 5u);
  EXPECT_EQ(due(301), 9u) << "602 ns of the first two; 903 of all";
  EXPECT_EQ(due(334), 13u) << "the last one is due, and those before it with it";
}

TEST(LookAhead, FetchesComeInOrderOfNeed) {
  Uses uses;
  uses.begin_op(10);
  uses.expect({.index = {0}, .tick = 30});
  uses.expect({.index = {1}, .tick = 12});
  uses.expect({.index = {2}, .tick = 4});  // overdue: 16
  std::vector<ChunkIndex> fetches = {{0}, {2}, {1}};
  LookAhead().sort(fetches, uses, itself);
  EXPECT_EQ(fetches, (std::vector<ChunkIndex>{{1}, {2}, {0}}));
}

TEST(LookAhead, TheLinkIsBusyUntilTheLastUseThatComesTooLate) {
  LookAhead ahead;
  using Transfers = std::vector<std::pair<Ticks, double>>;
  Transfers away = {{9, 450}, {4, 250}, {15, 100}, {90, 1e9}};  // the last one beyond the step
  int counted = 0;
  const auto busy = [&](Ticks now, std::size_t things) {
    return ahead.busy_until(now, things, [&] { return ++counted, away; });
  };
  ahead.begin({});
  EXPECT_EQ(busy(1, 0), 0u) << "no times are known";
  ahead.begin({.anew = true, .schedule = ops_of(100)});
  EXPECT_EQ(busy(1, 0), 10u) << "700 ns until 9, where 700 are left; 800 until 15, where 1,300 are";
  ahead.begin({.schedule = ops_of(100)});
  away.clear();
  EXPECT_EQ(busy(1, 0), 10u) << "counted in this op";
  EXPECT_EQ(busy(2, 512), 10u) << "and with many things, in the one before";
  EXPECT_EQ(counted, 1);
  EXPECT_EQ(busy(3, 512), 0u);
  away = {{4, 250}};
  ahead.begin({.anew = true, .schedule = ops_of(100)});
  EXPECT_EQ(busy(3, 512), 5u) << "at another position";
}

}  // namespace
}  // namespace vedette::testing::look_ahead_test
