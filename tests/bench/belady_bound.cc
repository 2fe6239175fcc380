// Belady's bytes, against answers worked out by hand (they stand beside each case).
#include "belady_bound.h"

#include <gtest/gtest.h>

#include "support/generate_trace.h"

namespace vedette::bench::belady_bound_test {
namespace {

// Weights a, b, c of 10 bytes, each read by one op.
Trace three_weights() {
  return {.tensors = {{.name = "a", .bytes = {10}, .persistent = true},
                      {.name = "b", .bytes = {10}, .persistent = true},
                      {.name = "c", .bytes = {10}, .persistent = true}},
          .ops = {{.name = "f", .reads = {{0}}}, {.name = "g", .reads = {{1}}}, {.name = "h", .reads = {{2}}}}};
}

TEST(BeladyBound, IsNothingWhereEverythingFits) { EXPECT_EQ(belady_bound(three_weights(), {30}), BeladyBound{}); }

// Room for two of three, read in a cycle: Belady keeps one for the next step and misses every second read. 3 misses in
// 2 steps are 15 bytes a step; in fractions the same, because each victim leaves whole.
TEST(BeladyBound, ReadsWhatACycleOfReadsMustReadAndWritesNothing) {
  EXPECT_EQ(belady_bound(three_weights(), {20}, BeladyUnit::tensors), (BeladyBound{.read = {15}}));
  EXPECT_EQ(belady_bound(three_weights(), {20}, BeladyUnit::bytes), (BeladyBound{.read = {15}}));
}

// Room for one: each op reads its own.
TEST(BeladyBound, ReadsEverythingWhereNothingCanStay) {
  EXPECT_EQ(belady_bound(three_weights(), {10}, BeladyUnit::tensors), (BeladyBound{.read = {30}}));
}

// Room for one, and each op changes its weight: read 30 and write 30.
TEST(BeladyBound, WritesWhatWasChanged) {
  Trace trace = three_weights();
  for (std::uint32_t i = 0; i < 3; ++i) trace.ops[i].writes = {{i}};
  EXPECT_EQ(belady_bound(trace, {10}, BeladyUnit::tensors), (BeladyBound{.read = {30}, .written = {30}}));
  EXPECT_EQ(belady_bound(trace, {10}, BeladyUnit::bytes), (BeladyBound{.read = {30}, .written = {30}}));
}

// As above, but the weights are replaced, not read: nothing needs to move.
TEST(BeladyBound, MovesNothingThatIsReplacedUnread) {
  Trace trace = three_weights();
  for (std::uint32_t i = 0; i < 3; ++i) {
    trace.ops[i].reads.clear();
    trace.ops[i].writes = {{i}};
  }
  EXPECT_EQ(belady_bound(trace, {10}), BeladyBound{});
}

// x (10) is born, y (10) is born, x is read: with room for 15 x must make room for y and come back. Whole: write 10,
// read 10. In fractions: 5 bytes of x leave, and come back when y (dead by then) is gone: write 5, read 5.
Trace born_and_back() {
  return {.tensors = {{.name = "x", .bytes = {10}}, {.name = "y", .bytes = {10}}},
          .ops = {{.name = "f", .writes = {{0}}}, {.name = "g", .writes = {{1}}}, {.name = "h", .reads = {{0}}}}};
}
TEST(BeladyBound, MovesWholeTensorsOrOnlyWhatIsNeeded) {
  EXPECT_EQ(belady_bound(born_and_back(), {15}, BeladyUnit::tensors), (BeladyBound{.read = {10}, .written = {10}}));
  EXPECT_EQ(belady_bound(born_and_back(), {15}, BeladyUnit::bytes), (BeladyBound{.read = {5}, .written = {5}}));
  EXPECT_EQ(belady_bound(born_and_back(), {15}), (BeladyBound{.read = {5}, .written = {5}}));
}

TEST(BeladyBound, GivesRoomToWorkspace) {
  Trace trace = born_and_back();
  trace.ops[1].writes.clear();
  trace.ops[1].workspace = {7};
  EXPECT_EQ(belady_bound(trace, {15}, BeladyUnit::bytes), (BeladyBound{.read = {2}, .written = {2}}));
}

// The dead cost nothing: y is dead at once, x is freed only by the last op and read no more.
TEST(BeladyBound, MovesNothingThatIsDeadOrReadNoMore) {
  Trace trace = born_and_back();
  trace.ops[2].reads.clear();
  trace.ops[2].frees = {{0}, {1}};
  EXPECT_EQ(belady_bound(trace, {10}), BeladyBound{});
}

// Furthest first: w (10) is next needed by op 3, v (10) by op 2, so w leaves for x (10), which is born at op 1 and dies
// there. Both are clean: w comes back at op 3, and since v is needed at op 2 of the next step again, nothing else
// moves.
TEST(BeladyBound, LetsGoWhatIsNeededLast) {
  const Trace trace{.tensors = {{.name = "w", .bytes = {10}, .persistent = true},
                                {.name = "v", .bytes = {10}, .persistent = true},
                                {.name = "x", .bytes = {10}}},
                    .ops = {{.name = "f", .reads = {{0}}},
                            {.name = "g", .writes = {{2}}},
                            {.name = "h", .reads = {{1}}},
                            {.name = "i", .reads = {{0}}}}};
  EXPECT_EQ(belady_bound(trace, {20}, BeladyUnit::tensors), (BeladyBound{.read = {10}}));
}

TEST(BeladyBound, RefusesAnOpThatDoesNotFit) {
  EXPECT_EQ(belady_bound(three_weights(), {9}), std::nullopt);
  EXPECT_EQ(belady_bound(three_weights(), {9}, BeladyUnit::bytes), std::nullopt);
}

TEST(BeladyBound, NeverGrowsMuchWithMemoryAndEndsAtNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Trace trace = testing::generate_trace(seed, testing::random_shape(seed));
    const std::uint64_t least = largest_op_bytes(trace).value, most = peak_bytes(trace).value;
    EXPECT_EQ(belady_bound(trace, {most}), BeladyBound{}) << "seed " << seed;
    const BeladyBound small = belady_bound(trace, {least}).value(),
                      large = belady_bound(trace, {least + (most - least) * 3 / 4}).value();
    EXPECT_LE(large.read + large.written, small.read + small.written) << "seed " << seed;
  }
}

}  // namespace
}  // namespace vedette::bench::belady_bound_test
