// Ops without a plan that know what an earlier step did: room is made of what is used last, before it is wanted, and
// what is used next comes early.
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/rig.h"

namespace vedette::expected_test {
namespace {

using namespace testing;
using Fetches = std::vector<detail::OpMoves::Fetch>;
using Uses = std::vector<detail::OpMoves::NextUse>;

// An op at `tick` that expects the given things and ends.
void op(Rig& rig, Ticks tick, const Fetches& fetches, const Uses& next_uses, detail::Ahead ahead) {
  ahead.fetches = fetches;
  ahead.next_uses = next_uses;
  rig.engine().begin_op({0}, "op", {.tick = tick, .ahead = &ahead});
  rig.engine().end_op({});
}

TEST(Expected, RoomIsMadeOfWhatIsUsedLast) {
  Rig rig(6);
  for (std::uint32_t c = 0; c < 6; ++c) rig.born(c, c);
  const Uses uses = {{at(0), 9}, {at(1), 2}, {at(2), 8}, {at(3), 3}, {at(4), 4}, {at(5), 5}};
  op(rig, 1, {}, uses, {.births = 2, .until = 6});
  EXPECT_TRUE(eventually([&] { return !rig.here(0) && !rig.here(2); }));
  for (const std::uint32_t c : {1u, 3u, 4u, 5u}) EXPECT_TRUE(rig.here(c)) << c;
  const std::uint64_t stalls = rig.engine().counters().stall_count;
  ASSERT_TRUE(eventually([&] { return rig.engine().state({2}) == ChunkState::away; }));
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::away; }));
  rig.born(6, 6);
  rig.born(7, 7);
  EXPECT_EQ(rig.engine().counters().stall_count, stalls) << "the room was there";
  for (std::uint32_t c = 0; c < 8; ++c) EXPECT_TRUE(rig.holds(c, c));
}

TEST(Expected, WhatIsUsedSoonStaysThoughRoomIsWanted) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  const Uses uses = {{at(0), 2}, {at(1), 3}, {at(2), 4}, {at(3), 5}};
  op(rig, 1, {}, uses, {.births = 4, .until = 6});
  rig.engine().quiesce();
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.here(c)) << c;
}

TEST(Expected, FetchesMakeTheirRoomOfWhatIsUsedLater) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  rig.born(4, 4);
  rig.born(5, 5);
  const Uses uses = {{at(0), 3}, {at(1), 4}, {at(2), 90}, {at(3), 80}, {at(4), 2}, {at(5), 5}};
  op(rig, 1, {{at(0, 2)}}, uses, {.births = 0, .until = 10});
  EXPECT_TRUE(eventually([&] { return rig.here(0) && rig.here(1); }));
  EXPECT_FALSE(rig.here(2));
  EXPECT_FALSE(rig.here(3));
  EXPECT_EQ(rig.engine().counters().faults, 0u);
}

// A tensor in the chunk is used later than another one there: the earlier use counts, until it has come.
TEST(Expected, AChunkIsUsedWhenTheFirstOfItsTensorsIs) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  op(rig, 1, {}, {{at(0), 4}, {at(1), 20}, {at(2), 21}, {at(3), 22}}, {});
  op(rig, 2, {}, {{at(0), 99}}, {.births = 1, .until = 10});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({3}) == ChunkState::away; }));
  EXPECT_TRUE(rig.here(0));
  op(rig, 4, {}, {{at(0), 99}}, {.births = 2, .until = 10});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::away; }));
}

// What was expected and does not come moves away with time: else it would stay for ever.
TEST(Expected, AUseThatIsOverdueIsExpectedAsLateAgain) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  op(rig, 1, {}, {{at(0), 3}, {at(1), 120}, {at(2), 121}, {at(3), 122}}, {});
  op(rig, 5, {}, {}, {.births = 1, .until = 10});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({3}) == ChunkState::away; }));
  EXPECT_TRUE(rig.here(0)) << "expected at 7";
  op(rig, 70, {}, {}, {.births = 2, .until = 100});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::away; })) << "expected at 137";
}

TEST(Expected, WhatWasJustBornStays) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 3; ++c) rig.born(c, c);
  const Uses uses = {{at(0), 20}, {at(1), 21}, {at(2), 22}};
  const detail::Ahead ahead{.next_uses = uses, .births = 3, .until = 10};
  rig.engine().begin_op({0}, "op", {.tick = 1, .ahead = &ahead});
  rig.born(3, 3);
  rig.engine().end_op({});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({2}) == ChunkState::away; }));
  EXPECT_TRUE(rig.here(3)) << "its next use is told when the next op begins";
}

// An op with one operand, which it reads, or writes as `mark` says.
void use(Rig& rig, Ticks tick, std::uint32_t c, std::optional<std::uint64_t> mark) {
  const std::vector<ChunkRange> operands = {at(c)};
  const std::span<const ChunkRange> written = mark ? std::span(operands) : std::span<const ChunkRange>();
  rig.engine().begin_op({0}, "use", {.tick = tick, .operands = operands, .written = written});
  if (mark) rig.fill(c, *mark);
  rig.engine().end_op({});
}

TEST(Expected, WhatAnOpOnlyReadsLeavesForNothing) {
  Rig rig(4);
  rig.born(0, 1);
  rig.evict({at(0)});
  use(rig, 10, 0, {});
  const Counters read = rig.engine().counters();
  rig.evict({at(0)});
  EXPECT_EQ(rig.engine().counters().bytes_out.value, read.bytes_out.value);
  EXPECT_EQ(rig.engine().counters().bytes_dropped.value, read.bytes_dropped.value + chunk_bytes.value);
  use(rig, 20, 0, 2);
  rig.evict({at(0)});
  EXPECT_EQ(rig.engine().counters().bytes_out.value, read.bytes_out.value + chunk_bytes.value);
  EXPECT_TRUE(rig.holds(0, 2));
}

// A chunk that is written is hashed for nothing, as it comes and as it leaves.
TEST(Expected, AnOpThatWritesATensorOfSeveralChunksChangesEachOfThem) {
  for (const bool writes : {true, false}) {
    Rig rig(4);
    const ChunkRange tensor = at(0, 3);
    for (const ChunkIndex c : tensor) rig.born(c.value, 1);
    rig.evict({tensor});
    const std::span written(&tensor, writes ? 1 : 0);
    rig.engine().begin_op({0}, "write", {.tick = 10, .operands = {&tensor, 1}, .written = written});
    EXPECT_EQ(rig.store().reads_kept(), writes ? 0u : 3u);
    if (writes)
      for (const ChunkIndex c : tensor) rig.fill(c.value, 2);
    rig.engine().end_op({});
    for (const ChunkIndex c : tensor) EXPECT_TRUE(rig.holds(c.value, writes ? 2 : 1)) << c.value;
  }
}

TEST(Expected, WhatDiesBeforeItsRoomIsWantedStays) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  const Uses uses = {{at(0), 90, 5}, {at(1), 20}, {at(2), 4}, {at(3), 91, 80}};
  op(rig, 1, {}, uses, {.births = 3, .until = 10});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({1}) == ChunkState::away; }));
  EXPECT_TRUE(eventually([&] { return rig.engine().state({3}) == ChunkState::away; }));
  EXPECT_TRUE(rig.here(0)) << "it would be written for nothing";
  EXPECT_TRUE(rig.here(2));
}

// The op needs a chunk that is away and more: room is made as it begins, for all at once.
TEST(Expected, RoomForFetchesIsMadeAsTheOpBegins) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0)});
  rig.born(4, 4);
  const Uses uses = {{at(0), 3}, {at(1), 4}, {at(2), 90}, {at(3), 5}, {at(4), 2}};
  const Fetches fetches = {{at(0)}};
  const detail::Ahead ahead{.fetches = fetches, .next_uses = uses, .until = 10};
  rig.engine().begin_op({0}, "op", {.tick = 1, .ahead = &ahead});
  EXPECT_TRUE(eventually([&] { return rig.here(0); })) << "while the op runs";
  rig.engine().end_op({});
  EXPECT_EQ(rig.engine().state({2}), ChunkState::away);
}

TEST(Expected, WhereItIsNotSureWhatComesNothingLeavesForIt) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0)});
  rig.born(4, 4);
  op(rig, 1, {{at(0)}}, {{at(0), 3}, {at(2), 90}}, {.makes_room = false, .until = 10});
  rig.engine().quiesce();
  EXPECT_FALSE(rig.here(0));
  EXPECT_TRUE(rig.here(2));
}

TEST(Expected, AtANewPositionTheOldFetchesAreForgotten) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0)});
  rig.born(4, 4);
  op(rig, 1, {{at(0)}}, {}, {.makes_room = false, .until = 10});
  op(rig, 2, {}, {}, {.anew = true, .until = 10});
  rig.evict({at(1)});  // room for one
  rig.evict({at(2)});  // a turn later
  EXPECT_FALSE(rig.here(0));
}

// An earlier step of twenty ops that took so long each.
OpSchedule ops_of(Nanoseconds each) {
  auto begins = std::make_shared<std::vector<Nanoseconds>>(1);
  for (int op = 0; op < 20; ++op) begins->push_back(begins->back() + each);
  return {.begins = std::move(begins), .op = 1};
}
constexpr Nanoseconds for_ages{std::int64_t{1} << 52}, at_once{1};

TEST(Expected, AFetchWaitsUntilItIsDue) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0)});
  op(rig, 1, {{at(0)}}, {{at(0), 5}}, {.until = 10, .schedule = ops_of(for_ages)});
  rig.stays_away(0);  // four long ops before its use
  op(rig, 4, {}, {}, {.until = 10, .schedule = ops_of(for_ages)});
  EXPECT_TRUE(eventually([&] { return rig.here(0); })) << "the next op uses it";
}

TEST(Expected, AFetchIsDueWhereALaterOneIs) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  op(rig, 1, {{at(0, 2)}}, {{at(0), 5}, {at(1), 9}}, {.until = 10, .schedule = ops_of(at_once)});
  EXPECT_TRUE(eventually([&] { return rig.here(0) && rig.here(1); }));
}

TEST(Expected, FetchesThatAreNotDueAreForgottenWithWhatWasExpected) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0)});
  op(rig, 1, {{at(0)}}, {{at(0), 5}}, {.until = 10, .schedule = ops_of(for_ages)});
  use(rig, 2, 1, {});
  rig.stays_away(0);
}

// Two chunks are away and the link is late for both: what is used before the second would be a third.
TEST(Expected, WhatIsUsedBeforeTheLinkRestsDoesNotLeaveForAFetch) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  rig.born(4, 4);
  rig.born(5, 5);
  const Uses uses = {{at(0), 3}, {at(1), 12}, {at(2), 11}, {at(3), 15}, {at(4), 2}, {at(5), 5}};
  op(rig, 1, {{at(0, 2)}}, uses, {.until = 8, .schedule = ops_of(at_once)});
  EXPECT_TRUE(eventually([&] { return rig.here(0); }));
  rig.stays_away(1);
  EXPECT_TRUE(rig.here(2)) << "used at 11";
  EXPECT_FALSE(rig.here(3)) << "used at 15";
}

}  // namespace
}  // namespace vedette::expected_test
