// Slots of pinned memory: no rounding beyond the alignment, neighbours join, pieces stay apart, the limit holds.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <vector>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::pinned_pool_test {
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
  EXPECT_EQ(pool.usage().registered, 516_KiB) << "two do not fit into a piece";
}

TEST_F(Pool, ManySlotsLeaveATwentiethFree) {
  for (const Bytes size : {100_KiB, 1_MiB + 264_KiB, 7_MiB}) {
    PinnedPool pool(device, {});
    Bytes sum;
    for (int i = 0; i < 200; ++i) {
      static_cast<void>(pool.take(size).value());
      sum += size;
      EXPECT_LE(pool.usage().registered.value, sum.value + sum.value / 20 + (2_MiB).value) << i;
    }
    EXPECT_LE(pool.usage().registered.value, sum.value * 105 / 100) << size.value;
  }
}

TEST_F(Pool, WhatIsExpectedIsOnePieceOfThatSize) {
  PinnedPool pool(device, {});
  const auto asked = [] {
    const auto calls = control().calls();
    const auto found = calls.find("cuMemHostRegister_v2");
    return found == calls.end() ? 0u : found->second;
  };
  const unsigned before = asked();
  pool.expect(9_MiB);
  for (const Bytes size : {5_MiB, 3_MiB, 1_MiB}) static_cast<void>(pool.take(size).value());
  EXPECT_EQ(pool.usage().registered, 9_MiB);
  EXPECT_EQ(asked() - before, 1u);
}

TEST_F(Pool, WhereTheDriverPinsNoMoreThatIsTheLimit) {
  PinnedPool pool(device, {.most = 64_MiB, .piece = 4_MiB});
  std::vector<std::byte*> slots;
  for (int i = 0; i < 4; ++i) slots.push_back(pool.take(2_MiB).value());
  simulated::Options less = options();
  less.lock = std::size_t{8} << 20;
  control().choose(less);
  ASSERT_FALSE(pool.take(2_MiB));
  EXPECT_TRUE(pool.usage().refused);
  EXPECT_EQ(pool.usage().registered, 8_MiB);
  const unsigned asked = control().calls().at("cuMemHostRegister_v2");
  EXPECT_FALSE(pool.take(2_MiB));
  EXPECT_EQ(control().calls().at("cuMemHostRegister_v2"), asked) << "it is not asked again";
  EXPECT_FALSE(pool.regroup(5_MiB)) << "all is taken";
  for (std::byte* const slot : slots) pool.give_back(slot, 1_MiB);
  EXPECT_FALSE(pool.regroup(5_MiB)) << "a half of each piece is taken";
  for (std::byte*& slot : slots) slot = pool.take(1_MiB).value();
  for (std::byte* const slot : slots) pool.give_back(slot, 2_MiB);
  EXPECT_EQ(pool.take_registered(5_MiB), nullptr) << "no piece is so large";
  ASSERT_TRUE(pool.regroup(5_MiB));
  EXPECT_LE(pool.usage().registered, 8_MiB);
  std::byte* const large = pool.take(5_MiB).value();
  large[0] = large[(5 << 20) - 1] = std::byte{1};
}

TEST_F(Pool, ASlotLargerThanAPieceHasAPieceOfItsOwn) {
  PinnedPool pool(device, {.piece = 1_MiB});
  std::byte* const slot = pool.take(5_MiB).value();
  EXPECT_EQ(pool.usage().registered, 5_MiB);
  pool.give_back(slot, 5_MiB);
  EXPECT_EQ(pool.take(4_MiB).value(), slot);
}

// No copy crosses from one allocation of the driver's into another that the kernel has put right behind it.
TEST_F(Pool, HolesOfTwoPiecesThatTouchStayTwo) {
  std::vector<unsigned> order = {0, 1, 2, 3, 4, 5, 6, 7};
  for (unsigned seed = 1; seed <= 8; ++seed) {
    PinnedPool pool(device, {.piece = 1_MiB, .of_driver = true});
    std::vector<std::byte*> slots;
    for (std::size_t i = 0; i < order.size(); ++i) slots.push_back(pool.take(1_MiB).value());
    std::vector<std::byte*> sorted = slots;
    std::sort(sorted.begin(), sorted.end());
    const auto touch = [](const std::byte* a, const std::byte* b) { return a + (1 << 20) == b; };
    if (std::adjacent_find(sorted.begin(), sorted.end(), touch) == sorted.end())
      GTEST_SKIP() << "the kernel puts no two pieces side by side";
    for (const unsigned i : order) pool.give_back(slots[i], 1_MiB);
    EXPECT_EQ(pool.take_registered(1_MiB + 4_KiB), nullptr) << "seed " << seed;
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
  }
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

TEST_F(Pool, WhatIsRegisteredIsTakenWithoutARegistration) {
  PinnedPool pool(device, {.piece = 1_MiB});
  EXPECT_EQ(pool.take_registered(1_MiB), nullptr);
  std::byte* const slot = pool.take(1_MiB).value();
  const unsigned before = control().calls().at("cuMemHostRegister_v2");
  EXPECT_EQ(pool.take_registered(4_KiB), nullptr) << "all of it is taken";
  pool.give_back(slot, 1_MiB);
  EXPECT_EQ(pool.take_registered(1_MiB), slot);
  EXPECT_EQ(control().calls().at("cuMemHostRegister_v2"), before);
}

// A child that fork() makes, as a loader of data does, would get a copy of each pinned page at once.
TEST_F(Pool, AChildOfForkHasNoneOfIt) {
  PinnedPool pool(device, {.piece = 1_MiB});
  std::byte* const slot = pool.take(1_MiB).value();
  slot[0] = std::byte{1};
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char there = 0;
    const bool mapped = ::mincore(slot, 4096, &there) == 0 || errno != ENOMEM;
    ::_exit(mapped ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child has the pinned pages";
  EXPECT_EQ(slot[0], std::byte{1});
}

TEST_F(Pool, WhatCannotBeRegisteredIsTheDriversOwn) {
  PinnedPool pool(device, {.most = 4_MiB, .piece = 1_MiB});
  control().fail("cuMemHostRegister_v2", 1, cuda::error_not_supported);
  std::byte* const slot = pool.take(1_MiB).value();
  EXPECT_TRUE(pool.usage().of_driver);
  const unsigned asked = control().calls().at("cuMemHostRegister_v2");
  slot[0] = slot[(1 << 20) - 1] = std::byte{1};
  const auto range = cuda::DeviceRange::make(device, {.bytes = 2_MiB}).value();
  const auto stream = cuda::Stream::create(device).value();
  device->copy(stream.handle(), range.address(), address_of(slot), 1_MiB).value();
  stream.synchronize().value();
  pool.give_back(slot, 1_MiB);
  EXPECT_EQ(pool.take(1_MiB).value(), slot);
  static_cast<void>(pool.take(3_MiB).value());
  EXPECT_FALSE(pool.take(4_KiB)) << "the limit is the same";
  EXPECT_EQ(control().calls().at("cuMemHostRegister_v2"), asked) << "asked once";
  control().fail_none();
}

TEST_F(Pool, WhatNoCallPinsIsASentence) {
  PinnedPool pool(device, {.piece = 1_MiB});
  for (const int registering : {cuda::error_not_supported, cuda::error_out_of_memory}) {
    control().fail("cuMemHostRegister_v2", 1, registering);
    control().fail("cuMemHostAlloc", 1, cuda::error_out_of_memory);
    const auto refused = pool.take(1_MiB);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().cause, Cause::out_of_memory);
    EXPECT_EQ(refused.error().message,
              "pinning 1.0 MiB of host memory failed with CUDA_ERROR_OUT_OF_MEMORY; free memory of the host, or give "
              "it less to hold: a limit (\"host:SIZE\"), or a disk below it (\"host:SIZE+nvme:DIRECTORY\")");
    control().fail_none();
  }
}

TEST_F(Pool, ItsPagesPreferTheNodeOfTheDevice) {
  const auto node = device->numa_node();
  ASSERT_TRUE(node.has_value());
  PinnedPool pool(device, {.piece = 1_MiB});
  std::byte* const slot = pool.take(1_MiB).value();
  int policy = -1;
  unsigned long nodes[16] = {};
  constexpr int of_address = 2, preferred = 1;  // MPOL_F_ADDR, MPOL_PREFERRED
  if (::syscall(SYS_get_mempolicy, &policy, nodes, sizeof nodes * 8, slot, of_address) != 0)
    GTEST_SKIP() << "this kernel tells no policy of memory: " << std::strerror(errno);
  EXPECT_EQ(policy, preferred);
  EXPECT_EQ(nodes[0], 1ul << *node);
  EXPECT_TRUE(pool.usage().on_nearest_node);
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
}  // namespace vedette::testing::pinned_pool_test
