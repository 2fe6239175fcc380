// The engine over real memory of this machine and a store that waits or fails on a test's order. Covered are states,
// births that wait, deaths in flight, ops that are too large, and every failure of the slow tier.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <random>

#include "engine/rig.h"

namespace vedette::engine_test {
namespace {

using namespace testing;

TEST(Engine, WritesNothingForWhatLeavesAsItCame) {
  Rig rig;
  rig.born(0, 7);
  rig.evict({at(0)});
  for (std::uint64_t round = 1; round <= 3; ++round) {
    rig.op({}, {.fetches = {{.chunks = at(0), .unchanged = true}}, .evictions = {}, .next_uses = {}});
    rig.op({at(0)}, {}, [&] { EXPECT_TRUE(rig.holds(0, 7)); });
    rig.evict({at(0)});
    EXPECT_EQ(rig.engine().counters().bytes_out.value, chunk_bytes.value) << "written once, before the first round";
    EXPECT_EQ(rig.engine().counters().bytes_dropped.value, round * chunk_bytes.value);
  }
}

TEST(Engine, WritesWhatWasChangedThoughThePlanSaidItWouldNotBe) {
  Rig rig;
  rig.born(0, 7);
  rig.evict({at(0)});
  rig.op({}, {.fetches = {{.chunks = at(0), .unchanged = true}}, .evictions = {}, .next_uses = {}});
  rig.op({at(0)}, {}, [&] { rig.words(0)[words_per_chunk - 1] ^= 1; });
  rig.evict({at(0)});
  EXPECT_EQ(rig.engine().counters().bytes_out.value, 2 * chunk_bytes.value);
  EXPECT_EQ(rig.engine().counters().bytes_dropped.value, 0u);
  rig.op({at(0)}, {}, [&] {
    rig.words(0)[words_per_chunk - 1] ^= 1;
    EXPECT_TRUE(rig.holds(0, 7));
  });
}

TEST(Engine, KeepsTheFrameOfADeadChunkUntilSomebodyIsBorn) {
  Rig rig;
  rig.engine().born(at(0, 4)).value();
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_EQ(rig.engine().state({c}), ChunkState::resident);
  rig.engine().died(at(1));
  EXPECT_EQ(rig.engine().state({1}), ChunkState::idle);
  rig.engine().born(at(9)).value();
  EXPECT_EQ(rig.engine().state({9}), ChunkState::resident);
  EXPECT_EQ(rig.engine().state({1}), ChunkState::empty);
  EXPECT_EQ(rig.engine().counters().bytes_out.value, 0u);
}

TEST(Engine, SharesAChunkUntilItsLastTensorDies) {
  Rig rig;
  rig.born(0, 7);
  rig.engine().born(at(0)).value();
  rig.engine().died(at(0));
  EXPECT_NE(rig.engine().state({0}), ChunkState::idle);
  EXPECT_TRUE(rig.holds(0, 7));
  rig.engine().died(at(0));
  EXPECT_EQ(rig.engine().state({0}), ChunkState::idle);
}

TEST(Engine, BringsBackWhatItMovedAway) {
  Rig rig;
  for (std::uint32_t c = 0; c < 12; ++c) rig.born(c, c);
  for (std::uint32_t c = 0; c < 12; ++c) rig.op({at(c)}, {}, [&] { EXPECT_TRUE(rig.holds(c, c)) << c; });
  EXPECT_EQ(rig.engine().counters().faults, 0u);
  EXPECT_GE(rig.engine().counters().bytes_in.value, 8 * chunk_bytes.value);
}

TEST(Engine, ShowsWhatHasArrivedToTheOpThatNeedsIt) {
  Rig rig;
  rig.born(0, 5);
  rig.evict({at(0)});
  rig.op({}, {.fetches = {{at(0)}}, .evictions = {}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::arrived; }));
  EXPECT_EQ(rig.engine().counters().resident_bytes.value, chunk_bytes.value);
  rig.op({at(0)}, {}, [&] {
    EXPECT_EQ(rig.engine().state({0}), ChunkState::resident);
    EXPECT_TRUE(rig.holds(0, 5));
  });
  EXPECT_EQ(rig.engine().counters().faults, 0u);
  EXPECT_EQ(rig.engine().counters().stall_count, 0u);
}

TEST(Engine, ShowsWhatHasArrivedToWhoeverTouchesItOrHoldsItOrIsBornBesideIt) {
  Rig rig(12);
  for (std::uint32_t c = 0; c < 3; ++c) rig.born(c, c + 5);
  rig.evict({at(0, 3)});
  rig.op({}, {.fetches = {{at(0, 3)}}, .evictions = {}, .next_uses = {}});
  for (std::uint32_t c = 0; c < 3; ++c)
    ASSERT_TRUE(eventually([&] { return rig.engine().state({c}) == ChunkState::arrived; }));
  EXPECT_TRUE(rig.holds(0, 5));
  EXPECT_EQ(rig.engine().counters().faults, 1u);
  rig.engine().hold(at(1)).value();
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  rig.engine().release_hold(at(1));
  rig.engine().born(at(2)).value();
  EXPECT_EQ(rig.engine().state({2}), ChunkState::resident);
  for (std::uint32_t c = 0; c < 3; ++c) EXPECT_TRUE(rig.holds(c, c + 5));
  EXPECT_EQ(rig.engine().counters().faults, 1u);
}

TEST(Engine, GivesAwayTheRoomOfWhatHasArrivedWithoutAWrite) {
  Rig rig;
  for (std::uint32_t c = 0; c < 2; ++c) rig.born(c, c + 5);
  rig.evict({at(0, 2)});
  const std::uint64_t written = rig.engine().counters().bytes_out.value;
  rig.op({}, {.fetches = {{at(0, 2)}}, .evictions = {}, .next_uses = {}});
  for (std::uint32_t c = 0; c < 2; ++c)
    ASSERT_TRUE(eventually([&] { return rig.engine().state({c}) == ChunkState::arrived; }));
  rig.op({}, {}, [&] {
    for (std::uint32_t c = 8; c < 12; ++c) rig.born(c, c);  // all that there is, and pinned
  });
  EXPECT_EQ(rig.engine().state({0}), ChunkState::away);
  EXPECT_EQ(rig.engine().state({1}), ChunkState::away);
  EXPECT_EQ(rig.engine().counters().bytes_out.value, written);
  EXPECT_EQ(rig.engine().counters().bytes_dropped.value, 2 * chunk_bytes.value);
  for (std::uint32_t c = 0; c < 2; ++c) EXPECT_TRUE(rig.holds(c, c + 5));
  for (std::uint32_t c = 8; c < 12; ++c) EXPECT_TRUE(rig.holds(c, c));
}

TEST(Engine, KeepsWhatHasArrivedWhereSomethingElseMayLeave) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c + 5);
  rig.evict({at(0)});
  // of its own next use nothing is said
  rig.op({}, {.fetches = {{at(0)}}, .evictions = {}, .next_uses = {{at(1, 3), 2}}});
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::arrived; }));
  rig.born(8, 8);
  EXPECT_EQ(rig.engine().state({0}), ChunkState::arrived);
  EXPECT_EQ(rig.engine().counters().bytes_dropped.value, 0u);
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c + 5));
}

TEST(Engine, HidesWhatLeavesWhenItsOpEndsAndShowsItToWhoComesBefore) {
  Rig rig(12);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c + 5);
  rig.evict({at(0)});
  rig.store().close_gate(Direction::read);
  rig.op({}, {.fetches = {{at(0)}}, .evictions = {}, .next_uses = {}});  // while this read runs, writes wait
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::fetching; }));
  rig.op({}, {.fetches = {}, .evictions = {at(1, 3)}, .next_uses = {}});
  for (std::uint32_t c = 1; c < 4; ++c) EXPECT_EQ(rig.engine().state({c}), ChunkState::hidden);
  EXPECT_TRUE(rig.holds(1, 6));
  rig.op({at(2)}, {}, [&] { EXPECT_TRUE(rig.holds(2, 7)); });
  rig.engine().died(at(3));
  rig.born(3, 20);
  rig.store().open_gate(Direction::read);
  rig.engine().quiesce();
  for (std::uint32_t c = 0; c < 3; ++c) EXPECT_TRUE(rig.holds(c, c + 5));
  EXPECT_TRUE(rig.holds(3, 20));
  EXPECT_EQ(rig.engine().counters().bytes_out.value, chunk_bytes.value);
  EXPECT_EQ(rig.engine().counters().resident_bytes.value, 4 * chunk_bytes.value);
}

TEST(Engine, LetsABirthWaitUntilAWriteHasMadeRoom) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.store().close_gate(Direction::write);
  auto birth = std::async(std::launch::async, [&] { return rig.engine().born(at(8)).ok(); });
  ASSERT_TRUE(eventually([&] { return rig.store().waiting() > 0; }));
  EXPECT_EQ(birth.wait_for(30ms), std::future_status::timeout);
  EXPECT_EQ(rig.engine().state({8}), ChunkState::unbacked);
  rig.store().open_gate(Direction::write);
  EXPECT_TRUE(birth.get());
  EXPECT_EQ(rig.engine().state({8}), ChunkState::resident);
  EXPECT_EQ(rig.engine().counters().stall_count, 1u);
  rig.fill(8, 8);
  for (std::uint32_t c : {0u, 1u, 2u, 3u, 8u}) EXPECT_TRUE(rig.holds(c, c)) << c;
}

TEST(Engine, LetsADeathMakeTheRoomThatABirthWaitsFor) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.store().close_gate(Direction::write);
  auto birth = std::async(std::launch::async, [&] { return rig.engine().born(at(8)).ok(); });
  ASSERT_TRUE(eventually([&] { return rig.store().waiting() > 0; }));
  // at once: after the victim's death alone the next victim's write would begin, and wait as well
  rig.engine().died(at(0, 4));
  EXPECT_TRUE(birth.get());  // with the write still waiting
  rig.store().open_gate(Direction::write);
}

// Outside an op nothing pins what a birth waits for. Here it needs more frames than are not held, and some of its
// chunks are away: they stay until the birth has seen them, though it needs room for the others.
TEST(Engine, ABirthLargerThanWhatIsNotHeldEnds) {
  Rig rig(8, 24);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.engine().hold(at(0, 4)).value();
  for (const std::uint32_t lives : {10u, 13u}) {  // a tensor before and in the middle of those that are born
    rig.born(lives, lives);
    for (std::uint32_t c = 18; c < 22; ++c) rig.born(c, c);  // it leaves
    EXPECT_FALSE(rig.here(lives));
  }
  auto born = std::async(std::launch::async, [&] { return rig.engine().born(at(10, 8)); });
  EXPECT_EQ(born.wait_for(10s), std::future_status::ready);
  rig.engine().release_hold(at(0, 4));  // where it spins it ends now
  EXPECT_TRUE(born.get());
  for (const std::uint32_t lives : {10u, 13u}) EXPECT_TRUE(rig.holds(lives, lives));
}

TEST(Engine, ForgetsAChunkThatDiesWhileItIsWritten) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.store().close_gate(Direction::write);
  rig.op({}, {.fetches = {}, .evictions = {at(0, 2)}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.store().waiting() == 2; }));
  EXPECT_EQ(rig.engine().state({0}), ChunkState::evicting);
  rig.engine().died(at(0, 2));
  EXPECT_EQ(rig.engine().state({0}), ChunkState::empty);
  rig.engine().died(at(2));
  rig.born(0, 100);  // again, in another frame, while the old bytes are on their way out
  rig.store().open_gate(Direction::write);
  rig.engine().quiesce();
  rig.born(1, 101);
  rig.born(2, 102);
  for (std::uint32_t c = 5; c < 9; ++c) rig.born(c, c);  // pushes everybody out once
  for (std::uint32_t c : {0u, 1u, 2u}) EXPECT_TRUE(rig.holds(c, 100 + c)) << c;
  for (std::uint32_t c : {3u, 5u, 6u, 7u, 8u}) EXPECT_TRUE(rig.holds(c, c)) << c;
}

TEST(Engine, ForgetsAChunkThatDiesWhileItIsRead) {
  Rig rig;
  for (std::uint32_t c = 0; c < 2; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  rig.store().close_gate(Direction::read);
  rig.op({}, {.fetches = {{at(0, 2)}}, .evictions = {}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.store().waiting() == 2; }));
  EXPECT_EQ(rig.engine().state({0}), ChunkState::fetching);
  rig.engine().died(at(0));
  rig.born(0, 100);
  rig.store().open_gate(Direction::read);
  rig.engine().quiesce();
  EXPECT_TRUE(rig.holds(0, 100));
  EXPECT_TRUE(rig.holds(1, 1));
  rig.engine().born(at(4, 2)).value();  // all four frames are accounted for
  EXPECT_EQ(rig.engine().counters().resident_bytes.value, 4 * chunk_bytes.value);
}

TEST(Engine, KeepsAChunkThatIsWantedBeforeItsWriteEnds) {
  for (const bool by_plan : {false, true}) {
    Rig rig;
    rig.born(0, 5);
    rig.born(1, 6);
    rig.evict({at(1)});
    rig.store().close_gate(Direction::write);
    rig.op({}, {.fetches = {}, .evictions = {at(0)}, .next_uses = {}});
    ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::evicting; }));
    const std::uint64_t ops = rig.engine().counters().ops;
    std::future<void> op;
    if (by_plan) {  // fetches begin in their order: once the second one is there the first was asked for
      rig.op({}, {.fetches = {{at(0, 2)}}, .evictions = {}, .next_uses = {}});
      ASSERT_TRUE(eventually([&] { return rig.here(1); }));
    } else {  // an op is seen once it waits for the operands that it asked for
      op = std::async(std::launch::async, [&] { rig.op({at(0)}, {}); });
      ASSERT_TRUE(eventually([&] { return rig.engine().counters().ops == ops + 1; }));
    }
    rig.store().open_gate(Direction::write);
    if (!by_plan) op.get();
    ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::resident; })) << by_plan;
    EXPECT_TRUE(rig.holds(0, 5));
    EXPECT_EQ(rig.engine().counters().bytes_in.value, by_plan ? chunk_bytes.value : 0u);
    EXPECT_EQ(rig.engine().counters().faults, 0u);
  }
}

TEST(Engine, ReadsTwoAtATimeWhereThatIsEnoughAndElseInGroups) {
  constexpr std::uint32_t count = 8;
  for (const bool one_by_one : {true, false}) {
    Rig rig(12, 16, one_by_one);
    for (std::uint32_t c = 0; c < count; ++c) rig.born(c, c);
    rig.evict({at(0, count)});
    const auto fetching = [&] {
      std::uint32_t sum = 0;
      for (std::uint32_t c = 0; c < count; ++c) sum += rig.engine().state({c}) == ChunkState::fetching ? 1 : 0;
      return sum;
    };
    const std::uint32_t at_once = one_by_one ? 2 : 6;
    rig.store().close_gate(Direction::read);
    rig.op({}, {.fetches = {{at(0, count)}}, .evictions = {}, .next_uses = {}});
    ASSERT_TRUE(eventually([&] { return fetching() >= at_once; }));
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(fetching(), at_once);
    rig.store().open_gate(Direction::read);
    for (std::uint32_t c = 0; c < count; ++c) {
      ASSERT_TRUE(eventually([&] { return rig.here(c); }));
      EXPECT_TRUE(rig.holds(c, c));
    }
  }
}

TEST(Engine, LetsWritesWaitWhileReadsRunAndRoomIsLeft) {
  Rig rig(12);
  rig.born(0, 5);
  rig.born(1, 6);
  rig.evict({at(0)});
  rig.store().close_gate(Direction::read);
  rig.op({}, {.fetches = {{at(0)}}, .evictions = {}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::fetching; }));
  rig.op({}, {.fetches = {}, .evictions = {at(1)}, .next_uses = {}});
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(rig.engine().state({1}), ChunkState::hidden);
  for (std::uint32_t c = 2; c < 8; ++c) rig.born(c, c);  // four free frames are left
  ASSERT_TRUE(eventually([&] { return rig.engine().state({1}) == ChunkState::away; })) << "while the read still runs";
  rig.store().open_gate(Direction::read);
  ASSERT_TRUE(eventually([&] { return rig.here(0); }));
  EXPECT_TRUE(rig.holds(0, 5));
}

TEST(Engine, LetsWhatLeavesForNothingGoWhileWritesWait) {
  Rig rig(12);
  for (std::uint32_t c = 0; c < 3; ++c) rig.born(c, c + 5);
  rig.evict({at(0, 2)});
  rig.op({}, {.fetches = {{.chunks = at(1), .unchanged = true}}, .evictions = {}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.here(1); }));
  rig.op({at(1)}, {});  // has been used: only its hash says that it did not change
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  rig.store().close_gate(Direction::read);
  rig.op({}, {.fetches = {{at(0)}}, .evictions = {at(2), at(1)}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.engine().state({1}) == ChunkState::away; }));
  EXPECT_EQ(rig.engine().counters().bytes_dropped.value, chunk_bytes.value);
  EXPECT_EQ(rig.engine().state({2}), ChunkState::hidden);
  rig.store().open_gate(Direction::read);
  ASSERT_TRUE(eventually([&] { return rig.engine().state({2}) == ChunkState::away; }));
}

TEST(Engine, KeepsAChunkThatIsNeededBeforeItsWriteBegan) {
  for (const bool by_plan : {false, true}) {
    Rig rig(12);
    rig.born(0, 5);
    rig.born(1, 6);
    rig.born(2, 7);
    rig.evict({at(0)});
    rig.store().close_gate(Direction::read);
    rig.op({}, {.fetches = {{at(0)}}, .evictions = {at(1), at(2)}, .next_uses = {}});
    ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::fetching; }));
    rig.op(by_plan ? std::vector<ChunkRange>{} : std::vector<ChunkRange>{at(1)},
           {.fetches = by_plan ? std::vector<detail::OpMoves::Fetch>{{at(1)}} : std::vector<detail::OpMoves::Fetch>{},
            .evictions = {},
            .next_uses = {}});
    rig.store().open_gate(Direction::read);
    ASSERT_TRUE(eventually([&] { return rig.engine().state({2}) == ChunkState::away; }));
    EXPECT_EQ(rig.engine().state({1}), ChunkState::resident) << by_plan;
    EXPECT_TRUE(rig.holds(1, 6));
    EXPECT_EQ(rig.engine().counters().bytes_out.value, 2 * chunk_bytes.value);
  }
}

TEST(Engine, ServesAFaultOnAChunkThatIsBeingWritten) {
  Rig rig;
  rig.born(0, 5);
  rig.store().close_gate(Direction::write);
  rig.op({}, {.fetches = {}, .evictions = {at(0)}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::evicting; }));
  auto reader = std::async(std::launch::async, [&] { return rig.holds(0, 5); });
  ASSERT_TRUE(eventually([&] { return rig.engine().counters().faults == 1; }));
  EXPECT_EQ(reader.wait_for(10ms), std::future_status::timeout);
  rig.store().open_gate(Direction::write);
  EXPECT_TRUE(reader.get());
}

TEST(Engine, RunsAnOpThatNeedsTooMuchPagedAndSaysSoOnce) {
  Rig rig;
  for (std::uint32_t c = 0; c < 6; ++c) rig.born(c, c);
  for (int again = 0; again < 2; ++again) {
    rig.op({at(0, 6)}, {}, [&] {
      for (std::uint32_t c = 0; c < 6; ++c) EXPECT_TRUE(rig.holds(c, c)) << c;
    });
  }
  rig.engine().begin_step(1);
  ASSERT_EQ(rig.messages.size(), 1u);
  EXPECT_NE(rig.messages[0].find("'op'"), std::string::npos) << rig.messages[0];
  EXPECT_GT(rig.engine().counters().faults, 0u);
  EXPECT_EQ(rig.engine().largest_op_chunks(), 6u);
  const auto faults = rig.engine().counters().faults;
  rig.op({at(0, 4)}, {}, [&] { EXPECT_TRUE(rig.holds(3, 3)); });  // the next one that fits is not paged
  EXPECT_EQ(rig.engine().counters().faults, faults);
}

// Before its first step a program's ops grow from one to the next: the largest names the budget, once.
TEST(Engine, TellsOneBudgetForAllOpsThatDidNotFitBetweenSteps) {
  for (const bool steps : {true, false}) {
    Rig rig(4, 8);
    for (std::uint32_t c = 0; c < 8; ++c) rig.born(c, c);
    for (const std::uint32_t needs : {5u, 6u, 8u, 7u}) rig.op({at(0, needs)}, {});
    EXPECT_EQ(rig.messages.size(), 0u);
    if (steps) rig.engine().begin_step(1);
    for (int op = 0; op < 100; ++op) rig.op({}, {});
    ASSERT_EQ(rig.messages.size(), 1u) << steps;
    EXPECT_NE(rig.messages[0].find("needs 512.0 KiB at once"), std::string::npos) << rig.messages[0];  // 8 chunks
  }
}

TEST(Engine, GivesAnAllocationInsideAFullOpItsRoomByPaging) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.op({at(0, 4)}, {}, [&] {
    rig.engine().born(at(8, 3)).value();
    for (std::uint32_t c = 8; c < 11; ++c) rig.fill(c, c);
    for (std::uint32_t c : {0u, 1u, 2u, 3u, 8u, 9u, 10u}) EXPECT_TRUE(rig.holds(c, c)) << c;
  });
  rig.engine().begin_step(1);  // what the op needs is known at its end, and told as a step begins
  ASSERT_EQ(rig.messages.size(), 1u);
  EXPECT_NE(rig.messages[0].find("needs 448.0 KiB at once"), std::string::npos) << rig.messages[0];  // 7 chunks
}

// What has arrived has a frame that is parked, not shown. It is brought forth before its frame changes.
TEST(Engine, ConvertsTheFrameOfWhatHasArrived) {
  Rig rig;
  rig.born(0, 7);
  rig.evict({at(0)});
  rig.op({}, {.fetches = {{.chunks = at(0), .unchanged = true}}, .evictions = {}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::arrived; }));
  for (const FrameKind kind : {FrameKind::trackable, FrameKind::fast}) {
    if (const auto converted = rig.engine().pages()->convert(kind); !converted)
      GTEST_SKIP() << converted.error().message;
    EXPECT_EQ(rig.engine().state({0}), ChunkState::resident);
    EXPECT_TRUE(rig.holds(0, 7));
  }
  rig.evict({at(0)});
  EXPECT_TRUE(rig.holds(0, 7));
}

// By hand, so that no write begins: what an op's end has hidden stays so until its frame changes.
TEST(Engine, ConvertsTheFrameOfWhatIsHidden) {
  constexpr std::uint32_t chunks = 4, frames = 2;
  const Mapping arena = Mapping::reserve({chunks * chunk_bytes.value}, chunk_bytes).value();
  Engine engine({.chunks = chunks,
                 .frames = frames,
                 .chunk_bytes = chunk_bytes,
                 .store = open_host_store(chunk_bytes, 16).value(),
                 .by_hand = true,
                 .on_message = {}});
  engine.start(open_best_memory({.arena = arena.data(),
                                 .chunks = chunks,
                                 .frames = frames,
                                 .made = frames,
                                 .chunk_bytes = chunk_bytes,
                                 .on_fault = [&engine](const Fault& fault) { engine.fault(fault); }})
                   .value());
  engine.born(at(0)).value();
  std::memset(arena.data(), 7, chunk_bytes.value);
  const detail::OpMoves::Departure leaves[] = {{.chunks = at(0)}};
  Ticks tick = 0;
  for (const FrameKind kind : {FrameKind::trackable, FrameKind::fast}) {
    engine.begin_op({0}, "op", {.tick = ++tick, .planned = true});
    engine.end_op(leaves);
    ASSERT_EQ(engine.state({0}), ChunkState::hidden);
    if (const auto converted = engine.pages()->convert(kind); !converted) GTEST_SKIP() << converted.error().message;
    ASSERT_EQ(engine.state({0}), ChunkState::resident);
    EXPECT_EQ(std::count(arena.data(), arena.data() + chunk_bytes.value, std::byte{7}), chunk_bytes.value);
  }
}

TEST(Engine, KeepsWhatIsHeldAndRefusesToHoldMoreThanThereIs) {
  Rig rig(8);
  for (std::uint32_t c = 0; c < 16; ++c) rig.born(c, c);
  ASSERT_TRUE(rig.engine().hold(at(0, 2)));
  for (std::uint32_t c = 2; c < 16; ++c) rig.op({at(c)}, {});
  rig.op({}, {.fetches = {}, .evictions = {at(0, 2)}, .next_uses = {}});
  rig.engine().quiesce();
  EXPECT_EQ(rig.engine().state({0}), ChunkState::resident);
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  const auto refused = rig.engine().hold(at(2, 3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, Cause::out_of_memory);
  EXPECT_EQ(rig.engine().held_chunks(), 2u);
  rig.engine().release_hold(at(0, 2));
  EXPECT_EQ(rig.engine().held_chunks(), 0u);
  EXPECT_TRUE(rig.engine().hold(at(2, 4)));
  rig.engine().release_hold(at(2, 4));
}

TEST(Engine, KeepsAnOperandWhoseHoldEndsInsideTheOp) {
  Rig rig(5);
  for (std::uint32_t c = 0; c < 9; ++c) rig.born(c, c);
  ASSERT_TRUE(rig.engine().hold(at(0)));
  rig.op({at(0)}, {}, [&] {
    rig.engine().release_hold(at(0));
    for (std::uint32_t c = 1; c < 9; ++c) EXPECT_TRUE(rig.holds(c, c));  // by faults, which need room
    EXPECT_EQ(rig.engine().state({0}), ChunkState::resident);
  });
}

TEST(Engine, TellsAnAllocationThatTheSlowTierCannotBeWritten) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.store().fail(Direction::write, 1000, ENOSPC);
  const auto birth = rig.engine().born(at(8));
  ASSERT_FALSE(birth);
  EXPECT_NE(birth.error().message.find("No space left"), std::string::npos) << birth.error().message;
  EXPECT_EQ(rig.engine().state({8}), ChunkState::empty) << "what was refused lives on";
  EXPECT_TRUE(rig.engine().take_error().has_value());
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c));
  rig.store().fail(Direction::write, 0);  // somebody freed space
  rig.engine().begin_step(2);
  EXPECT_TRUE(rig.engine().born(at(8)));
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c));
}

TEST(Engine, TellsAnAllocationInsideAnOpThatTheSlowTierCannotBeWritten) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.store().fail(Direction::write, 1000, ENOSPC);
  rig.op({at(0)}, {}, [&] {
    const auto birth = rig.engine().born(at(8, 2));
    ASSERT_FALSE(birth);
    EXPECT_NE(birth.error().message.find("No space left"), std::string::npos) << birth.error().message;
  });
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c));
}

TEST(Engine, TriesAWriteAgainBeforeItGivesUpAFault) {
  Rig rig;
  for (std::uint32_t c = 0; c < 6; ++c) rig.born(c, c);
  rig.engine().quiesce();
  rig.store().fail(Direction::write, 5);  // each of four once, one twice
  for (std::uint32_t c = 0; c < 6; ++c) EXPECT_TRUE(rig.holds(c, c)) << c;
  EXPECT_TRUE(rig.engine().take_error().has_value());
}

// A later write of another chunk worked, so the tier takes bytes again: the chunks that stayed are victims once more.
TEST(Engine, TriesWritesAgainOnceAnotherWorked) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.store().fail(Direction::write, 2);
  rig.op({}, {.fetches = {}, .evictions = {at(0), at(1)}, .next_uses = {}});
  ASSERT_TRUE(eventually([&] { return rig.engine().take_error().has_value(); }));
  ASSERT_TRUE(eventually([&] { return rig.here(0) && rig.here(1); }));
  rig.evict({at(2)});
  rig.born(4, 4);
  rig.op({at(3), at(4)}, {}, [&] { rig.born(5, 5); });
  EXPECT_TRUE(rig.messages.empty()) << rig.messages.front() << ": but chunks 0 and 1 could leave";
  for (std::uint32_t c = 0; c < 6; ++c) EXPECT_TRUE(rig.holds(c, c)) << c;
}

TEST(Engine, ReadsAgainAfterAnErrorThatPasses) {
  Rig rig;
  rig.born(0, 3);
  rig.evict({at(0)});
  rig.store().fail(Direction::read, 2);
  rig.op({at(0)}, {}, [&] { EXPECT_TRUE(rig.holds(0, 3)); });
}

TEST(EngineDeathTest, EndsLoudlyWhenBytesCannotBeReadBack) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Rig rig;
        rig.born(0, 3);
        rig.evict({at(0)});
        rig.store().fail(Direction::read, 1000);
        rig.op({at(0)}, {});
      },
      "reading chunk 0 back from the slow tier: Input/output error");
}

TEST(EngineDeathTest, EndsLoudlyWhenAFaultFindsNoRoomBecauseWritesFail) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Rig rig;
        for (std::uint32_t c = 0; c < 6; ++c) rig.born(c, c);
        rig.engine().quiesce();
        rig.store().fail(Direction::write, 1'000'000, ENOSPC);
        std::uint32_t right = 0;
        for (std::uint32_t c = 0; c < 6; ++c) right += rig.holds(c, c) ? 1u : 0u;
        std::fprintf(stderr, "%u chunks could be read\n", right);
      },
      "No space left on device");
}

TEST(Engine, ForgivesAFaultThatIsToldAfterItsChunkHasComeAndDied) {
  Rig rig;
  for (int again = 0; again < 1000; ++again) {
    rig.born(0, 7);
    rig.engine().died(at(0));
    for (std::uint32_t c = 1; c < 5; ++c) rig.born(c, c);  // takes the dead chunk's frame
    ASSERT_EQ(rig.engine().state({0}), ChunkState::empty);
    rig.engine().fault({.chunk = {0}, .page = 0, .write = false, .address = nullptr});
    for (std::uint32_t c = 1; c < 5; ++c) rig.engine().died(at(c));
  }
}

TEST(EngineDeathTest, EndsLoudlyWhenTheProgramTouchesNobodysMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Rig rig;
        rig.fill(3, 1);
      },
      "belongs to no tensor");
}

TEST(Engine, LeavesFramesToBirthsThatTheRunningOpWillSee) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 4)});
  const std::vector<std::uint32_t> frames_to_come{2, 1, 0};
  const std::vector<detail::OpMoves::Fetch> fetches{{at(0, 4)}};
  rig.engine().begin_op(
      {0}, "op", {.tick = 1'000, .moves = {.fetches = fetches}, .frames_to_come = frames_to_come, .planned = true});
  ASSERT_TRUE(eventually([&] { return rig.here(1); }));
  rig.born(8, 8);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(rig.engine().state({2}), ChunkState::away);
  EXPECT_EQ(rig.engine().state({3}), ChunkState::away);
  rig.engine().end_op({});
  ASSERT_TRUE(eventually([&] { return rig.here(2); }));
  EXPECT_EQ(rig.engine().state({3}), ChunkState::away);
  EXPECT_TRUE(rig.holds(2, 2));
  rig.engine().forget_plan();
}

TEST(Engine, APlannedFetchEndsWithTheOpItComesTooLateFor) {
  Rig rig(2);
  rig.fill_without_chunk_0();
  rig.op({}, {.fetches = {{at(0)}}, .evictions = {}, .next_uses = {{at(0), 3}}});  // no room, so it waits
  rig.op({at(0)}, {.fetches = {}, .evictions = {at(0)}, .next_uses = {{at(0), 50}}});
  rig.stays_away(0);  // there is room again, but the plan has it away
  for (std::uint32_t c = 0; c < 3; ++c) EXPECT_TRUE(rig.holds(c, c));
}

TEST(Engine, EvictsWhatIsNeededLast) {
  Rig rig;
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.op({}, {.fetches = {}, .evictions = {}, .next_uses = {{at(0), 50}, {at(1), 90}, {at(2), 70}, {at(3), 60}}});
  rig.engine().born(at(8)).value();
  EXPECT_EQ(rig.engine().state({1}), ChunkState::away);
  rig.engine().born(at(9)).value();  // 8's next use is unknown: it goes before those that are known
  EXPECT_EQ(rig.engine().state({8}), ChunkState::away);
}

TEST(Engine, EndsWithTransfersInFlight) {
  for (int i = 0; i < 5; ++i) {
    Rig rig;
    for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
    rig.op({}, {.fetches = {}, .evictions = {at(0, 4)}, .next_uses = {}});
  }
}

// Two threads read and write unannounced beside ops, births, deaths, evictions and fetches, in a budget that none of
// them fits in.
TEST(Engine, KeepsEveryByteUnderRandomUse) {
  Rig rig(6, 40);
  constexpr std::uint32_t shared_begin = 28;  // chunks [28, 40) belong to the two threads, half each
  for (std::uint32_t c = shared_begin; c < 40; ++c) rig.born(c, c);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, turns{0};
  const auto touch = [&](std::uint32_t first) {
    std::mt19937_64 random(first);
    std::vector<std::uint64_t> marks(6);
    for (std::uint32_t i = 0; i < 6; ++i) marks[i] = first + i;
    while (!stop) {
      const auto i = static_cast<std::uint32_t>(random() % 6);
      if (!rig.holds(first + i, marks[i])) ++wrong;
      if (random() % 2 == 0) rig.fill(first + i, marks[i] = random());
      ++turns;
    }
  };
  std::thread a(touch, shared_begin), b(touch, shared_begin + 6);
  std::mt19937_64 random(9);
  std::vector<std::uint64_t> marks(shared_begin, 0);  // 0: dead
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const auto c = static_cast<std::uint32_t>(random() % shared_begin);
    const auto pick = [&] {
      const auto first = static_cast<std::uint32_t>(random() % shared_begin);
      return at(first, 1 + static_cast<std::uint32_t>(random() % 2));
    };
    if (marks[c] == 0) {
      rig.born(c, marks[c] = i + 1);
    } else if (random() % 3 == 0) {
      rig.engine().died(at(c));
      marks[c] = 0;
    } else {
      const bool paged = random() % 50 == 0;
      const ChunkRange operands = at(c, paged ? std::min(10u, shared_begin - c) : 1);
      rig.op({operands},
             {.fetches = {{.chunks = pick()}, {.chunks = pick(), .unchanged = true}},
              .evictions = {pick(), pick()},
              .next_uses = {{pick(), static_cast<std::uint32_t>(random() % 4000)}}},
             [&] {
               for (const ChunkIndex o : operands)
                 if (marks[o.value] != 0 && !rig.holds(o.value, marks[o.value])) ++wrong;
               if (random() % 2 == 0) rig.fill(c, marks[c] = i + 1);
             });
    }
    if (i % 200 == 0) rig.engine().forget_plan();
  }
  stop = true;
  a.join();
  b.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(turns, 20u);
  EXPECT_LE(rig.engine().counters().resident_max_bytes.value, 6 * chunk_bytes.value);
}

// One instruction reads half a word on each side of the edge of chunks 0 and 1, filled with the marks 1 and 2.
void expect_the_word_over_the_edge(Rig& rig) {
  const std::uint64_t last = 1 * 1'000'003 + words_per_chunk - 1, first = 2 * 1'000'003;
  std::uint64_t both = 0;
  std::memcpy(&both, reinterpret_cast<const std::byte*>(rig.words(1)) - 4, sizeof both);
  EXPECT_EQ(both, last >> 32 | first << 32);
}

TEST(Engine, ServesAnInstructionThatNeedsTwoChunksThatNobodyNeedsForLong) {
  Rig rig(6);
  for (std::uint32_t c = 0; c < 10; ++c) rig.born(c, c + 1);
  rig.op({}, {.fetches = {}, .evictions = {}, .next_uses = {{at(0, 2), 1000}, {at(2, 8), 50}}});
  for (std::uint32_t c = 2; c < 10; ++c) EXPECT_TRUE(rig.holds(c, c + 1)) << c;
  expect_the_word_over_the_edge(rig);
}

// The plan has filled all frames but one ahead of the next op: what an instruction needs comes before that.
TEST(Engine, ServesAnInstructionThatNeedsTwoChunksWhileThePlanHasFilledFastMemory) {
  Rig rig(6);
  for (std::uint32_t c = 0; c < 10; ++c) rig.born(c, c + 1);
  rig.evict({at(0, 10)});
  rig.op({}, {.fetches = {{at(2, 5)}}, .evictions = {}, .next_uses = {}});
  for (std::uint32_t c = 2; c < 7; ++c)
    ASSERT_TRUE(eventually([&] { return rig.engine().state({c}) == ChunkState::arrived; })) << c;
  expect_the_word_over_the_edge(rig);
}

// A memory whose reader of faults has one more to tell while the memory already ends: who faulted has gone on long ago.
class LateMemory final : public ChunkMemory {
 public:
  LateMemory(std::uint32_t frames, FaultSink on_fault)
      : frames_(Mapping::reserve({frames * chunk_bytes.value}, chunk_bytes).value()), on_fault_(std::move(on_fault)) {}
  ~LateMemory() override { on_fault_({.chunk = {0}, .page = 0, .write = false, .address = nullptr}); }

  std::uint32_t made() const noexcept override { return 4; }
  int make(FrameIndex, std::uint32_t, FrameKind) noexcept override { return 0; }
  void give_back(FrameIndex) noexcept override {}
  void show(FrameIndex, ChunkIndex) noexcept override {}
  bool hide(ChunkIndex, FrameIndex) noexcept override { return true; }
  bool shift(ChunkIndex, ChunkIndex, FrameIndex) noexcept override { return true; }
  std::byte* parked(FrameIndex frame) const noexcept override {
    return frames_.data() + frame.value * chunk_bytes.value;
  }
  Reach reach() const noexcept override { return {}; }
  Faults* faults() noexcept override { return nullptr; }
  Trackable* trackable() noexcept override { return nullptr; }
  std::string_view mechanism() const noexcept override { return "late"; }

 private:
  Mapping frames_;
  FaultSink on_fault_;
};

TEST(Engine, LeavesAFaultAloneThatIsToldWhileItsMemoryEnds) {
  for (const bool lives : {false, true}) {
    Engine engine(EngineOptions{.chunks = 4,
                                .frames = 4,
                                .chunk_bytes = chunk_bytes,
                                .store = open_host_store(chunk_bytes, 16).value(),
                                .observer = nullptr,
                                .on_message = {}});
    engine.start(std::make_unique<LateMemory>(4, [&engine](const Fault& fault) { engine.fault(fault); }));
    engine.born(at(0)).value();  // chunk 0 is there, and then it is dead
    if (!lives) engine.died(at(0));
  }
}

// Frames come and go beside ops and beside threads that wait, whatever moves them here.
TEST(Engine, ChangesItsBudgetBesideThreadsUnderEveryMechanism) {
  constexpr std::uint32_t chunks = 24, most = 20, rounds = 500;
  for (const Open open : {open_move_memory, open_remap_memory, open_signal_memory}) {
    Rig rig(8, chunks, false, {.open = open, .most_frames = most});
    SCOPED_TRACE(rig.mechanism());
    for (std::uint32_t c = 0; c < chunks; ++c) rig.born(c, c);
    std::atomic<bool> over = false;
    std::atomic<std::uint64_t> reads = 0;
    std::thread reader([&] {  // by faults
      std::mt19937_64 random(1);
      for (; !over; ++reads) {
        const auto c = static_cast<std::uint32_t>(random() % chunks);
        const std::size_t word = random() % words_per_chunk;
        EXPECT_EQ(*const_cast<volatile std::uint64_t*>(rig.words(c) + word), c * 1'000'003 + word);
      }
    });
    std::thread resizer([&] {
      std::mt19937_64 random(2);
      for (std::uint32_t round = 0; round < rounds; ++round) {
        const Bytes asked{(5 + random() % (most - 4)) * chunk_bytes.value};
        const auto got = rig.engine().resize(asked, detail::Executor::Caller::another_thread).value();
        EXPECT_EQ(got.now, asked) << got.holds;
        EXPECT_LE(rig.engine().counters().resident_bytes.value, asked.value);
      }
      over = true;
    });
    std::mt19937_64 random(3);
    while (!over) {
      const auto c = static_cast<std::uint32_t>(random() % (chunks - 1));
      rig.op({at(c, 2)}, {}, [&] { EXPECT_TRUE(rig.holds(c, c) && rig.holds(c + 1, c + 1)); });
    }
    resizer.join();
    reader.join();
    for (std::uint32_t c = 0; c < chunks; ++c) EXPECT_TRUE(rig.holds(c, c)) << c;
    EXPECT_GT(reads, 0u);
  }
}

// The kernel keeps the pages of frames that are registered for I/O, so that none could be given back.
TEST(Engine, EndsTheRegistrationOfItsFramesForAnotherBudget) {
  constexpr std::uint32_t chunks = 16, frames = 8, most = 12;
  auto arena = Mapping::reserve({chunks * chunk_bytes.value}, chunk_bytes).value();
  Engine engine({.chunks = chunks,
                 .frames = frames,
                 .most_frames = most,
                 .chunk_bytes = chunk_bytes,
                 .store = open_nvme_store({.directory = ::testing::TempDir(), .slot_bytes = chunk_bytes}).value(),
                 .habits = LinkHabits{},
                 .on_message = {}});
  engine.start(open_remap_memory({.arena = arena.data(),
                                  .chunks = chunks,
                                  .frames = most,
                                  .made = 2,
                                  .budget = frames,
                                  .chunk_bytes = chunk_bytes,
                                  .on_fault = [&](const Fault& fault) { engine.fault(fault); }})
                   .value());
  const auto words = [&](std::uint32_t c) {
    return reinterpret_cast<std::uint64_t*>(arena.data() + c * chunk_bytes.value);
  };
  if (engine.mechanism().find("registered buffers") == std::string::npos)
    GTEST_SKIP() << "buffers are not registered here: " << engine.mechanism();
  for (std::uint32_t c = 0; c < chunks; ++c) {
    engine.born(at(c)).value();
    std::fill_n(words(c), words_per_chunk, c + 1);
  }
  for (const std::uint32_t wanted : {5u, 12u, 6u}) {
    const auto got = engine.resize({wanted * chunk_bytes.value}, detail::Executor::Caller::between_ops).value();
    EXPECT_EQ(got.now.value, wanted * chunk_bytes.value) << got.holds;
    for (std::uint32_t c = 0; c < chunks; ++c)
      EXPECT_EQ(std::count(words(c), words(c) + words_per_chunk, c + 1), words_per_chunk) << c;
  }
  EXPECT_NE(engine.mechanism().find("not registered any more"), std::string::npos) << engine.mechanism();
}

}  // namespace
}  // namespace vedette::engine_test
