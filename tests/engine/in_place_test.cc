// Operands that ops use where they lie, over each way to show memory: no frame is taken, no byte copied, none lost.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine/rig.h"

namespace vedette::in_place_test {
namespace {

using namespace testing;

constexpr std::uint64_t one = chunk_bytes.value;

struct Way {
  const char* name;
  Open open;
  bool over_another_tier = false;
};

// Slots over those of a further tier, from which nothing is lent. All fit into the nearer one, unless the test says so.
std::unique_ptr<Store> in_two_tiers(std::uint32_t near_slots) {
  constexpr std::uint32_t depth = 16 + layered_extra_depth;
  return layered(open_host_store(chunk_bytes, depth, near_slots).value(), near_slots,
                 open_host_store(chunk_bytes, depth).value())
      .value();
}

class InPlaceTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    const Mapping arena = Mapping::reserve({4 * one}, chunk_bytes).value();
    const auto memory = GetParam().open(
        {.arena = arena.data(), .chunks = 4, .frames = 2, .chunk_bytes = chunk_bytes, .on_fault = [](const Fault&) {}});
    if (!memory) GTEST_SKIP() << memory.error().message;
  }
  Rig rig_of(std::uint32_t frames, std::uint32_t chunks = 16, std::uint32_t near_slots = 64) {
    return Rig(frames, chunks, false,
               {.open = GetParam().open, .store = GetParam().over_another_tier ? in_two_tiers(near_slots) : nullptr});
  }
  static Rig::Around there(std::vector<ChunkRange> ranges) {
    Rig::Around around;
    for (const ChunkRange range : ranges) around.in_place.push_back({.chunks = range, .read = true, .written = true});
    return around;
  }
  static Rig::Around fetching(ChunkRange range, bool unchanged = false) {
    return {.fetches = {{.chunks = range, .unchanged = unchanged}}, .evictions = {}, .next_uses = {}};
  }
};

TEST_P(InPlaceTest, AnOpUsesWhatIsAwayWithoutAFrameAndWithoutACopy) {
  Rig rig = rig_of(4);
  ASSERT_TRUE(rig.engine().traits().lends);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  const Counters before = rig.engine().counters();
  rig.op({at(0, 4)}, there({at(0, 2)}), [&] {
    EXPECT_EQ(rig.engine().state({0}), ChunkState::in_place);
    for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c));
    rig.fill(0, 10);
  });
  Counters after = rig.engine().counters();
  EXPECT_EQ(after.resident_bytes.value, before.resident_bytes.value);
  EXPECT_EQ(after.bytes_in_place.value, 2 * one);
  EXPECT_EQ(after.bytes_in.value, before.bytes_in.value);
  EXPECT_EQ(after.faults, 0u);
  rig.op({at(0)}, {}, [&] { EXPECT_TRUE(rig.holds(0, 10)) << "it stays there until it is fetched"; });
  rig.op({}, fetching(at(0)));
  ASSERT_TRUE(eventually([&] { return rig.here(0); }));
  rig.op({at(0, 2)}, {}, [&] {
    EXPECT_EQ(rig.engine().state({0}), ChunkState::resident);
    EXPECT_EQ(rig.engine().state({1}), ChunkState::in_place);
    EXPECT_TRUE(rig.holds(0, 10));
    EXPECT_TRUE(rig.holds(1, 1));
  });
  after = rig.engine().counters();
  EXPECT_EQ(after.bytes_in.value - before.bytes_in.value, one);
  EXPECT_EQ(after.faults, 0u);
}

TEST_P(InPlaceTest, AnOpMayUseMoreThanFastMemoryHas) {
  Rig rig = rig_of(4);
  for (std::uint32_t c = 0; c < 12; ++c) {
    rig.born(c, c);
    if (c < 9) rig.evict({at(c)});
  }
  for (int round = 0; round < 3; ++round)
    rig.op({at(0, 12)}, there({at(0, 9)}), [&] {
      for (std::uint32_t c = 0; c < 12; ++c) EXPECT_TRUE(rig.holds(c, c));
    });
  EXPECT_TRUE(rig.messages.empty()) << rig.messages.front();
  EXPECT_LE(rig.engine().counters().resident_max_bytes.value, 4 * one);
  EXPECT_EQ(rig.engine().counters().faults, 0u);
}

TEST_P(InPlaceTest, ItLeavesThePlaceWhereNoPlanIsFollowedAndWhereItIsHeld) {
  Rig rig = rig_of(6);
  for (std::uint32_t c = 0; c < 2; ++c) rig.born(c, c);
  rig.evict({at(0, 2)});
  rig.op({}, there({at(0, 2)}), [&] { rig.fill(0, 10); });
  rig.engine().hold(at(1)).value();
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  rig.engine().release_hold(at(1));
  rig.engine().forget_plan();
  EXPECT_EQ(rig.engine().state({0}), ChunkState::away);
  EXPECT_TRUE(rig.holds(0, 10));
  EXPECT_TRUE(rig.holds(1, 1));
  EXPECT_EQ(rig.engine().counters().faults, 1u);
}

TEST_P(InPlaceTest, AFetchWaitsForTheOpThatUsesItsChunkInPlace) {
  Rig rig = rig_of(4);
  rig.born(0, 0);
  rig.evict({at(0)});
  Rig::Around both = there({at(0)});
  both.fetches = {{.chunks = at(0)}};
  rig.op({}, both, [&] {
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(rig.engine().state({0}), ChunkState::in_place);
    rig.fill(0, 10);
  });
  EXPECT_TRUE(eventually([&] { return rig.here(0); }));
  EXPECT_TRUE(rig.holds(0, 10));
}

TEST_P(InPlaceTest, WhatDiesThereGivesItsPlaceToAnother) {
  Rig rig = rig_of(2, 8);
  for (std::uint32_t round = 0; round < 40; ++round) {
    const std::uint32_t c = round % 4;
    rig.born(c, round);
    rig.evict({at(c)});
    rig.op({}, there({at(c)}), [&] { EXPECT_TRUE(rig.holds(c, round)); });
    rig.engine().died(at(c));
    EXPECT_EQ(rig.engine().state({c}), ChunkState::empty);
  }
}

// The store knows a slot by its bytes' hash, and spares writes of the same.
TEST_P(InPlaceTest, WhatWasChangedThereIsWrittenWhenItLeaves) {
  Rig rig = rig_of(4);
  rig.born(0, 7);
  rig.evict({at(0)});
  rig.op({}, fetching(at(0), true));
  rig.op({at(0)}, {}, [&] { EXPECT_TRUE(rig.holds(0, 7)); });
  rig.evict({at(0)});
  rig.op({}, there({at(0)}), [&] { rig.fill(0, 8); });
  rig.op({}, fetching(at(0), true));
  ASSERT_TRUE(eventually([&] { return rig.here(0); }));
  rig.op({at(0)}, {}, [&] {
    EXPECT_TRUE(rig.holds(0, 8));
    rig.fill(0, 7);
  });
  rig.evict({at(0)});
  EXPECT_TRUE(rig.holds(0, 7));
}

// Another thread counts in a word of it all the time, wherever it lies.
TEST_P(InPlaceTest, GoingAndComingIsAtomicForOtherThreads) {
  Rig rig = rig_of(4);
  rig.born(0, 0);
  rig.words(0)[5] = 0;
  std::atomic<bool> ends = false;
  std::uint64_t counted = 0;
  std::jthread counter([&] {
    while (!ends) std::atomic_ref(rig.words(0)[5]).fetch_add(1, std::memory_order_relaxed), ++counted;
  });
  for (int round = 0; round < 100; ++round) {
    rig.op({}, {.fetches = {}, .evictions = {at(0)}, .next_uses = {}});
    rig.op({}, there({at(0)}));
    rig.op({}, fetching(at(0)));
  }
  ends = true;
  counter.join();
  EXPECT_EQ(rig.words(0)[5], counted);
}

TEST_P(InPlaceTest, RandomProgramsKeepTheirBytes) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    Rig rig = rig_of(5, 12, 3 + seed);
    std::vector<std::optional<std::uint64_t>> marks(12);
    for (std::uint32_t number = 0; number < 200; ++number) {
      Rig::Around around;
      std::vector<ChunkRange> operands;
      for (std::uint32_t c = 0; c < 12; ++c) {
        if (!marks[c]) continue;
        const std::uint32_t drawn = below(8);
        if (drawn == 0) around.fetches.push_back({.chunks = at(c), .unchanged = below(2) == 0});
        if (drawn == 1) around.evictions.push_back(at(c));
        if (drawn <= 3 && below(2) == 0 && operands.size() < 4) operands.push_back(at(c));
        if (drawn == 4 || drawn == 5) around.in_place.push_back({.chunks = at(c)}), operands.push_back(at(c));
      }
      rig.op(operands, around, [&] {
        for (const ChunkRange range : operands) {
          const std::uint32_t c = range.first().value;
          EXPECT_TRUE(rig.holds(c, *marks[c])) << "chunk " << c << " in op " << number;
          if (below(2) == 0) rig.fill(c, *(marks[c] = number + 100));
        }
      });
      const std::uint32_t c = below(12);
      if (!marks[c])
        rig.born(c, *(marks[c] = number));
      else if (below(4) == 0)
        rig.engine().died(at(c)), marks[c].reset();
      if (below(20) == 0) rig.engine().forget_plan();
    }
    EXPECT_LE(rig.engine().counters().resident_max_bytes.value, 5 * one);
    EXPECT_GT(rig.engine().counters().bytes_in_place.value, 0u);
  }
}

// What the further tier has comes to the op that the plan lets use it in place, and leaves behind it for the nearer
// one.
TEST_P(InPlaceTest, WhatIsNotThereGoesThere) {
  Rig rig = rig_of(4);
  rig.born(0, 7);
  rig.born(1, 8);
  rig.begin({at(0)}, {});
  const std::vector<detail::OpMoves::Departure> far{{.chunks = at(0), .target = {2}}};
  rig.engine().end_op(far);
  ASSERT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::away; }));
  const bool further = GetParam().over_another_tier;
  const auto in_place = [&](std::uint32_t c) { return rig.engine().state({c}) == ChunkState::in_place; };
  const auto gone = [&](std::uint32_t c) { return rig.engine().state({c}) == ChunkState::away || in_place(c); };
  for (const bool again : {false, true}) {
    rig.op({at(0, 2)}, there({at(0, 2)}), [&] {
      EXPECT_EQ(in_place(0), again || !further);
      EXPECT_EQ(in_place(1), again) << "it was in fast memory";
      for (const std::uint32_t c : {0u, 1u}) {
        EXPECT_TRUE(rig.holds(c, c + 7));
        rig.fill(c, c + 7);
      }
    });
    EXPECT_TRUE(eventually([&] { return gone(0) && gone(1); }));
  }
  EXPECT_EQ(rig.engine().counters().faults, 0u);
  EXPECT_EQ(rig.engine().counters().far_bytes_out.value, further ? one : 0u);
}

INSTANTIATE_TEST_SUITE_P(Memories, InPlaceTest,
                         ::testing::Values(Way{"move", open_move_memory}, Way{"remap", open_remap_memory},
                                           Way{"signal", open_signal_memory},
                                           Way{"move_over_another_tier", open_move_memory, true}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace vedette::in_place_test
