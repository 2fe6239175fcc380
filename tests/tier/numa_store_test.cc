// A store in the memory of one NUMA node: its slots lie there, and one that is full says so and keeps what it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "base/mapping.h"
#include "support/two_nodes.h"
#include "tier/store.h"

namespace vedette::numa_store_test {
namespace {

using namespace vedette::testing;
using ::testing::HasSubstr;
using Direction = StoreRequest::Direction;

constexpr Bytes slot = 64_KiB;
constexpr std::uint32_t depth = 4, large = 1 << 20;

int transfer(Store& store, Direction direction, std::uint32_t index, std::byte* memory) {
  const StoreRequest request{.direction = direction, .slot = {index}, .memory = memory, .token = index};
  store.submit({&request, 1});
  StoreCompletion done{.token = ~std::uint64_t{0}, .error = -1};
  return store.wait({&done, 1}, {1'000'000'000}) == 1 && done.token == index ? done.error : -1;
}

// Slots hold bytes of their own: every one, or of many the `stride`-th.
bool keeps_its_bytes(Store& store, std::uint32_t slots, std::uint32_t stride = 1) {
  const Mapping memory = Mapping::reserve(slot, 2_MiB).value();
  const auto mark = [](std::uint32_t s) { return static_cast<std::byte>(s * 7 % 251); };
  for (std::uint32_t s = 0; s < slots; s += stride) {
    std::fill_n(memory.data(), slot.value, mark(s));
    if (transfer(store, Direction::write, s, memory.data()) != 0) return false;
  }
  for (std::uint32_t s = 0; s < slots; s += stride) {
    if (transfer(store, Direction::read, s, memory.data()) != 0) return false;
    if (std::count(memory.data(), memory.data() + slot.value, mark(s)) != static_cast<std::ptrdiff_t>(slot.value))
      return false;
  }
  return true;
}

std::size_t bound_pages(NodeIndex node) {
  const auto pages = pages_with_policy("bind:" + std::to_string(node.value));
  const auto here = pages.find(static_cast<int>(node.value));
  return here == pages.end() ? 0 : here->second;
}

TEST(NumaStore, ItsSlotsAreThereBoundAndGivenBack) {
  const NodeIndex node = far_node().value_or(near_node);
  const auto store = open_numa_store(slot, depth, node, 1000).value();
  if (const auto room = store->reserve(70); !room) GTEST_SKIP() << room.error().message;
  EXPECT_TRUE(keeps_its_bytes(*store, 70));
  const std::size_t pages_of_a_piece = node_piece.value / 4096, all = bound_pages(node);
  EXPECT_EQ(all, 3 * pages_of_a_piece) << "70 slots of 64 KiB are two pieces and a part, there before any write";
  store->shrink(10);
  EXPECT_EQ(bound_pages(node), pages_of_a_piece);
  ASSERT_TRUE(store->reserve(128));
  EXPECT_EQ(bound_pages(node), 4 * pages_of_a_piece);
  EXPECT_TRUE(keeps_its_bytes(*store, 128));
  store->shrink(0);
  EXPECT_EQ(bound_pages(node), 0u);
}

TEST(NumaStore, ANodeThatIsNotThereIsRefusedWithTheRemedy) {
  const auto none = open_numa_store(slot, depth, {1023}, 8).value()->reserve(8);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("asking for memory of NUMA node 1023: "));
}

TEST(NumaStore, HasNoRoomBeyondItsBound) {
  const auto store = open_numa_store(slot, depth, near_node, 70).value();
  const auto refused = store->reserve(71);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the slow tier on NUMA node 0 of 4.4 MiB"));
}

TEST(NumaStore, AFullNodeIsOneSentenceAndItsSlotsStay) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  if (!may_be_filled(*far)) GTEST_SKIP() << "NUMA node " << far->value << " is large, and the test would fill it";
  EXPECT_TRUE(in_a_child([&] {
    const auto store = open_numa_store(slot, depth, *far, large).value();
    std::uint32_t slots = 0;
    Result<void> room;
    for (; slots < large; slots += 64)
      if (room = store->reserve(slots + 64); !room) break;
    std::printf("%s\n", room ? "all were there" : room.error().message.c_str());
    std::fflush(stdout);
    if (room || room.error().cause != Cause::out_of_memory || room.error().errno_value != 0) return false;
    const std::string node = std::to_string(far->value);
    if (room.error().message.find("NUMA node " + node + " has no more memory free: the slow tier has ") != 0)
      return false;
    if (slots < 64 || !store->reserve(slots) || !keeps_its_bytes(*store, slots, 101)) return false;
    const auto pages = pages_with_policy("bind:" + node);
    if (pages.size() != 1 || !pages.contains(static_cast<int>(far->value))) return false;
    store->shrink(64);
    return free_of(*far).value > slots / 2 * slot.value && store->reserve(slots) && keeps_its_bytes(*store, slots, 101);
  }));
}

// The near level has as much as the node gives, and the far one the rest.
TEST(NumaStore, OverAnotherStoreAFullNodeIsNoFault) {
  const auto far = far_node();
  if (!far) GTEST_SKIP() << "this machine has one NUMA node";
  if (!may_be_filled(*far)) GTEST_SKIP() << "NUMA node " << far->value << " is large, and the test would fill it";
  EXPECT_TRUE(in_a_child([&] {
    const Hog other(*far, 32_MiB);  // more than the kernel's watermarks rise by where memory is fragmented
    constexpr std::uint32_t near_slots = 1000;
    constexpr std::uint32_t inner = depth + layered_extra_depth;
    auto near = open_numa_store(slot, inner, *far, near_slots).value();
    const auto store = layered(std::move(near), near_slots, open_host_store(slot, inner).value()).value();
    if (!store->reserve(near_slots)) return false;
    const std::size_t pages = bound_pages(*far);
    std::printf("%zu MiB lie in the node\n", pages >> 8);
    std::fflush(stdout);
    const bool right = pages > 0 && pages < near_slots * slot.value / 4096 && keeps_its_bytes(*store, near_slots, 7);
    store->finish();
    return right;
  }));
}

}  // namespace
}  // namespace vedette::numa_store_test
