// What the map of pages and the timeline of a step are drawn from, on a run whose every figure is known. Counts, places
// and names; waits with their moves and remedies; the noise of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "profiler/noise.h"
#include "profiler/report/report.h"
#include "report/hand_made.h"

namespace vedette::report::timeline_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Run hand_made() {
  const by_hand::Folder folder;
  return load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
}

TEST(Timeline, HasEachStepWithItsOpsMovesAndWaits) {
  const Timeline timeline = timeline_of(hand_made());
  ASSERT_EQ(timeline.steps.size(), 5u);
  EXPECT_EQ(timeline.steps_left_out, 0u);
  EXPECT_EQ(timeline.steps[0].phase, "warm-up");
  EXPECT_TRUE(timeline.steps[0].moves.empty());
  const StepTimeline& shown = timeline.steps[4];
  EXPECT_EQ(shown.step, 5u);
  EXPECT_EQ(shown.time, Nanoseconds{110000});
  ASSERT_EQ(shown.ops.size(), 4u);
  EXPECT_EQ(shown.ops[2].name, "sum");
  EXPECT_EQ(shown.ops[3].layer, 1);
  EXPECT_EQ(shown.ops[3].time.begin, Nanoseconds{60000});
  ASSERT_EQ(shown.moves.size(), 6u);
  EXPECT_EQ(shown.moves[2].verb, "fetch");
  EXPECT_EQ(shown.moves[2].tensor, 0) << "the weight lies in chunk 0";
  EXPECT_EQ(shown.moves[2].tier, 1u);
  EXPECT_EQ(shown.moves[4].tensor, -1) << "what lies in chunk 3 is dead by then";
}

TEST(Timeline, OfAWaitTellsTheMoveTheReasonAndWhatWouldHaveBeenInTime) {
  const StepTimeline step = timeline_of(hand_made()).steps.at(4);
  ASSERT_EQ(step.stalls.size(), 1u);
  const TimelineStall& stall = step.stalls[0];
  EXPECT_EQ(stall.op, 3u);
  EXPECT_EQ(stall.time.begin, Nanoseconds{45000});
  EXPECT_EQ(stall.move, 3) << "the fetch that ended last in it";
  EXPECT_THAT(stall.why, HasSubstr("op 3 (back) waited 15.0 us for weight (8.0 KiB): its fetch was planned"));
  EXPECT_EQ(stall.remedy,
            "It would have been in time had it begun 15.0 us earlier, in op 2 (sum), or in smaller pieces of which the "
            "first were used sooner.");
}

TEST(Timeline, OfAWaitForRoomNamesTheWrite) {
  report::Run run = hand_made();
  StepEvents& shown = run.events.front();
  ASSERT_EQ(shown.step, 5u);
  shown.stalls = {{.op = 1,
                   .in_allocation = true,
                   .began = shown.began + Nanoseconds{12000},
                   .ended = shown.began + Nanoseconds{16000}},
                  {.op = 2,
                   .in_allocation = true,
                   .began = shown.began + Nanoseconds{30000},
                   .ended = shown.began + Nanoseconds{31000}}};
  shown.moves[1].issued = shown.moves[1].started - Nanoseconds{6000};
  const StepTimeline step = timeline_of(run).steps.at(4);
  EXPECT_EQ(step.stalls[0].move, 1);
  EXPECT_THAT(step.stalls[0].why, HasSubstr("for the room of weight"));
  EXPECT_THAT(step.stalls[0].why, HasSubstr("lay 6.0 us behind other moves of its link"));
  EXPECT_THAT(step.stalls[0].remedy, HasSubstr("it was asked for early enough"));
  EXPECT_EQ(step.stalls[1].move, -1);
  EXPECT_EQ(step.stalls[1].remedy, "");
}

TEST(Timeline, BringsTheStepsThatWereAskedFor) {
  const by_hand::Folder folder;
  const std::string path = folder.file("long.vedette");
  {
    auto recorder = Recorder::open({.path = path, .program = "long"}).value();
    by_hand::tell_run(*recorder);
    for (std::uint64_t step = 6; step <= 60; ++step) by_hand::tell_step(*recorder, {}, step, 110000);
  }
  const Timeline some = timeline_of(load_run(path).value());
  EXPECT_EQ(some.steps.size(), 24u);
  EXPECT_EQ(some.steps_left_out, 36u);
  const Timeline asked = timeline_of(load_run(path, {.steps = {57}}).value());
  EXPECT_EQ(std::count_if(asked.steps.begin(), asked.steps.end(), [](const auto& s) { return s.step == 57; }), 1);
}

TEST(Map, CountsTheOperatorsOfATick) {
  report::Run run = hand_made();
  Trace& trace = run.profiles[0].trace;
  // a tick a layer: pages are told with its last op, though three ops use the tensor
  trace.pages = {{.op = {2}, .tensor = {1}, .pages = {0, 2}, .read = true, .written = true},
                 {.op = {3}, .tensor = {0}, .pages = {1, 2}, .read = true, .written = false}};
  const Heat heat = heat_of(run, {});
  ASSERT_EQ(heat.ranges.size(), 2u);
  EXPECT_EQ(heat.ranges[1].tensor, 1u);
  EXPECT_EQ(heat.ranges[1].reads, 1u);
  EXPECT_EQ(heat.ranges[1].writes, 2u) << "mm and sum";
  EXPECT_EQ(heat.ranges[0].reads, 1u);
}

TEST(Map, TellsWherePagesLay) {
  const report::Run run = hand_made();
  const std::vector<HeatPlace> places = heat_of(run, {}).places;
  EXPECT_THAT(places, ElementsAre(HeatPlace{0, 0, {0, 4}, Lay::near}, HeatPlace{0, 1, {0, 2}, Lay::near},
                                  HeatPlace{0, 2, {0, 1}, Lay::near}, HeatPlace{1, 0, {0, 4}, Lay::fetched},
                                  HeatPlace{1, 1, {0, 2}, Lay::near}));
}

TEST(Map, TellsWhatIsDraggedAlong) {
  report::Run run = hand_made();
  run.chunk = {16384};  // the activation and the brief tensor share one
  std::erase_if(run.profiles[0].trace.pages, [](const PageAccess& a) { return a.tensor.value == 2; });
  const std::vector<HeatPlace> places = heat_of(run, {}).places;
  EXPECT_THAT(places, ::testing::Contains(HeatPlace{0, 2, {0, 1}, Lay::dragged}));
  EXPECT_THAT(places, ::testing::Not(::testing::Contains(HeatPlace{1, 2, {0, 1}, Lay::dragged})))
      << "it is dead by then";
}

TEST(Names, AreUniqueAndSayTheLayer) {
  Trace trace;
  trace.layers = {{.name = "layer1.0.conv1"}, {.name = "head"}, {.name = "layer1.0.conv1", .phase = Phase::backward}};
  const auto tensor = [&](std::string name, std::string layer, std::string op) {
    trace.tensors.push_back({.name = std::move(name), .bytes = {64}, .site = {std::move(layer), std::move(op)}});
  };
  tensor("layer1.0.conv1.weight", "", "");
  tensor("aten::convolution 2.0 KiB", "layer1.0.conv1", "aten::convolution");
  tensor("aten::convolution 2.0 KiB", "layer1.0.conv1", "aten::convolution");
  tensor("aten::convolution_backward 2.0 KiB", "layer1.0.conv1", "aten::convolution_backward");
  tensor("aten::empty 2.0 KiB", "", "aten::empty");
  tensor("aten::empty 2.0 KiB", "", "aten::empty");
  trace.tensors[0].persistent = true;
  trace.ops = {{.layer = LayerIndex{0}, .phase = Phase::forward, .reads = {{0}}, .writes = {{2}}},
               {.layer = LayerIndex{0}, .phase = Phase::forward, .reads = {{2}}, .writes = {{1}}},
               {.layer = LayerIndex{1}, .phase = Phase::forward, .reads = {{1}}, .writes = {{4}}},
               {.layer = LayerIndex{2}, .phase = Phase::backward, .reads = {{4}}, .writes = {{3}, {5}}}};
  name_tensors(trace);
  std::vector<std::string> names;
  for (const Tensor& each : trace.tensors) names.push_back(each.name);
  EXPECT_THAT(names, ElementsAre("layer1.0.conv1.weight", "layer1.0.conv1 output", "layer1.0.conv1 convolution",
                                 "layer1.0.conv1 convolution_backward", "empty", "empty #2"));
}

TEST(Noise, OfThisProcessIsCounted) {
  const ProcessUse before = use_of_process();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  volatile std::uint64_t work = 0;
  while (std::chrono::steady_clock::now() < until) work = work + 1;
  EXPECT_GT(use_of_process().processor, before.processor);
  MachineWatch watch;
  EXPECT_EQ(watch.since_last().steal, std::nullopt) << "since nothing";
  const MachineUse since = watch.since_last();
  EXPECT_GE(since.steal.value_or(Nanoseconds{}).value, 0);
}

TEST(Noise, IsRecordedWithEachStep) {
  const report::Run run = hand_made();
  for (const StepRow& step : run.steps) {
    ASSERT_TRUE(step.noise.has_value()) << step.step;
    EXPECT_GE(step.noise->processor.value, 0);
  }
  EXPECT_TRUE(analyse(run, {}).noise.known);
}

TEST(Noise, MarksADisturbedRun) {
  report::Run run = hand_made();
  run.origin.cores = 2;
  for (StepRow& step : run.steps) {
    step.counters = {};
    step.ended = step.began + Nanoseconds{1'000'000'000};
    step.noise = StepNoise{.elapsed = step.time(),
                           .processor = {1'500'000'000},
                           .switches = 10,
                           .machine = {.elapsed = step.time(), .steal = Nanoseconds{20'000'000}}};
  }
  const Report quiet = analyse(run, {});
  EXPECT_FALSE(quiet.noise.disturbed) << quiet.noise.why;
  EXPECT_NEAR(quiet.noise.steal.value(), 0.01, 1e-9) << "of two processors' time";
  EXPECT_EQ(quiet.noise.processor_wait, std::nullopt);
  EXPECT_THAT(format_text(quiet, nullptr), HasSubstr("processor time, switches  1500.0 ms, 10"));
  report::Run brief = run;
  for (StepRow& step : brief.steps) step.noise->elapsed = {1'000'000}, step.noise->machine.steal = step.time();
  EXPECT_FALSE(analyse(brief, {}).noise.disturbed) << "too short to tell";
  for (StepRow& step : run.steps) step.noise->machine.steal = Nanoseconds{200'000'000};
  const Report stolen = analyse(run, {});
  EXPECT_TRUE(stolen.noise.disturbed);
  EXPECT_EQ(stolen.noise.why,
            "It seems that something disturbed this run, so small differences say nothing: a hypervisor took 10 % of "
            "the processors' time.");
  EXPECT_THAT(stolen.remarks, ::testing::Contains(stolen.noise.why));
  EXPECT_EQ(nlohmann::json::parse(format_json(stolen, nullptr))["run"]["noise"]["disturbed"], true);
  for (StepRow& step : run.steps)
    step.noise->machine = {.elapsed = step.time(), .processor_wait = Nanoseconds{500'000'000}};
  EXPECT_THAT(analyse(run, {}).noise.why, HasSubstr("waited for a processor in 50 % of the time"));
  for (StepRow& step : run.steps)
    step.noise = StepNoise{.elapsed = step.time(), .processor = {}, .switches = 900, .machine = {}};
  EXPECT_THAT(analyse(run, {}).noise.why, HasSubstr("another task took its processor 900 times a step"));
}

}  // namespace
}  // namespace vedette::report::timeline_test
