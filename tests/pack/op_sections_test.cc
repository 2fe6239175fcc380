// Sections of ops: what each touches, lives and dies in it, and that together they are the op they were cut from.
#include "pack/op_sections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace vedette::op_sections_test {
namespace {

constexpr Bytes chunk = 64_KiB;

LoggedTensor lasting(std::uint64_t number) {
  LoggedTensor t;
  t.name = "t";
  t.bytes = chunk;
  t.offset = number * chunk.value;
  return t;
}

LoggedTensor born(std::uint64_t number, std::uint32_t birth, std::uint32_t birth_op, std::uint32_t death,
                  std::int64_t death_op) {
  LoggedTensor t = lasting(number);
  t.birth = birth;
  t.birth_op = birth_op;
  t.death = death;
  t.death_op = death_op;
  return t;
}

LoggedOp op(std::vector<std::uint32_t> reads, std::vector<std::uint32_t> writes, Span<std::uint32_t> events) {
  LoggedOp o;
  o.name = "op";
  o.time = {10};
  o.reads = std::move(reads);
  o.writes = std::move(writes);
  o.events = events;
  return o;
}

// Backward of a convolution: gradient 0, weights 1, input 2; born in it are a reordered gradient (event 1, dead at 3),
// the input's gradient (2), a reordered input (4, dead at 5).
StepLog backward_of_a_convolution() {
  StepLog log;
  log.tensors = {lasting(0), lasting(1), lasting(2), born(3, 1, 0, 3, 0), born(4, 2, 0, 6, 1), born(5, 4, 0, 5, 0)};
  log.ops = {op({0, 1, 2}, {}, {0, 5}), op({4}, {0}, {5, 6})};
  return log;
}

const std::vector<SectionedOp> in_three = {{.op = 0,
                                            .sections = {{.after_event = 0, .time = {2}, .touched = {0}},
                                                         {.after_event = 1, .time = {5}, .touched = {}},
                                                         {.after_event = 3, .time = {3}, .touched = {2}}}}};

TEST(CutIntoSections, GivesEachWhatItTouches) {
  const SectionedLog cut = cut_into_sections(backward_of_a_convolution(), in_three);
  EXPECT_EQ(cut.first, (std::vector<std::uint32_t>{0, 3, 4}));
  ASSERT_EQ(cut.log.ops.size(), 4U);
  EXPECT_EQ(cut.log.ops[0].reads, (std::vector<std::uint32_t>{0, 1}))
      << "1 was announced and never seen touched: it is needed all the time";
  EXPECT_EQ(cut.log.ops[1].reads, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(cut.log.ops[2].reads, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(cut.log.ops[3].reads, (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(cut.log.ops[0].time.value + cut.log.ops[1].time.value + cut.log.ops[2].time.value, 10);
}

TEST(CutIntoSections, NeedsWhatIsBornUntilItDies) {
  const SectionedLog cut = cut_into_sections(backward_of_a_convolution(), in_three);
  EXPECT_EQ(cut.log.tensors[3].birth_op, 0U);
  EXPECT_EQ(cut.log.tensors[3].death_op, 1);
  EXPECT_EQ(cut.log.tensors[4].birth_op, 1U);
  EXPECT_EQ(cut.log.tensors[4].death_op, 3);
  EXPECT_EQ(cut.log.tensors[5].birth_op, 2U);
  EXPECT_EQ(cut.log.tensors[5].death_op, 2);
  EXPECT_EQ(cut.log.ops[1].writes, (std::vector<std::uint32_t>{3})) << "born in the section before";
  EXPECT_EQ(cut.log.ops[2].writes, (std::vector<std::uint32_t>{4})) << "3 has died";
  EXPECT_EQ(cut.log.ops[3].writes, (std::vector<std::uint32_t>{0})) << "another op's operands are its own";
}

TEST(CutIntoSections, LowersWhatAnOpNeedsAtOnce) {
  const StepLog log = backward_of_a_convolution();
  const Trace whole = form_units(log, chunk).trace;
  const Trace cut = form_units(cut_into_sections(log, in_three).log, chunk).trace;
  EXPECT_EQ(largest_op_bytes(whole), (Bytes{5 * chunk.value}));
  EXPECT_EQ(largest_op_bytes(cut), (Bytes{4 * chunk.value}));
}

// Random steps with random sections.
struct Made {
  StepLog log;
  std::vector<SectionedOp> sectioned;
};

Made make(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  Made made;
  StepLog& log = made.log;
  for (std::uint32_t t = 0; t < 5; ++t) log.tensors.push_back(lasting(t));
  std::vector<std::uint32_t> alive(5);
  std::iota(alive.begin(), alive.end(), 0U);
  std::uint32_t events = 0;
  for (std::uint32_t i = 0; i < 12; ++i) {
    LoggedOp o = op({}, {}, {events, events});
    for (const std::uint32_t t : alive) {
      if (below(3) == 0) (below(3) == 0 ? o.writes : o.reads).push_back(t);
    }
    const std::vector<std::uint32_t> before = alive;
    SectionedOp cut{.op = i, .sections = {{.after_event = events, .time = {1}, .touched = {}}}};
    for (std::uint32_t k = below(6); k-- > 0;) {
      if (below(2) == 0) cut.sections.push_back({.after_event = events, .time = {2}, .touched = {}});
      if (alive.size() > 5 && below(3) == 0) {
        const std::uint32_t at = 5 + below(static_cast<std::uint32_t>(alive.size()) - 5), t = alive[at];
        const bool operand =
            std::count(o.reads.begin(), o.reads.end(), t) + std::count(o.writes.begin(), o.writes.end(), t) > 0;
        if (operand) continue;  // what an op needs does not die in it
        log.tensors[t].death = ++events;
        log.tensors[t].death_op = i;
        alive.erase(alive.begin() + at);
      } else {
        alive.push_back(static_cast<std::uint32_t>(log.tensors.size()));
        log.tensors.push_back(born(log.tensors.size(), ++events, i, ~0U, -1));
        log.tensors.back().dies_at_seam = true;
      }
    }
    o.events.end = events;
    for (LogSection& s : cut.sections)
      for (const std::uint32_t t : before)
        if (below(2) == 0 &&
            (std::count(o.reads.begin(), o.reads.end(), t) > 0 || std::count(o.writes.begin(), o.writes.end(), t) > 0))
          s.touched.push_back(t);
    o.time = {static_cast<std::int64_t>(2 * cut.sections.size() - 1)};
    log.ops.push_back(std::move(o));
    if (cut.sections.size() > 1) made.sectioned.push_back(std::move(cut));
  }
  return made;
}

using Touched = std::map<std::uint32_t, std::set<std::uint64_t>>;  // by op: chunks

Touched touched(const Units& units, const Trace& by) {
  Touched all;
  for (std::uint32_t i = 0; i < by.ops.size(); ++i) {
    for (const auto* list : {&by.ops[i].reads, &by.ops[i].writes})
      for (const TensorIndex t : *list)
        for (std::uint32_t c = 0; c < units.where[t.value].count; ++c) all[i].insert(units.where[t.value].first + c);
  }
  return all;
}

TEST(WholeOps, AreWhatWasCut) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const Made made = make(seed);
    const SectionedLog cut = cut_into_sections(made.log, made.sectioned);
    const Units before = form_units(made.log, chunk), after = form_units(cut.log, chunk);
    const Trace whole = whole_ops(after.trace, cut.first);
    ASSERT_EQ(whole.ops.size(), before.trace.ops.size());
    Touched was = touched(before, before.trace), is = touched(after, whole);
    for (std::uint32_t i = 0; i < whole.ops.size(); ++i) {
      EXPECT_EQ(whole.ops[i].time, before.trace.ops[i].time);
      // Scratch that lives over a section's end is an operand there, and workspace of the whole op.
      std::erase_if(is[i], [&](std::uint64_t c) {
        const LoggedTensor& t = made.log.tensors[c];
        return t.birth > 0 && t.death != ~0U && t.birth_op == static_cast<std::uint32_t>(t.death_op);
      });
      EXPECT_EQ(was[i], is[i]) << "op " << i;
    }
    EXPECT_LE(peak_bytes(after.trace), peak_bytes(before.trace));
    EXPECT_LE(largest_op_bytes(after.trace), largest_op_bytes(before.trace));
  }
}

TEST(WholeOps, HaveTheMovesOfTheirSections) {
  Plan plan;
  plan.moves = {{.issue = {0},
                 .due = {2},
                 .extent = {.tensor = {0}, .part = {}},
                 .source = {1},
                 .target = {0},
                 .verb = Verb::fetch},
                {.issue = {3},
                 .due = {1},
                 .extent = {.tensor = {0}, .part = {}},
                 .source = {0},
                 .target = {1},
                 .verb = Verb::evict}};
  plan.barriers = {{4}};
  const std::vector<std::uint32_t> first = {0, 1, 4, 5};
  const Plan whole = whole_ops(plan, first);
  EXPECT_EQ(whole.moves[0].issue.value, 0U);
  EXPECT_EQ(whole.moves[0].due.value, 1U);
  EXPECT_EQ(whole.moves[1].issue.value, 1U);
  EXPECT_EQ(whole.moves[1].due.value, 1U);
  EXPECT_EQ(whole.barriers[0].value, 2U);
}

WatchedSection watched(std::uint32_t birth, std::int64_t us, std::vector<char> touches) {
  return {.birth = birth, .bytes = 1, .after_event = birth, .time = {us * 1000}, .touched = std::move(touches)};
}

TEST(WorthPlanning, JoinsWhatIsAlikeOrShort) {
  const std::vector<std::uint32_t> chunks = {8, 8};
  const auto kept = worth_planning(
      {watched(0, 100, {0, 0}), watched(1, 1200, {1, 0}), watched(2, 9000, {0, 0}), watched(3, 1000, {0, 0}),
       watched(4, 1400, {0, 1}), watched(5, 20, {0, 0}), watched(6, 9000, {0, 0})},
      chunks, Bytes{2 << 20}, 2);
  ASSERT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept[0].touched, (std::vector<char>{1, 0})) << "the first is too short to be one";
  EXPECT_EQ(kept[0].birth, 0U);
  EXPECT_EQ(kept[1].birth, 2U);
  EXPECT_EQ(kept[1].time.value, 10'000'000);
  EXPECT_EQ(kept[2].touched, (std::vector<char>{0, 1}));
  EXPECT_EQ(kept[3].birth, 5U) << "the short one is like what follows";
}

// A convolution computes for long before it allocates the tensor into which it reorders what it has computed.
TEST(WorthPlanning, BeginsASectionWhereMuchIsBorn) {
  WatchedSection reorder = watched(2, 800, {0});
  reorder.bytes = 8 << 20;
  const std::vector<std::uint32_t> chunks = {8};
  const auto kept = worth_planning({watched(0, 1000, {1}), watched(1, 14000, {0}), reorder}, chunks, Bytes{2 << 20}, 2);
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[2].birth, 2U);
  EXPECT_EQ(worth_planning({watched(0, 1000, {1}), watched(1, 14000, {0}), reorder}, chunks, Bytes{2 << 20}, 5).size(),
            2U)
      << "four chunks are too few";
}

TEST(WorthPlanning, TakesWhatNoSectionTouchedForTouchedInAll) {
  const auto kept = worth_planning({watched(0, 1000, {1, 0}), watched(1, 9000, {0, 0})},
                                   std::vector<std::uint32_t>{8, 8}, Bytes{2 << 20}, 2);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].touched, (std::vector<char>{1, 1}));
  EXPECT_EQ(kept[1].touched, (std::vector<char>{0, 1}));
}

TEST(WorthPlanning, LeavesAnOpWholeThatTouchesEverythingAlways) {
  EXPECT_EQ(worth_planning({watched(0, 5000, {1, 1}), watched(1, 5000, {1, 1}), watched(2, 5000, {1, 1})},
                           std::vector<std::uint32_t>{8, 8}, Bytes{2 << 20}, 2)
                .size(),
            1U);
  EXPECT_EQ(worth_planning({watched(0, 5000, {1, 1}), watched(1, 5000, {1, 0})}, std::vector<std::uint32_t>{8, 1},
                           Bytes{2 << 20}, 2)
                .size(),
            1U)
      << "one chunk is not worth it";
}

}  // namespace
}  // namespace vedette::op_sections_test
