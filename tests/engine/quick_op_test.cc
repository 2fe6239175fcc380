// Ops that begin and end without the engine's lock: only where all is resident, and never so that an operand leaves
// while its op runs.
#include "engine/quick_op.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine/rig.h"

namespace vedette::quick_op_test {
namespace {

using namespace testing;

bool begin_quickly(Rig& rig, std::span<const ChunkRange> operands) {
  return rig.engine().begin_quick_op(1'000'000, {7}, "quick", operands, {});
}

TEST(QuickOp, NeedsAnEngineThatHasNothingToDo) {
  Rig rig;
  const std::vector<ChunkRange> operands{at(0)};
  rig.born(0, 1);
  EXPECT_FALSE(begin_quickly(rig, operands)) << "nothing has looked yet whether all is resident";
  rig.op({at(0)}, {});
  ASSERT_TRUE(begin_quickly(rig, operands));
  EXPECT_TRUE(rig.engine().end_quick_op());
  EXPECT_FALSE(rig.engine().end_quick_op()) << "it has ended";
  rig.evict({at(0)});
  rig.op({}, {});
  EXPECT_FALSE(begin_quickly(rig, operands)) << "an operand is away";
  rig.op({at(0)}, {}, [&] { EXPECT_TRUE(rig.holds(0, 1)); });
  ASSERT_TRUE(begin_quickly(rig, operands));
  EXPECT_TRUE(rig.engine().end_quick_op());
}

TEST(QuickOp, IsCountedAsOthersAre) {
  Rig rig;
  rig.born(0, 1);
  rig.op({at(0)}, {});
  const std::uint64_t before = rig.engine().counters().ops;
  const std::vector<ChunkRange> operands{at(0)};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(begin_quickly(rig, operands));
    EXPECT_TRUE(rig.engine().end_quick_op());
  }
  EXPECT_EQ(rig.engine().counters().ops, before + 3);
}

// Four frames: a birth in the op has to make room, and the operands used longest ago are the op's own.
TEST(QuickOp, KeepsItsOperandsWhenABirthNeedsRoom) {
  Rig rig(4);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  rig.op({at(0, 2)}, {});
  rig.op({at(2, 2)}, {});
  const std::vector<ChunkRange> operands{at(0, 2)};
  ASSERT_TRUE(begin_quickly(rig, operands));
  rig.engine().born(at(4)).value();
  EXPECT_EQ(rig.engine().state({0}), ChunkState::resident);
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  EXPECT_FALSE(rig.engine().end_quick_op()) << "the books know it by now";
  rig.engine().end_op({});
  EXPECT_FALSE(begin_quickly(rig, operands)) << "a chunk is away";
}

TEST(QuickOp, MayEndWithEvictions) {
  Rig rig;
  rig.born(0, 1);
  rig.op({at(0)}, {});
  const std::vector<ChunkRange> operands{at(0)};
  ASSERT_TRUE(begin_quickly(rig, operands));
  const detail::OpMoves::Departure leaves{.chunks = at(0)};
  rig.engine().end_op({&leaves, 1});
  EXPECT_TRUE(eventually([&] { return rig.engine().state({0}) == ChunkState::away; }));
  rig.op({at(0)}, {}, [&] { EXPECT_TRUE(rig.holds(0, 1)); });
}

// One thread runs ops, another gives birth to what has no frames beside all operands, and lets it die again. An op fits
// beside it: one that does not runs paged, and its operands may leave. The scheduler may let one of them wait for long,
// in the middle of a birth, too: they go on until both have done enough.
TEST(QuickOp, KeepsItsOperandsWhateverOtherThreadsDo) {
  constexpr std::uint32_t frames = 8, operands = 4, others = 6;
  Rig rig(frames, operands + others);
  for (std::uint32_t c = 0; c < operands; ++c) rig.born(c, c);
  constexpr int ops = 30'000, births = 200;
  constexpr std::uint64_t quick_ops = 100;
  std::atomic<bool> stop{false};
  std::atomic<int> born{0};
  std::thread other([&] {
    std::minstd_rand random(3);
    while (!stop) {
      const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % others);
      rig.engine().born(at(operands, count)).value();
      for (std::uint32_t c = 0; c < count; ++c) *rig.words(operands + c) = c;
      rig.engine().died(at(operands, count));
      ++born;
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::minstd_rand random(5);
  std::uint64_t quick = 0;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  for (int i = 0; i < ops || quick < quick_ops || born < births; ++i) {
    if (std::chrono::steady_clock::now() > deadline) break;
    const std::vector<ChunkRange> needs{at(static_cast<std::uint32_t>(random() % 3), 2)};
    const bool was_quick = begin_quickly(rig, needs);
    quick += was_quick ? 1u : 0u;
    if (!was_quick) rig.begin(needs, {});
    for (int look = 0; look < 3; ++look)
      for (const ChunkIndex c : needs[0]) {
        EXPECT_EQ(rig.engine().state(c), ChunkState::resident);
        EXPECT_EQ(*rig.words(c.value), c.value * 1'000'003ull);
      }
    if (!rig.engine().end_quick_op()) rig.engine().end_op({});
  }
  stop = true;
  other.join();
  EXPECT_GE(quick, quick_ops);
  EXPECT_GE(born, births);
}

}  // namespace
}  // namespace vedette::quick_op_test
