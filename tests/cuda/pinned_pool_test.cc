// Slots of pinned memory: no rounding beyond the alignment, neighbours join, pieces stay apart, the limit holds.
#include <gmock/gmock.h>

#include <random>

#include "simulated_gpu/test_device.h"

namespace vedette::testing {
namespace {

using cuda::PinnedPool;

class Pool : public SimulatedGpu {
 protected:
  std::shared_ptr<cuda::Device> device = open_device();
  void TearDown() override {
    device.reset();
    SimulatedGpu::TearDown();
  }
};

TEST_F(Pool, ASizeIsRoundedToTheAlignmentAlone) {
  PinnedPool pool(device, {.piece = 1_MiB});
  static_cast<void>(pool.take({(513 << 10) + 1}).value());
  EXPECT_EQ(pool.usage().taken.value, Bytes{516 << 10}.value);
  static_cast<void>(pool.take(508_KiB).value());
  EXPECT_EQ(pool.usage().registered, 1_MiB) << "both fit into one piece";
}

TEST_F(Pool, ASlotLargerThanAPieceHasAPieceOfItsOwn) {
  PinnedPool pool(device, {.piece = 1_MiB});
  std::byte* const slot = pool.take(5_MiB).value();
  EXPECT_EQ(pool.usage().registered, 5_MiB);
  pool.give_back(slot, 5_MiB);
  EXPECT_EQ(pool.take(4_MiB).value(), slot);
}

TEST_F(Pool, TheLimitHoldsAndIsASentence) {
  PinnedPool pool(device, {.most = 3_MiB, .piece = 2_MiB});
  static_cast<void>(pool.take(2_MiB).value());
  static_cast<void>(pool.take(1_MiB).value());
  const auto refused = pool.take(4_KiB);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("raise the host's budget"));
  EXPECT_EQ(pool.usage().registered, 3_MiB);
}

TEST_F(Pool, WhatWasPreparedIsNotRegisteredInAStep) {
  PinnedPool pool(device, {.piece = 1_MiB});
  pool.prepare(3_MiB).value();
  const unsigned before = control().calls().at("cuMemHostRegister_v2");
  for (int i = 0; i < 3; ++i) static_cast<void>(pool.take(1_MiB).value());
  EXPECT_EQ(control().calls().at("cuMemHostRegister_v2"), before);
}

TEST_F(Pool, SlotsNeverOverlapAndAllMemoryComesBack) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    PinnedPool pool(device, {.piece = 1_MiB});
    std::map<std::byte*, Bytes> taken;
    for (int i = 0; i < 400; ++i) {
      if (random() % 2 == 0 && !taken.empty()) {
        const auto slot = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
        pool.give_back(slot->first, slot->second);
        taken.erase(slot);
        continue;
      }
      const Bytes bytes{1 + random() % (random() % 16 == 0 ? 3u << 20 : 200u << 10)};
      std::byte* const slot = pool.take(bytes).value();
      const auto next = taken.lower_bound(slot);
      if (next != taken.end()) {
        ASSERT_LE(slot + bytes.value, next->first) << "seed " << seed;
      }
      if (next != taken.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second.value, slot) << "seed " << seed;
      }
      slot[0] = slot[bytes.value - 1] = std::byte{1};
      taken.emplace(slot, bytes);
    }
    for (const auto& [slot, bytes] : taken) pool.give_back(slot, bytes);
    EXPECT_EQ(pool.usage().taken.value, 0u);
    const Bytes registered = pool.usage().registered;
    // Whole again: a slot of every piece's size needs no new piece.
    static_cast<void>(pool.take(1_MiB).value());
    EXPECT_EQ(pool.usage().registered, registered);
  }
}

}  // namespace
}  // namespace vedette::testing
