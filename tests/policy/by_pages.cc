// Policies that work on pages: an embedding of which few rows are used does not move, its hot rows do.
#include "policy/canvas/by_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/replay.h"

namespace vedette::by_pages_test {
namespace {

// a table of 100 MiB, every hundredth page of it hot
constexpr std::uint64_t page = 4096, rows_pages = 25'600, hot_every = 100;
constexpr std::uint64_t activation = 24 << 20;

// look-up (reads the hot rows), three layers forward, three backward, update (writes the hot rows). The table lies
// beside 96 MiB of activations.
Trace embedding() {
  Trace trace{.name = "embedding", .source = "test", .device = "none"};
  trace.tensors.push_back(
      {.name = "table", .bytes = {rows_pages * page}, .kind = TensorKind::weight, .persistent = true});
  for (const char* layer :
       {"look", "forward0", "forward1", "forward2", "backward2", "backward1", "backward0", "update"})
    trace.layers.push_back({.name = layer});
  for (std::uint32_t x = 1; x <= 4; ++x)
    trace.tensors.push_back({.name = std::string("x").append(std::to_string(x)), .bytes = {activation}});
  for (std::uint32_t g = 5; g <= 8; ++g)
    trace.tensors.push_back(
        {.name = std::string("g").append(std::to_string(g)), .bytes = {activation}, .kind = TensorKind::gradient});
  const auto op = [&](std::vector<TensorIndex> reads, std::vector<TensorIndex> writes) {
    const auto i = static_cast<std::uint32_t>(trace.ops.size());
    trace.ops.push_back({.name = trace.layers[i].name,
                         .layer = LayerIndex{i},
                         .time = {20'000'000},
                         .workspace = {},
                         .reads = std::move(reads),
                         .writes = std::move(writes),
                         .frees = {}});
  };
  op({{0}}, {{1}});
  op({{1}}, {{2}});
  op({{2}}, {{3}});
  op({{3}}, {{4}});
  op({{3}, {4}}, {{5}});
  op({{2}, {5}}, {{6}});
  op({{1}, {6}}, {{7}});
  op({{0}, {7}}, {{0}, {8}});
  for (const std::uint32_t at : {0U, 7U}) {
    for (std::uint64_t row = 7; row < rows_pages; row += hot_every)
      trace.pages.push_back({.op = {at}, .tensor = {0}, .pages = {row, row + 1}, .read = true, .written = at == 7});
  }
  return trace;
}

constexpr std::uint64_t hot_bytes = rows_pages / hot_every * page;

Machine machine_of(std::uint64_t fast) { return testing::two_tiers({fast}, {page}, 4'000'000'000); }

std::uint64_t moved_of_the_table(const Plan& plan, Verb verb) {
  std::uint64_t bytes = 0;
  for (const Move& move : plan.moves) {
    if (move.extent.tensor.value != 0 || move.verb != verb) continue;
    bytes += move.extent.part ? move.extent.part->end.value - move.extent.part->begin.value : rows_pages * page;
  }
  return bytes;
}

TEST(ByPages, SentinelMovesTheHotRowsOfAnEmbeddingAlone) {
  const Trace trace = embedding();
  const Machine machine = machine_of(std::uint64_t{80} << 20);  // less than the table; an op has 72 MiB of activations
  const auto plan = make_policy("sentinel", 1)->prepare(trace, machine);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(check(trace, machine, *plan), std::nullopt) << check(trace, machine, *plan)->message;
  EXPECT_EQ(plan->home[0].value, 1U);
  EXPECT_GE(moved_of_the_table(*plan, Verb::fetch), hot_bytes);  // once or, where they leave in between, twice
  EXPECT_LE(moved_of_the_table(*plan, Verb::fetch), 2 * hot_bytes);
  EXPECT_EQ(moved_of_the_table(*plan, Verb::evict), moved_of_the_table(*plan, Verb::fetch));
  for (const Move& move : plan->moves) {
    if (move.extent.tensor.value != 0) continue;
    ASSERT_TRUE(move.extent.part.has_value());
    EXPECT_EQ(move.extent.part->begin.value / page % hot_every, 7U);
    EXPECT_EQ(move.extent.part->end.value - move.extent.part->begin.value, page);
  }
  const auto ran = replay(trace, machine, *plan);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->unplanned, 0U);
  EXPECT_LE(ran->peak, machine.tiers[0].capacity);
}

TEST(ByPages, WithoutPagesTheTableItselfWouldHaveToFit) {
  Trace trace = embedding();
  trace.pages.clear();
  const auto plan = make_policy("sentinel", 1)->prepare(trace, machine_of(std::uint64_t{80} << 20));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().cause, Cause::infeasible);
}

TEST(ByPages, NothingMovesWhereEverythingFits) {
  const Trace trace = embedding();
  const Machine machine = machine_of(std::uint64_t{400} << 20);
  const auto plan = make_policy("sentinel", 1)->prepare(trace, machine);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->moves.empty());
  EXPECT_EQ(plan->home[0].value, 0U);
}

// Their blocks are 8 MiB of the driver's; rows that lie together, as those of the most frequent words do.
TEST(ByPages, UnifiedMemoryFaultsOnTheBlocksOfTheHotRowsAlone) {
  Trace trace = embedding();
  trace.pages.clear();
  for (const std::uint32_t at : {0U, 7U})
    trace.pages.push_back(
        {.op = {at}, .tensor = {0}, .pages = {1024, 1024 + rows_pages / hot_every}, .read = true, .written = at == 7});
  const Machine machine = machine_of(std::uint64_t{160} << 20);  // where all of the table is when the first step begins
  for (const char* name : {"unified-memory", "deepum+"}) {
    const auto policy = make_policy(name, 1);
    const auto ran = replay(trace, machine, *policy, {.timeline = true});
    ASSERT_TRUE(ran.ok()) << name << ": " << ran.error().message;
    std::uint64_t table = 0;
    for (const Bar& bar : ran->timeline)
      table += bar.kind == Bar::Kind::move && bar.tensor.value == 0 && bar.target.value == 0 ? bar.bytes.value : 0;
    EXPECT_LE(table, std::uint64_t{2} * (8 << 20)) << name;  // the block, before each of its two uses at most
  }
}

TEST(ByPages, RunsOfPagesThatTheSameOpsUseStayTogether) {
  Trace trace = embedding();
  trace.pages.clear();
  for (const std::uint32_t at : {0U, 7U})
    trace.pages.push_back({.op = {at}, .tensor = {0}, .pages = {1024, 1280}, .read = true, .written = at == 7});
  const auto plan = make_policy("sentinel", 1)->prepare(trace, machine_of(std::uint64_t{80} << 20));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const Move& move : plan->moves) {
    if (move.extent.tensor.value != 0) continue;
    EXPECT_EQ(move.extent.part, (Span<Bytes>{{1024 * page}, {1280 * page}}));
  }
  EXPECT_EQ(moved_of_the_table(*plan, Verb::fetch) % hot_bytes, 0U);
}

}  // namespace
}  // namespace vedette::by_pages_test
