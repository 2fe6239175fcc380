// What keeps logs and traces small: packed traces come out as they went in, lists of operands are as vectors.
#include "pack/packed_trace.h"

#include <gtest/gtest.h>

#include <random>

#include "pack/operand_list.h"
#include "support/generate_trace.h"

namespace vedette::packed_trace_test {
namespace {

TEST(PackedTrace, UnpacksToTheSameTrace) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace = testing::generate_trace(seed, testing::random_shape(seed));
    for (std::size_t i = 0; i < trace.ops.size(); ++i) trace.ops[i].workspace = {i * 4096};
    if (!trace.tensors.empty() && !trace.ops.empty())
      trace.pages.push_back({.op = {0}, .tensor = {0}, .pages = {0, 1}, .read = true, .written = false});
    EXPECT_EQ(PackedTrace(trace).unpack(), trace);
  }
  EXPECT_EQ(PackedTrace(Trace{}).unpack(), Trace{});
}

TEST(OperandList, IsAsAVector) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> expected;
    OperandList list;
    for (int i = static_cast<int>(random() % 20); i > 0; --i) {
      expected.push_back(static_cast<std::uint32_t>(random() % 10));
      list.push_back(expected.back());
      EXPECT_EQ(list.back(), expected.back());
    }
    const OperandList copy = list;
    OperandList moved = std::move(list);
    EXPECT_EQ(moved, copy);
    EXPECT_EQ(moved, OperandList(expected));
    EXPECT_EQ(std::vector<std::uint32_t>(moved.begin(), moved.end()), expected);
    EXPECT_EQ(moved.contains(3), std::find(expected.begin(), expected.end(), 3u) != expected.end());
    moved.erase_if([](std::uint32_t t) { return t % 3 == 0; });
    std::erase_if(expected, [](std::uint32_t t) { return t % 3 == 0; });
    EXPECT_EQ(moved, OperandList(expected));
    list = moved;
    list = std::move(moved);
    EXPECT_EQ(list.size(), expected.size());
    EXPECT_EQ(copy == list, copy.size() == list.size());
  }
}

}  // namespace
}  // namespace vedette::packed_trace_test
