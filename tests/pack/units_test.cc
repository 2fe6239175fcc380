// Units are runs of chunks with one history each: checked against what a naive reading of the log says of every chunk.
#include "pack/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace vedette::units_test {
namespace {

constexpr Bytes chunk = 64_KiB;
constexpr std::uint64_t c64 = 64 << 10;

LoggedTensor tensor(std::uint64_t offset, std::uint64_t bytes) {
  LoggedTensor t;
  t.name = std::string("t").append(std::to_string(offset / c64));
  t.bytes = {bytes};
  t.offset = offset;
  return t;
}
LoggedTensor temporary(std::uint64_t offset, std::uint64_t bytes, std::uint32_t birth, std::uint32_t birth_op,
                       std::uint32_t death, std::int64_t death_op) {
  LoggedTensor t = tensor(offset, bytes);
  t.birth = birth;
  t.birth_op = birth_op;
  t.death = death;
  t.death_op = death_op;
  return t;
}
LoggedOp op(std::vector<std::uint32_t> reads, std::vector<std::uint32_t> writes) {
  LoggedOp o;
  o.name = "op";
  o.time = {1000};
  o.reads = std::move(reads);
  o.writes = std::move(writes);
  return o;
}
bool has(const std::vector<TensorIndex>& list, std::uint32_t unit) {
  return std::find(list.begin(), list.end(), TensorIndex{unit}) != list.end();
}

TEST(Units, MakesOneOfNeighboursWithTheSameHistory) {
  StepLog log;
  log.tensors = {tensor(0, 3 * c64)};
  log.ops = {op({0}, {}), op({}, {0})};
  const Units units = form_units(log, chunk);
  ASSERT_EQ(units.where.size(), 1u);
  EXPECT_EQ(units.where[0], (UnitChunks{0, 3}));
  EXPECT_EQ(units.trace.tensors[0].bytes.value, 3 * c64);
  EXPECT_TRUE(units.trace.tensors[0].persistent);
  EXPECT_TRUE(has(units.trace.ops[0].reads, 0));
  EXPECT_FALSE(has(units.trace.ops[0].writes, 0));
  EXPECT_TRUE(has(units.trace.ops[1].writes, 0));
}

TEST(Units, CutsWhatPersistsIntoUnitsThatMoveAlone) {
  for (const auto& [chunks, counts] : std::vector<std::pair<std::uint64_t, std::vector<std::uint32_t>>>{
           {7, {2, 2, 3}}, {6, {2, 2, 2}}, {3, {3}}, {1, {1}}}) {
    StepLog log;
    log.tensors = {tensor(0, chunks * c64), temporary(8 * c64, 7 * c64, 1, 0, 2, 1)};
    log.ops = {op({0}, {1}), op({1}, {0})};
    const Units units = form_units(log, chunk, 2);
    ASSERT_EQ(units.where.size(), counts.size() + 1);
    std::uint32_t first = 0;
    for (std::uint32_t u = 0; u < counts.size(); first += counts[u++]) {
      EXPECT_EQ(units.where[u], (UnitChunks{first, counts[u]}));
      EXPECT_EQ(units.trace.tensors[u].bytes.value, counts[u] * c64);
      EXPECT_TRUE(units.trace.tensors[u].persistent && has(units.trace.ops[0].reads, u) &&
                  has(units.trace.ops[1].writes, u));
    }
    EXPECT_EQ(units.where.back(), (UnitChunks{8, 7})) << "what dies stays whole";
  }
}

TEST(Units, GivesASharedChunkTheUnionOfItsTensors) {
  StepLog log;
  log.tensors = {tensor(0, c64 + c64 / 2), tensor(c64 + c64 / 2, c64 / 2)};  // chunk 0: the first; chunk 1: both
  log.ops = {op({0}, {}), op({1}, {})};
  const Units units = form_units(log, chunk);
  ASSERT_EQ(units.where.size(), 2u);
  EXPECT_EQ(units.where[0], (UnitChunks{0, 1}));
  EXPECT_EQ(units.where[1], (UnitChunks{1, 1}));
  EXPECT_TRUE(has(units.trace.ops[0].reads, 0) && has(units.trace.ops[0].reads, 1));
  EXPECT_TRUE(!has(units.trace.ops[1].reads, 0) && has(units.trace.ops[1].reads, 1));
}

TEST(Units, DoesNotJoinAcrossAGap) {
  StepLog log;
  log.tensors = {tensor(0, c64), tensor(2 * c64, c64)};
  log.ops = {op({0, 1}, {})};
  EXPECT_EQ(form_units(log, chunk).where.size(), 2u);
}

TEST(Units, TakesTwoLivesInOneChunkAsTwo) {
  StepLog log;
  log.tensors = {temporary(0, c64, 1, 0, 2, 1), temporary(0, c64, 3, 2, 4, 3)};
  log.ops = {op({}, {0}), op({0}, {}), op({}, {1}), op({1}, {})};
  const Units units = form_units(log, chunk);
  ASSERT_EQ(units.where.size(), 2u);
  EXPECT_EQ(units.where[0], units.where[1]);
  EXPECT_TRUE(has(units.trace.ops[1].frees, 0));
  EXPECT_TRUE(has(units.trace.ops[3].frees, 1));
  EXPECT_TRUE(has(units.trace.ops[2].writes, 1));
}

TEST(Units, KeepsASharedChunkUntilItsLastTensorDies) {
  StepLog log;
  for (const bool first_dies_last : {false, true}) {
    log.tensors = {temporary(0, c64 / 2, 1, 0, first_dies_last ? 4 : 3, first_dies_last ? 3 : 1),
                   temporary(c64 / 2, c64 / 2, 2, 0, first_dies_last ? 3 : 4, first_dies_last ? 1 : 3)};
    log.ops = {op({}, {0, 1}), op({0, 1}, {}), op({}, {}), op({}, {})};
    const Units units = form_units(log, chunk);
    ASSERT_EQ(units.where.size(), 1u);
    EXPECT_FALSE(has(units.trace.ops[1].frees, 0)) << first_dies_last;
    EXPECT_TRUE(has(units.trace.ops[3].frees, 0)) << first_dies_last;
  }
}

TEST(Units, CountsWhatLivesInsideOneOpAsItsWorkspace) {
  StepLog log;
  log.tensors = {temporary(0, 2 * c64, 1, 1, 4, 1), temporary(2 * c64, c64, 2, 1, 3, 1),
                 temporary(3 * c64, c64, 5, 1, 6, 1)};
  log.ops = {op({}, {}), op({}, {0, 1, 2})};
  const Units units = form_units(log, chunk);
  EXPECT_TRUE(units.where.empty());
  EXPECT_EQ(units.trace.ops[1].workspace.value, 3 * c64);  // two and one at once; the last one later
  EXPECT_EQ(units.trace.ops[0].workspace.value, 0u);
}

TEST(Units, FreesWhatDiesBeforeTheNextStepAtTheEnd) {
  StepLog log;
  log.tensors = {temporary(0, c64, 1, 0, ~0u, -1), temporary(c64, c64, 2, 0, ~0u, -1)};
  log.tensors[0].dies_at_seam = true;
  log.ops = {op({}, {0, 1}), op({}, {})};
  const Units units = form_units(log, chunk);
  ASSERT_EQ(units.where.size(), 2u);
  EXPECT_FALSE(units.trace.tensors[0].persistent);
  EXPECT_TRUE(has(units.trace.ops[1].frees, 0));
  EXPECT_TRUE(units.trace.tensors[1].persistent);  // lives on
}

TEST(Units, LeavesOutWhatDiedBeforeTheFirstOp) {
  StepLog log;
  log.tensors = {tensor(0, c64)};
  log.tensors[0].death = 1;
  log.tensors[0].death_op = -1;
  log.ops = {op({}, {})};
  EXPECT_TRUE(form_units(log, chunk).where.empty());
  EXPECT_TRUE(program_trace(log).tensors.empty());
}

TEST(Units, HandlesAStepWithoutOps) {
  StepLog log;
  log.tensors = {tensor(0, c64)};
  EXPECT_TRUE(form_units(log, chunk).where.empty());
  EXPECT_TRUE(program_trace(log).ops.empty());
}

// A random log of persistent tensors, page-aligned and packed: for each chunk and op, "touched" by the units equals
// "touched" by a tensor of that chunk.
TEST(Units, TouchExactlyWhatTheTensorsOfTheirChunksTouch) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    StepLog log;
    std::uint64_t offset = 0;
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t bytes = 4096 * (1 + random() % 40);
      if (random() % 4 == 0) offset += 4096 * (random() % 40);
      log.tensors.push_back(tensor(offset, bytes));
      offset += bytes;
    }
    for (int o = 0; o < 30; ++o) {
      std::set<std::uint32_t> reads, writes;
      for (std::uint64_t n = random() % 4; n > 0; --n) reads.insert(static_cast<std::uint32_t>(random() % 60));
      for (std::uint64_t n = random() % 3; n > 0; --n) writes.insert(static_cast<std::uint32_t>(random() % 60));
      log.ops.push_back(op({reads.begin(), reads.end()}, {writes.begin(), writes.end()}));
    }
    const Units units = form_units(log, chunk);
    const std::uint64_t chunks = (offset + c64 - 1) / c64;
    std::vector<int> owners(chunks);
    for (const UnitChunks& w : units.where)
      for (std::uint32_t c = w.first; c < w.first + w.count; ++c) ++owners[c];
    for (std::size_t o = 0; o < log.ops.size(); ++o) {
      std::vector<bool> expected_reads(chunks), expected_writes(chunks), reads(chunks), writes(chunks);
      const auto mark = [&](const OperandList& list, std::vector<bool>& into) {
        for (const std::uint32_t t : list)
          for (std::uint64_t c = log.tensors[t].offset / c64;
               c * c64 < log.tensors[t].offset + log.tensors[t].bytes.value; ++c)
            into[c] = true;
      };
      const auto mark_units = [&](const std::vector<TensorIndex>& list, std::vector<bool>& into) {
        for (const TensorIndex u : list)
          for (std::uint32_t c = 0; c < units.where[u.value].count; ++c) into[units.where[u.value].first + c] = true;
      };
      mark(log.ops[o].reads, expected_reads);
      mark(log.ops[o].writes, expected_writes);
      mark_units(units.trace.ops[o].reads, reads);
      mark_units(units.trace.ops[o].writes, writes);
      EXPECT_EQ(reads, expected_reads);
      EXPECT_EQ(writes, expected_writes);
    }
    for (std::uint64_t c = 0; c < chunks; ++c) EXPECT_LE(owners[c], 1);
  }
}

TEST(ProgramTrace, KeepsTheProgramsOwnTensors) {
  StepLog log;
  log.tensors = {tensor(0, 100), temporary(c64, 200, 1, 0, 2, 1)};
  log.tensors[0].kind = TensorKind::weight;
  log.ops = {op({0}, {1}), op({1}, {})};
  const Trace trace = program_trace(log);
  ASSERT_EQ(trace.tensors.size(), 2u);
  EXPECT_TRUE(trace.tensors[0].persistent);
  EXPECT_EQ(trace.tensors[1].bytes.value, 200u);
  EXPECT_TRUE(has(trace.ops[1].frees, 1));
}

TEST(ProgramTrace, GetsWhatOpsUsedBesideBehindItsTensors) {
  StepLog log;
  log.tensors = {tensor(0, 100)};
  log.ops = {op({0}, {}), op({0}, {})};
  log.beside = {{.op = 0, .address = 4096, .bytes = {40}, .written = true, .name = "bias"},
                {.op = 1, .address = 4096, .bytes = {40}, .written = false, .name = "bias"},
                {.op = 1, .address = 4096, .bytes = {8}, .written = true, .name = ""}};
  Trace trace = program_trace(log);
  add_beside(trace, log);
  ASSERT_EQ(trace.tensors.size(), 3u) << "memory that is used again in another size is another tensor";
  EXPECT_EQ(trace.tensors[1].name, "bias");
  EXPECT_EQ(trace.tensors[1].kind, TensorKind::weight);
  EXPECT_EQ(trace.tensors[2].bytes, Bytes{8});
  EXPECT_TRUE(has(trace.ops[0].writes, 1));
  EXPECT_TRUE(has(trace.ops[1].reads, 1));
  EXPECT_TRUE(has(trace.ops[1].writes, 2));
  const auto again = parse_trace(format_trace(trace));
  EXPECT_TRUE(again) << again.error().message;
  EXPECT_EQ(form_units(log, chunk).trace.tensors.size(), 1u) << "no plan has it";
}

TEST(ProgramTrace, ReadsNothingWhereATensorIsBornInPlace) {
  StepLog log;
  log.tensors = {temporary(0, 200, 1, 0, 2, 1)};
  log.ops = {op({0}, {0}), op({0}, {})};
  const Trace trace = program_trace(log);
  EXPECT_TRUE(trace.ops[0].reads.empty());
  EXPECT_TRUE(has(trace.ops[0].writes, 0));
  EXPECT_TRUE(has(trace.ops[1].reads, 0));
  const auto again = parse_trace(format_trace(trace));
  EXPECT_TRUE(again) << again.error().message;
}

}  // namespace
}  // namespace vedette::units_test
