// A table of which an op touches a few parts, others at every step: the parts move, the table does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "session/loop.h"

namespace vedette::parts_test {
namespace {

using testing::Block;
using testing::open_session;

constexpr std::size_t row_words = 32;  // 256 bytes
constexpr std::size_t rows = 32'768;   // 8 MiB
constexpr std::size_t looked_up = 24;

// What a step looks up: mostly the first rows, sometimes any.
std::vector<std::size_t> draw(std::mt19937_64& random) {
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < looked_up; ++i) drawn.push_back(random() % (i % 12 == 0 ? rows : rows / 100));
  return drawn;
}

// Adds up words of rows and changes them, in steps; the table is born and filled before.
std::uint64_t train(Session& session, Block& table, Block& weights, int first, int last) {
  std::mt19937_64 random(static_cast<std::uint64_t>(first));
  std::uint64_t sum = 0;
  for (int s = first; s < last; ++s) {
    const auto step = session.step();
    const auto drawn = draw(random);
    std::vector<Part> parts;
    for (const std::size_t row : drawn)
      parts.push_back({.first = &table[row * row_words], .bytes = {row_words * 8}, .written = false});
    {
      const auto op = session.op("look up", {}, {}, parts);
      for (const std::size_t row : drawn) sum += table[row * row_words + static_cast<std::size_t>(s) % row_words];
    }
    const void* const dense[] = {weights.address()};
    {
      const auto op = session.op("dense", dense, dense);
      for (std::size_t i = 0; i < weights.count(); ++i) weights[i] += sum;
    }
    for (Part& part : parts) part.written = true;
    const auto op = session.op("update", dense, {}, parts);
    for (const std::size_t row : drawn) table[row * row_words] += weights[row % weights.count()];
  }
  return sum;
}

struct Ended {
  std::uint64_t sum = 0, table = 0;
  Counters counters, late;  // of the whole run, and of its second half
  std::vector<std::string> messages;
};

Ended run(Bytes budget, const std::string& policy, Bytes chunk = {std::uint64_t{64} << 10},
          const std::string& slow = "host") {
  Ended ended;
  const auto session = open_session(budget, slow, policy, chunk, nullptr, &ended.messages);
  Block table(*session, rows * row_words * 8, true), weights(*session, 400'000, true);
  table.fill(1);
  weights.fill(2);
  ended.sum = train(*session, table, weights, 0, 20);
  const Counters half = session->counters();
  ended.sum += train(*session, table, weights, 20, 40);
  ended.counters = session->counters();
  ended.late.bytes_in.value = ended.counters.bytes_in.value - half.bytes_in.value;
  ended.late.bytes_out.value = ended.counters.bytes_out.value - half.bytes_out.value;
  ended.late.faults = ended.counters.faults - half.faults;
  ended.late.bytes_in_place.value = ended.counters.bytes_in_place.value - half.bytes_in_place.value;
  ended.table = table.sum();
  return ended;
}

class Parts : public ::testing::TestWithParam<const char*> {};

TEST_P(Parts, MoveAndTheTableStays) {
  const Ended plenty = run(64_MiB, GetParam()), tight = run(3_MiB, GetParam());
  EXPECT_EQ(tight.sum, plenty.sum);
  EXPECT_EQ(tight.table, plenty.table);
  EXPECT_THAT(tight.messages, ::testing::IsEmpty());
  EXPECT_LE(tight.counters.resident_max_bytes.value, 3 << 20);
  EXPECT_GT(tight.late.bytes_in.value, 0u);
  EXPECT_LT(tight.late.bytes_in.value / 20, 512u << 10);  // a step touches two cold rows: 128 KiB of a table of 8 MiB
  EXPECT_LT(tight.late.bytes_out.value / 20, 512u << 10);
  EXPECT_EQ(tight.late.faults, 0u);
}

// Hot and cold pieces of one table in memory of two kinds: rows that few steps look up are used where they lie.
TEST_P(Parts, ThatFewStepsTouchAreUsedInSlowMemory) {
  const Ended plenty = run(64_MiB, GetParam()), copied = run(3_MiB, GetParam()),
              there = run(3_MiB, GetParam(), 64_KiB, "host@cxl-2025");
  EXPECT_EQ(there.sum, plenty.sum);
  EXPECT_EQ(there.table, plenty.table);
  EXPECT_THAT(there.messages, ::testing::IsEmpty());
  EXPECT_LE(there.counters.resident_max_bytes.value, 3 << 20);
  EXPECT_EQ(there.late.faults, 0u);
  if (std::string_view(GetParam()) == "on-demand") return;  // which leaves nothing in place
  // at most two cold rows a step, each read once and changed once
  EXPECT_GT(there.late.bytes_in_place.value, 20 * row_words * 8);
  EXPECT_LE(there.late.bytes_in_place.value, 20 * 2 * 2 * row_words * 8);
  EXPECT_LT(there.late.bytes_in.value + there.late.bytes_out.value,
            (copied.late.bytes_in.value + copied.late.bytes_out.value) / 2);
}

TEST(Session, SaysOnceThatLargeChunksSuitNoTables) {
  EXPECT_THAT(run(64_MiB, "vedette", 128_KiB).messages, ::testing::IsEmpty());  // nothing moves
  EXPECT_THAT(
      run(3_MiB, "vedette", 128_KiB).messages,
      ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("128.0 KiB"), ::testing::HasSubstr("64_KiB"))));
}

INSTANTIATE_TEST_SUITE_P(Policies, Parts, ::testing::Values("on-demand", "vedette", "sentinel"), [](const auto& the) {
  std::string name = the.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Chunks of the table that hold the rows drawn; the table begins where a chunk does, as its first one is number 0.
std::vector<Span<std::uint32_t>> chunks_of(const std::vector<std::size_t>& drawn) {
  std::set<std::uint32_t> chunks;
  for (const std::size_t row : drawn) chunks.insert(static_cast<std::uint32_t>(row * row_words * 8 / (64 << 10)));
  std::vector<Span<std::uint32_t>> ranges;
  for (const std::uint32_t c : chunks) {
    if (!ranges.empty() && ranges.back().end == c) {
      ++ranges.back().end;
    } else {
      ranges.push_back({c, c + 1});
    }
  }
  return ranges;
}

TEST(Session, TellsWhichChunksEachOfTheLatestStepsTouchedInParts) {
  for (const int steps : {6, 40}) {
    const auto session = open_session(64_MiB, "host", "vedette");
    Block table(*session, rows * row_words * 8, true), weights(*session, 400'000, true);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(table.address()) % (64 << 10), 0u);
    train(*session, table, weights, 0, steps);
    const std::vector<PlannedStep> planned = session->planned_steps();
    ASSERT_EQ(planned.size(), 1u);
    const Rows& told = planned[0].rows;
    EXPECT_FALSE(misfit(told, planned[0].trace));
    EXPECT_EQ(parse_rows(format_rows(told), planned[0].trace).value(), told);
    EXPECT_EQ(told.chunks, 128u);
    EXPECT_EQ(told.chunk, 64_KiB);
    const int first = std::max(1, steps - 32);  // warm-up is not told, nor what lies too far back
    ASSERT_EQ(told.steps.size(), static_cast<std::size_t>(steps - first));
    std::mt19937_64 random(0);
    for (int s = 0; s < steps; ++s) {
      const auto chunks = chunks_of(draw(random));
      if (s < first) continue;
      const auto touched = std::vector<RowAccess>{{.op = {0}, .chunks = chunks}, {.op = {2}, .chunks = chunks}};
      EXPECT_EQ(told.steps[static_cast<std::size_t>(s - first)], touched) << s;
      if (s == 1) {
        std::uint64_t count = 0;
        for (const auto& range : chunks) count += range.end - range.begin;
        EXPECT_EQ(planned[0].trace.tensors[told.always_near.value].bytes.value - told.held.value, count * (64 << 10));
      }
    }
  }
}

TEST(Session, TakesPartsOfForeignAndSmallMemory) {
  const auto session = open_session(1_MiB, "host", "on-demand");
  Block small(*session, 64);
  std::uint64_t own = 0;
  const Part parts[] = {{.first = &own, .bytes = {8}, .written = true},
                        {.first = small.address(), .bytes = {64}, .written = true},
                        {.first = nullptr, .bytes = {8}, .written = false}};
  const auto step = session->step();
  const auto op = session->op("anything", {}, {}, parts);
  small[0] = own = 1;
}

}  // namespace
}  // namespace vedette::parts_test
