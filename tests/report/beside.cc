// Two runs on one axis: where their ops lie, and the tensors that make the difference, which add up to it.
#include "profiler/report/beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/hand_made.h"

namespace vedette::report::beside_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report hand_made(const by_hand::Names& names = {}) {
  const by_hand::Folder folder;
  return analyse(load_run(by_hand::record_by_hand(folder.file("run.vedette"), names)).value(), {});
}

StepTimeline& shown_step(Report& report) {
  for (StepTimeline& step : report.timeline.steps)
    if (step.step == *report.steps.shown) return step;
  throw std::runtime_error("no step is shown");
}

const TensorDifference* of(const Beside& beside, const std::string& name) {
  for (const TensorDifference& each : beside.tensors)
    if (each.name == name) return &each;
  return nullptr;
}

TEST(Beside, ARunAndItselfDifferInNothing) {
  const Report report = hand_made();
  const Beside beside = beside_of(report, report);
  EXPECT_TRUE(beside.by_op);
  EXPECT_TRUE(beside.tensors.empty());
  ASSERT_EQ(beside.here.size(), 4u) << "a point after each op";
  for (std::size_t i = 0; i < beside.here.size(); ++i) {
    EXPECT_DOUBLE_EQ(beside.here[i].at, static_cast<double>(i + 1) / 4);
    EXPECT_EQ(beside.here[i].live, report.memory.samples[i].live);
    EXPECT_EQ(beside.here[i].resident, report.memory.samples[i].resident);
  }
  EXPECT_EQ(beside.here.back().stalled, Nanoseconds{15000}) << "all that the step waited";
  EXPECT_EQ(beside.here.front().stalled, Nanoseconds{0});
}

TEST(Beside, ASlowerStepOfTheSameOpsHasThemAtTheSamePlaces) {
  const Report report = hand_made();
  Report slow = report;
  for (TimelineOp& op : shown_step(slow).ops) op.time.begin.value *= 3, op.time.end.value *= 3;
  for (MemorySample& sample : slow.memory.samples) sample.time.value *= 3;
  const Beside beside = beside_of(report, slow);
  for (std::size_t i = 0; i < beside.here.size(); ++i) EXPECT_DOUBLE_EQ(beside.here[i].at, beside.there.at(i).at);
  shown_step(slow).ops.back().name = "another";
  const Beside by_time = beside_of(report, slow);
  EXPECT_FALSE(by_time.by_op);
  EXPECT_THAT(by_time.axis, HasSubstr("share of each step's time"));
  EXPECT_GT(by_time.there[0].at, by_time.here[0].at)
      << "its step is as long, and its first op takes three times as long";
}

TEST(Beside, TensorsAddUpToTheDifferenceOfThePeaksMovesAndStalls) {
  const Report report = hand_made();
  Report other = hand_made({.weight = "renamed"});
  other.headline.peak += Bytes{4096};
  for (TensorRow& t : other.tensors)
    if (t.name == "hidden") t.bytes += Bytes{3072};
  StepTimeline& step = shown_step(other);
  ASSERT_FALSE(step.stalls.empty());
  ASSERT_FALSE(step.moves.empty());
  step.moves.push_back(step.moves.front());
  step.stalls.front().time.end += Nanoseconds{500};
  const Beside beside = beside_of(report, other);
  std::int64_t peak = 0, moved = 0, stalls = 0;
  for (const TensorDifference& d : beside.tensors) {
    peak += static_cast<std::int64_t>(d.peak_there.value) - static_cast<std::int64_t>(d.peak_here.value);
    moved += static_cast<std::int64_t>(d.moved_there.value) - static_cast<std::int64_t>(d.moved_here.value);
    stalls += (d.stall_there - d.stall_here).value;
  }
  EXPECT_EQ(peak, 4096);
  EXPECT_EQ(moved, static_cast<std::int64_t>(step.moves.front().bytes.value));
  EXPECT_EQ(stalls, 500);
  ASSERT_NE(of(beside, "hidden"), nullptr);
  EXPECT_EQ(of(beside, "hidden")->peak_there.value - of(beside, "hidden")->peak_here.value, 3072u);
  EXPECT_EQ(beside.tensors.front().name, "hidden") << "the largest first";
  ASSERT_NE(of(beside, "(no tensor: scratch, and what is not known)"), nullptr) << "1 KiB of the peak is no tensor's";

  const auto json = nlohmann::json::parse(format_json(report, &other))["beside"];
  EXPECT_EQ(json["axis"], "op");
  EXPECT_EQ(json["tensors"][0]["name"], "hidden");
  EXPECT_EQ(json["run"].size(), 4u);
  EXPECT_EQ(json["peak_bytes"][1].get<std::uint64_t>() - json["peak_bytes"][0].get<std::uint64_t>(), 4096u);
  const std::string text = format_text(report, &other);
  for (const char* part :
       {"What makes the difference, tensor by tensor", "+3.0 KiB", "stalls of the shown step: +0.5 us"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Beside, WhatWasRenamedMeetsByWhatAllocatedIt) {
  Report report = hand_made(), other = report;
  TensorRow &mine = report.tensors.at(1), &theirs = other.tensors.at(1);
  mine.site = theirs.site = "linear mm";
  theirs.name = "of another name";
  StepTimeline& step = shown_step(other);
  step.moves.push_back({.verb = "fetch", .cause = "planned", .tensor = theirs.tensor, .bytes = {100}});
  const Beside met = beside_of(report, other);
  ASSERT_NE(of(met, mine.name), nullptr);
  EXPECT_TRUE(of(met, mine.name)->renamed);
  EXPECT_EQ(of(met, mine.name)->there, theirs.tensor);
  theirs.bytes += Bytes{1};
  const Beside apart = beside_of(report, other);
  ASSERT_NE(of(apart, "of another name"), nullptr) << "of another size it is another tensor";
  EXPECT_EQ(of(apart, "of another name")->here, -1);
}

TEST(Beside, LeavesOutTheSmallestWhereAPageHasNoRoom) {
  const Report report = hand_made();
  Report other = report;
  for (TensorRow& t : other.tensors) t.bytes += Bytes{t.bytes.value / 2};
  Beside beside = beside_of(report, other);
  ASSERT_GT(beside.tensors.size(), 1u);
  const std::string largest = beside.tensors.front().name;
  shorten(beside, 1);
  ASSERT_EQ(beside.tensors.size(), 1u);
  EXPECT_EQ(beside.tensors.front().name, largest);
}

}  // namespace
}  // namespace vedette::report::beside_test
