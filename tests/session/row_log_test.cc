// Rows of tables that steps touched, as ranges of numbered chunks.
#include "session/row_log.h"

#include <gtest/gtest.h>

namespace vedette::detail::row_log_test {
namespace {

ChunkRange range(std::uint32_t first, std::uint32_t end) { return {{first}, {end}}; }

TEST(RowLog, JoinsRangesOfOneOpThatTouch) {
  RowLog log;
  log.begin_step();
  log.touch(0, range(10, 12));
  log.touch(0, range(12, 13));
  log.touch(0, range(20, 21));
  log.touch(1, range(20, 22));
  EXPECT_EQ(log.chunks(), 5u);
  const auto parts = log.take();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].chunks, range(10, 13));
  EXPECT_EQ(parts[2].op, 1u);
  EXPECT_TRUE(log.take().empty());
}

TEST(RowHistory, NumbersChunksOfAllTablesFromZero) {
  RowHistory history;
  history.add({{.op = 1, .chunks = range(102, 103)}, {.op = 1, .chunks = range(100, 101)}});
  history.add({});  // a step without rows is no step
  history.add({{.op = 0, .chunks = range(50, 52)}});
  const std::uint32_t first[] = {0, 3, 4};  // op 0 has three sections
  const ChunkRange tables[] = {range(100, 104)};
  const Rows rows = history.rows(tables, 2, {4096}, first);
  EXPECT_EQ(rows.held, Bytes{8192});
  EXPECT_EQ(rows.chunks, 6u);  // 50, 51, 100 to 103
  ASSERT_EQ(rows.steps.size(), 2u);
  ASSERT_EQ(rows.steps[0].size(), 1u);
  EXPECT_EQ(rows.steps[0][0].op, OpIndex{3});
  EXPECT_EQ(rows.steps[0][0].chunks, (std::vector<Span<std::uint32_t>>{{2, 3}, {4, 5}}));
  EXPECT_EQ(rows.steps[1][0].chunks, (std::vector<Span<std::uint32_t>>{{0, 2}}));
}

// Chunk 1 in each step, 2 in every other one, and a further one in each that never comes again.
TEST(RowHistory, KnowsWhichChunksAreHot) {
  RowHistory history;
  RowLog log;
  for (std::uint32_t s = 0; s < 12; ++s) {
    EXPECT_EQ(history.hot(4).has_value(), s >= 6) << s;
    const ChunkRange often = range(1, s % 2 == 0 ? 3 : 2);
    history.add({{.op = 0, .chunks = often}, {.op = 1, .chunks = often}, {.op = 1, .chunks = range(10 + s, 11 + s)}});
  }
  EXPECT_EQ(history.hot(4).value(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(history.hot(1).value(), (std::vector<std::uint32_t>{1}));
  EXPECT_FALSE(log.may_lie_far({10})) << "nothing is known yet";
  log.keep_near(*history.hot(4));
  EXPECT_TRUE(log.may_lie_far({10}));
  EXPECT_FALSE(log.may_lie_far({2}));
}

TEST(RowHistory, KeepsTheLatestSteps) {
  RowHistory history;
  for (std::uint32_t s = 0; s < 40; ++s) history.add({{.op = 0, .chunks = range(s, s + 1)}});
  const std::uint32_t first[] = {0, 1};
  const Rows rows = history.rows({}, 0, {4096}, first);
  EXPECT_EQ(rows.steps.size(), 32u);
  EXPECT_EQ(rows.chunks, 32u);  // those of steps 8 to 39
}

}  // namespace
}  // namespace vedette::detail::row_log_test
