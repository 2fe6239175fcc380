// From observed operands of a large op to its sections, and back where the op does something else.
#include "session/section_learner.h"

#include <gtest/gtest.h>

#include "session/running_op.h"

namespace vedette::detail::section_learner_test {
namespace {

using Stage = SectionLearner::Stage;
using Outcome = SectionLearner::Outcome;
constexpr Bytes chunk = {64 << 10};
constexpr Nanoseconds ms{1'000'000};

ChunkRange range(std::uint32_t first, std::uint32_t count) { return ChunkRange::of({first}, count); }

// Op 0 is large: it touches its first operand, allocates, and touches the second.
std::vector<ObservedOp> observed() {
  ObservedOp op{.op = 0, .operands = {range(0, 40), range(40, 40)}, .tensors = {5, 6}, .sections = {}};
  op.sections.push_back({.birth = 0, .bytes = 0, .after_event = 0, .time = {}, .touched = {1, 0}});
  op.sections.push_back({.birth = 1, .bytes = chunk.value, .after_event = 0, .time = {}, .touched = {0, 1}});
  return {op};
}

struct Learned {
  SectionLearner learner{{1, 0}};
  std::vector<std::uint32_t> first{0, 1, 2};
  std::vector<Nanoseconds> least{{4 * ms.value}, ms};
  SectionLearner::Planned planned() const {
    return {.first = first, .least_time = least, .chunk = chunk, .frames = 256};
  }
  Outcome through_timing() {
    learner.time_op(0);
    learner.add_time(0, {2 * ms.value});
    learner.add_time(0, {6 * ms.value});
    return learner.step_ended({}, planned());
  }
};

TEST(SectionLearner, TimesThenObservesThenHasSections) {
  Learned l;
  EXPECT_EQ(l.learner.stage(), Stage::timing);
  EXPECT_EQ(l.through_timing(), Outcome::nothing);
  EXPECT_TRUE(l.learner.observes(0));
  EXPECT_FALSE(l.learner.observes(1));
  EXPECT_EQ(l.learner.step_ended(observed(), l.planned()), Outcome::changed);
  EXPECT_EQ(l.learner.stage(), Stage::learned);
  const auto cut = l.learner.sectioned(observed());
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0].sections[0].touched, std::vector<std::uint32_t>{5});
  EXPECT_EQ(cut[0].sections[1].touched, std::vector<std::uint32_t>{6});
  l.learner.plan_is_there();
  ASSERT_EQ(l.learner.of(0).size(), 2u);
  // the op takes 4 ms at its best, where it took 8 while it was timed
  EXPECT_EQ(l.learner.of(0)[0].time, ms);
  EXPECT_EQ(l.learner.of(0)[1].time, Nanoseconds{3 * ms.value});
}

TEST(SectionLearner, HasTheSectionsOfThePlanThatRuns) {
  Learned l;
  l.through_timing();
  l.learner.step_ended(observed(), l.planned());
  EXPECT_TRUE(l.learner.waits_for_plan());
  EXPECT_TRUE(l.learner.of(0).empty()) << "steps run whole until the plan in sections is there";
  EXPECT_EQ(l.learner.step_ended({}, l.planned()), Outcome::nothing);
  l.learner.plan_is_there();
  EXPECT_FALSE(l.learner.waits_for_plan());
  l.first = {0, 2, 3};
  l.least = {ms, ms, ms};
  l.learner.failed(0);
  EXPECT_EQ(l.learner.step_ended(observed(), l.planned()), Outcome::changed);
  EXPECT_EQ(l.learner.of(0).size(), 2u) << "the plan that runs has them";
  l.learner.failed(0);
  EXPECT_EQ(l.learner.step_ended(observed(), l.planned()), Outcome::nothing) << "a plan without them is being made";
  l.learner.plan_is_there();
  EXPECT_TRUE(l.learner.of(0).empty());
  EXPECT_EQ(l.learner.step_ended({}, l.planned()), Outcome::nothing) << "they failed in steps before";
}

TEST(SectionLearner, ObservesNothingWhereNoOpIsWorthIt) {
  SectionLearner learner({0, 0});
  EXPECT_EQ(learner.step_ended({}, {}), Outcome::nothing);
  EXPECT_EQ(learner.stage(), Stage::learned);
  EXPECT_FALSE(learner.observes(0));
}

TEST(SectionLearner, AnOpThatAllocatesOtherwiseStaysWhole) {
  Learned l;
  l.learner.time_op(0);
  l.learner.add_time(0, ms);  // no allocation in it
  l.learner.step_ended({}, l.planned());
  EXPECT_EQ(l.learner.step_ended(observed(), l.planned()), Outcome::observed);
  EXPECT_TRUE(l.learner.of(0).empty());
}

TEST(SectionLearner, AnOpWhoseSectionsFailIsWholeAgain) {
  Learned l;
  l.through_timing();
  l.learner.step_ended(observed(), l.planned());
  l.learner.plan_is_there();
  l.first = {0, 2, 3};
  l.least = {ms, ms, ms};
  EXPECT_EQ(l.learner.step_ended(observed(), l.planned()), Outcome::nothing);
  l.learner.failed(0);
  EXPECT_EQ(l.learner.step_ended(observed(), l.planned()), Outcome::changed);
  l.learner.plan_is_there();
  EXPECT_TRUE(l.learner.of(0).empty());
  EXPECT_EQ(l.learner.step_ended({}, l.planned()), Outcome::nothing);
}

TEST(RunningOp, GoesFromSectionToSectionAtItsBirths) {
  std::vector<WatchedSection> sections(2);
  sections[0].touched = {1, 0};
  sections[1] = {.birth = 2, .bytes = 500, .after_event = 0, .time = {}, .touched = {0, 1}};
  RunningOp op;
  op.begin_step();
  op.begin();
  op.operand(range(0, 2), 0, false);
  op.operand(range(2, 2), 1, true);
  op.planned_as(7);
  op.cut(sections, 3);
  EXPECT_EQ(op.needed(), std::vector<ChunkRange>{range(0, 2)});
  EXPECT_FALSE(op.section_begins_with(500)) << "the first birth, not the second";
  op.count_birth();
  EXPECT_FALSE(op.section_begins_with(400));
  EXPECT_FALSE(op.section_begins_with(600));
  EXPECT_TRUE(op.section_begins_with(500));
  op.born(range(9, 1));
  op.born(range(10, 1));
  op.died(range(9, 1));
  op.next_section();
  EXPECT_EQ(op.part(), 8u);
  EXPECT_TRUE(op.in_last_section());
  EXPECT_EQ(op.needed(), (std::vector<ChunkRange>{range(10, 1), range(2, 2)}));
  op.begin();
  EXPECT_FALSE(op.in_sections());
  EXPECT_TRUE(op.operands().empty());
}

}  // namespace
}  // namespace vedette::detail::section_learner_test
