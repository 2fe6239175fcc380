// Which fetches bring bytes that leave again as they came.
#include "moves/unchanged.h"

#include <gtest/gtest.h>

namespace vedette::unchanged_test {
namespace {

constexpr TensorIndex weight{0};

// One tensor, and ops of which some read and some write it.
Trace trace_of(std::string_view uses) {
  Trace trace;
  trace.tensors = {{.name = "weight", .bytes = 8_KiB, .kind = TensorKind::weight, .persistent = true}};
  for (const char use : uses) {
    Op op;
    if (use == 'r' || use == 'b') op.reads = {weight};
    if (use == 'w' || use == 'b') op.writes = {weight};
    trace.ops.push_back(op);
  }
  return trace;
}

Move fetch(std::uint32_t due, Extent extent = {.tensor = weight, .part = {}}) {
  return {.issue = {due}, .due = {due}, .extent = extent, .source = {1}, .target = {0}, .verb = Verb::fetch};
}
Move evict(std::uint32_t issue, Extent extent = {.tensor = weight, .part = {}}) {
  return {.issue = {issue}, .due = {issue + 1}, .extent = extent, .source = {0}, .target = {1}, .verb = Verb::evict};
}

std::vector<char> unchanged(const Trace& trace, std::vector<Move> moves) {
  Plan plan;
  plan.moves = std::move(moves);
  return unchanged_until_gone(trace, plan);
}

TEST(Unchanged, IsWhatIsOnlyReadBetweenComingAndGoing) {
  EXPECT_EQ(unchanged(trace_of("r..r.w.."), {fetch(3), evict(4)}), (std::vector<char>{1, 0}));
  EXPECT_EQ(unchanged(trace_of("r..r.w.."), {fetch(3), evict(6)}), (std::vector<char>{0, 0}));
  EXPECT_EQ(unchanged(trace_of("r..r.w.."), {fetch(3), evict(5)}), (std::vector<char>{0, 0})) << "goes after the write";
  EXPECT_EQ(unchanged(trace_of("r..b...."), {fetch(3), evict(4)}), (std::vector<char>{0, 0}));
}

TEST(Unchanged, LooksRoundTheBorderOfTheStep) {
  EXPECT_EQ(unchanged(trace_of("r....r.."), {evict(1), fetch(5)}), (std::vector<char>{0, 1}));
  EXPECT_EQ(unchanged(trace_of("w....r.."), {evict(1), fetch(5)}), (std::vector<char>{0, 0}));
  EXPECT_EQ(unchanged(trace_of("w....r.."), {evict(0), fetch(5)}), (std::vector<char>{0, 0})) << "goes after the write";
  EXPECT_EQ(unchanged(trace_of("rw...r.."), {evict(0), fetch(5)}), (std::vector<char>{0, 1})) << "has gone before it";
}

TEST(Unchanged, AsksTheNextEvictionOnlyAndOnlyOfTheSameBytes) {
  EXPECT_EQ(unchanged(trace_of("r..r..w."), {fetch(0), evict(1), fetch(3), evict(7)}), (std::vector<char>{1, 0, 0, 0}));
  const Extent first{.tensor = weight, .part = Span<Bytes>{{0}, 4_KiB}},
      second{.tensor = weight, .part = Span<Bytes>{4_KiB, 8_KiB}};
  EXPECT_EQ(unchanged(trace_of("r...w..."), {fetch(0, first), evict(1, second), evict(5, first)}),
            (std::vector<char>{0, 0, 0}));
  EXPECT_EQ(unchanged(trace_of("r...w..."), {fetch(0), evict(1, second), evict(5, first)}),
            (std::vector<char>{1, 0, 0}));
}

TEST(Unchanged, IsNotWhatStays) { EXPECT_EQ(unchanged(trace_of("r......."), {fetch(0)}), (std::vector<char>{0})); }

}  // namespace
}  // namespace vedette::unchanged_test
