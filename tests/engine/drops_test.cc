// Chunks whose bytes are dropped: they cost no transfer, and whoever needs one waits until its owner has made it again.
#include <atomic>
#include <mutex>
#include <thread>

#include "engine/rig.h"

namespace vedette::drops_test {
namespace {

using namespace testing;

// Makes dropped chunks again in scratch chunks, on a thread of its own, when they are wanted.
class Owner {
 public:
  Owner(Rig& rig, std::uint32_t scratch) : rig_(rig), scratch_(scratch) {
    rig_.on_dropped_wanted = [this](ChunkIndex c) { wanted_ = c.value; };
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (const std::uint32_t c = wanted_.exchange(none); c != none) make(c);
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  void make(std::uint32_t c) {
    rig_.engine().born(at(scratch_)).value();
    rig_.engine().hold(at(scratch_)).value();
    rig_.fill(scratch_, c);
    while (!rig_.engine().scratch()->adopt({scratch_}, {c})) std::this_thread::sleep_for(1ms);
    rig_.engine().release_hold(at(scratch_));
    rig_.engine().died(at(scratch_));
    ++made;
  }
  std::atomic<int> made = 0;

 private:
  static constexpr std::uint32_t none = ~0u;
  Rig& rig_;
  const std::uint32_t scratch_;
  std::atomic<std::uint32_t> wanted_ = none;
  std::jthread thread_;
};

TEST(Drops, ADroppedChunkCostsNoTransferAndItsFrameIsFree) {
  Rig rig(6, 16);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  EXPECT_EQ(rig.engine().scratch()->drop_chunks(at(0, 3)), (std::vector<ChunkIndex>{{0}, {1}, {2}}));
  for (std::uint32_t c = 4; c < 9; ++c) rig.born(c, c);  // all six frames
  EXPECT_EQ(rig.engine().counters().bytes_out.value, 0u);
  EXPECT_TRUE(rig.engine().scratch()->is_dropped({1}));
}

TEST(Drops, WhatIsHeldOrAnOperandStays) {
  Rig rig(8, 16);
  rig.born(0, 0);
  rig.born(1, 1);
  rig.engine().hold(at(0)).value();
  rig.begin({at(1)}, {});
  EXPECT_TRUE(rig.engine().scratch()->drop_chunks(at(0, 2)).empty());
  rig.engine().end_op({});
  EXPECT_EQ(rig.engine().scratch()->drop_chunks(at(0, 2)).size(), 1u);
  rig.engine().release_hold(at(0));
}

TEST(Drops, AFaultAnOpAHoldAndABirthWaitUntilItsOwnerHasMadeItAgain) {
  Rig rig(8, 16);
  Owner owner(rig, 15);
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c);
  ASSERT_EQ(rig.engine().scratch()->drop_chunks(at(0, 4)).size(), 4u);
  std::thread([&] { EXPECT_TRUE(rig.holds(0, 0)); }).join();
  rig.op({at(1)}, {}, [&] { EXPECT_TRUE(rig.holds(1, 1)); });
  rig.engine().hold(at(2)).value();
  EXPECT_TRUE(rig.holds(2, 2));
  rig.engine().release_hold(at(2));
  rig.engine().born(at(3)).value();
  EXPECT_TRUE(rig.holds(3, 3));
  EXPECT_TRUE(eventually([&] { return owner.made == 4; }));
}

TEST(Drops, ADroppedChunkMayDieAndBeBornAgain) {
  Rig rig;
  rig.born(0, 0);
  rig.engine().scratch()->drop_chunks(at(0));
  rig.engine().died(at(0));
  EXPECT_EQ(rig.engine().state({0}), ChunkState::empty);
  rig.born(0, 7);
  EXPECT_TRUE(rig.holds(0, 7));
}

// It was evicted once and brought back: the slot's bytes are old, and must not come again.
TEST(Drops, TheSlotOfADroppedChunkIsNotItsBytes) {
  Rig rig(8, 16);
  Owner owner(rig, 15);
  rig.born(0, 99);
  rig.evict({at(0)});
  rig.op({at(0)}, {}, [&] { rig.fill(0, 0); });
  ASSERT_EQ(rig.engine().scratch()->drop_chunks(at(0)).size(), 1u);
  EXPECT_TRUE(rig.holds(0, 0));
  EXPECT_TRUE(eventually([&] { return owner.made == 1; }));
  rig.evict({at(0)});
  EXPECT_TRUE(rig.holds(0, 0));
}

}  // namespace
}  // namespace vedette::drops_test
