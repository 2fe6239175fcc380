// The figures of a report on a run whose every figure is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "profiler/report/report.h"
#include "report/hand_made.h"

namespace vedette::report::figures_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Report hand_made(ReportOptions options = {}) {
  const by_hand::Folder folder;
  return analyse(load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value(), options);
}

TEST(ReportHeadline, SaysWhetherItFitsAndHowFastItIs) {
  const Headline h = hand_made({.simulate = {}, .bound = {}, .plain_step = Nanoseconds{55000}}).headline;
  EXPECT_EQ(h.program, "a program");
  EXPECT_EQ(h.policy, "vedette");
  EXPECT_EQ(h.fits, true);
  EXPECT_EQ(h.budget, Bytes{24576});
  EXPECT_EQ(h.peak, Bytes{28672});
  EXPECT_EQ(h.resident_max, Bytes{24576});
  EXPECT_NEAR(h.budget_share, 24576.0 / 28672, 1e-9);
  EXPECT_EQ(h.steps, 5u);
  EXPECT_EQ(h.steady_steps, 3u);
  EXPECT_EQ(h.median_step, Nanoseconds{110000});
  EXPECT_EQ(h.speed_of_plain, 0.5);
  EXPECT_EQ(h.compute, Nanoseconds{4000});
  EXPECT_EQ(h.bound, Nanoseconds{4000});
  EXPECT_EQ(h.stall, Nanoseconds{15000});
  EXPECT_NEAR(h.stall_share, 15.0 / 110, 1e-9);
  EXPECT_EQ(h.moved.in, Bytes{24576});
  EXPECT_EQ(h.faults, 1u);
}

TEST(ReportHeadline, ComparesWithThePlainStepThatTheRecordingKnows) {
  const Headline h = hand_made().headline;
  EXPECT_EQ(h.plain_step, Nanoseconds{99000});
  EXPECT_EQ(h.speed_of_plain, 0.9);
}

TEST(ReportHeadline, BoundsAStepByOpsThatWereSlowOnlyWhileProfiled) {
  const by_hand::Folder folder;
  auto run = load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
  for (Op& op : run.profiles[0].trace.ops) op.time = {1'000'000};
  // As in the shown step: to the ends of the ops at 10, 20, 40 and 90 us, less the stall of 15 us in the last.
  EXPECT_EQ(headline_of(run, {}).compute, Nanoseconds{75000});
}

TEST(ReportHeadline, ShowsTheStepOfMedianTimeAmongThoseThatRanThePlan) {
  const Report r = hand_made();
  EXPECT_EQ(r.steps.shown, 5u);
  EXPECT_EQ(r.steps.rows.size(), 5u);
  EXPECT_TRUE(r.remarks.empty()) << r.remarks.front();
}

TEST(ReportHeadline, SaysWhenAPlainStepWasFasterThanTheBound) {
  const Report slower = hand_made({.simulate = {}, .bound = {}, .plain_step = Nanoseconds{3000}});
  EXPECT_EQ(slower.headline.bound, Nanoseconds{4000});
  EXPECT_THAT(slower.remarks, ElementsAre(HasSubstr("A plain step was faster than the bound")));
  EXPECT_THAT(format_text(slower, nullptr), HasSubstr("bound, as profiled"));
}

TEST(ReportHeadline, CountsNoStepOfWarmUpAsSteady) {
  const by_hand::Folder folder;
  const std::string path = folder.file("killed.vedette");
  {
    auto recorder = Recorder::open({.path = path, .live = false}).value();
    recorder->opened(by_hand::hand_made_machine(), "vedette", {24576}, {by_hand::hand_made_chunk});
    by_hand::tell_step(*recorder, {}, 1, 150000);
  }
  const Report killed = analyse(load_run(path).value(), {});
  EXPECT_EQ(killed.headline.steps, 1u);
  EXPECT_EQ(killed.headline.steady_steps, 0u);
  EXPECT_EQ(killed.steps.shown, 1u);
  EXPECT_THAT(killed.remarks, ::testing::Contains(HasSubstr("No step ran after warm-up and profiling")));
}

TEST(ReportHeadline, TellsHowMuchStepsDifferAndRanksNoRunsWithinThat) {
  const by_hand::Folder folder;
  auto run = load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
  const Report quiet = analyse(run, {});
  EXPECT_EQ(quiet.headline.step_quartiles.begin, Nanoseconds{100000});
  EXPECT_EQ(quiet.headline.step_quartiles.end, Nanoseconds{120000});
  EXPECT_THAT(format_text(quiet, nullptr), HasSubstr("quartiles                 0.1 ms to 0.1 ms"));
  // Three more steady steps, a disturbed run.
  for (const std::int64_t length : {60000, 160000, 170000}) {
    run.steps.push_back(run.steps[2]);
    run.steps.back().ended = run.steps.back().began + Nanoseconds{length};
    run.steady.push_back(run.steps.size() - 1);
  }
  const Report disturbed = analyse(run, {});
  EXPECT_THAT(disturbed.remarks, ElementsAre(HasSubstr("something disturbed this run")));
  EXPECT_THAT(format_text(quiet, &disturbed), HasSubstr("neither is called the faster"));
  Report faster = quiet;
  faster.headline.step_quartiles = {{80000}, {99999}};
  EXPECT_THAT(format_text(quiet, &faster), ::testing::Not(HasSubstr("neither is called")));
}

TEST(ReportMemory, FollowsLiveAndResidentBytesAndPhases) {
  const Memory m = hand_made().memory;
  EXPECT_EQ(m.live_source, "measured");
  ASSERT_EQ(m.samples.size(), 4u);
  EXPECT_EQ(m.samples[1].time, Nanoseconds{20000});
  EXPECT_EQ(m.samples[1].live, Bytes{28672});
  EXPECT_EQ(m.samples[1].resident, Bytes{16384});
  ASSERT_EQ(m.phases.size(), 2u);
  EXPECT_EQ(m.phases[0].phase, "forward");
  EXPECT_EQ(m.phases[0].time.end, Nanoseconds{40000});
  EXPECT_EQ(m.phases[1].time.end, Nanoseconds{90000});
  Bytes in, out;
  for (const MoveRate& rate : m.moved) in += rate.in, out += rate.out;
  EXPECT_EQ(in, Bytes{24576});
  EXPECT_EQ(out, Bytes{24576});
}

// They begin alike and differ at their ends, or in their middle: a column is as wide as it must be, and what is cut is
// cut between.
TEST(ReportText, TellsNamesApartThatBeginAlike) {
  Report run = hand_made();
  const std::string block = "model.decoder.layers.1.self_attention.", deep(70, 'd');
  const std::vector<std::string> names = {block + "q_proj", block + "k_proj", deep + ".q_proj", deep + ".k_proj"};
  run.layers.clear();
  for (const std::string& name : names)
    run.layers.push_back({.layer = static_cast<std::int64_t>(run.layers.size()), .name = name, .phase = "forward"});
  const std::string text = format_text(run, nullptr);
  EXPECT_THAT(text, HasSubstr("\n" + names[0] + " "));
  EXPECT_THAT(text, HasSubstr("\n" + names[1] + " "));
  const std::string cut = std::string(19, 'd') + "..." + std::string(31, 'd');
  EXPECT_THAT(text, HasSubstr("\n" + cut + ".q_proj forward"));
  EXPECT_THAT(text, HasSubstr("\n" + cut + ".k_proj forward"));
}

TEST(ReportLayers, AddUpBytesTimesMovesStallsAndFaults) {
  const auto layers = hand_made().layers;
  ASSERT_EQ(layers.size(), 2u);
  const LayerRow &forward = layers[0], &backward = layers[1];
  EXPECT_EQ(forward.name, "linear");
  EXPECT_EQ(forward.phase, "forward");
  EXPECT_EQ(forward.ops, 3u);
  EXPECT_EQ(forward.time, Nanoseconds{40000});
  EXPECT_EQ(forward.read, Bytes{24576});
  EXPECT_EQ(forward.written, Bytes{12288});
  EXPECT_EQ(forward.moved_in, Bytes{0});
  EXPECT_EQ(forward.moved_out, Bytes{16384});
  EXPECT_EQ(backward.time, Nanoseconds{35000});
  EXPECT_EQ(backward.read, Bytes{24576});
  EXPECT_EQ(backward.written, Bytes{16384});
  EXPECT_EQ(backward.moved_in, Bytes{24576});
  EXPECT_EQ(backward.moved_out, Bytes{8192});
  EXPECT_EQ(backward.stall, Nanoseconds{15000});
  EXPECT_EQ(backward.faults, 1u);
}

TEST(ReportTensors, TellLifetimesAccessesClassesTiersAndMoves) {
  const auto tensors = hand_made().tensors;
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].role, "weight");
  EXPECT_THAT(tensors[0].shape, ElementsAre(64, 64));
  EXPECT_EQ(tensors[0].reads, 2u);
  EXPECT_EQ(tensors[0].writes, 1u);
  EXPECT_EQ(tensors[0].longest_gap, Nanoseconds{1000});
  EXPECT_EQ(tensors[0].warmth, Warmth::cold) << "out and back take 528 ns";
  EXPECT_EQ(tensors[0].tier, "nvme");
  EXPECT_EQ(tensors[0].fetches, 2u);
  EXPECT_EQ(tensors[0].evictions, 2u);
  EXPECT_EQ(tensors[1].warmth, Warmth::hot);
  EXPECT_EQ(tensors[1].site, "linear, mm");
  EXPECT_EQ(tensors[1].tier, "dram");
  EXPECT_EQ(tensors[1].life->end, 4u);
  EXPECT_EQ(tensors[2].warmth, Warmth::short_lived);
  EXPECT_EQ(tensors[2].life->begin, 1u);
  EXPECT_EQ(tensors[2].life->end, 3u);
  EXPECT_EQ(tensors[2].fetches, 0u) << "what moved in its chunk moved after its death";
}

TEST(ReportShortLived, CountsWhatLivesWithinOneLayer) {
  const ShortLived s = hand_made().short_lived;
  EXPECT_EQ(s.tensors, 1u);
  EXPECT_EQ(s.all_tensors, 3u);
  EXPECT_EQ(s.bytes, Bytes{4096});
  EXPECT_EQ(s.all_bytes, Bytes{28672});
  EXPECT_EQ(s.peak, Bytes{4096});
  EXPECT_EQ(s.scratch_peak, Bytes{512});
}

TEST(ReportSharing, FindsNoneWhereEachTensorHasItsOwnChunk) {
  const Sharing s = hand_made().sharing;
  EXPECT_TRUE(s.known);
  EXPECT_EQ(s.pages_after.used, 7u);
  EXPECT_EQ(s.chunks_after.used, 4u);
  EXPECT_EQ(s.chunks_after.shared, 0u);
}

// Two small tensors of different layers: an ordinary allocator lays them side by side.
TEST(ReportSharing, MeasuresWhatAnOrdinaryAllocatorWouldHaveMixed) {
  report::Run run{.chunk = {8192}};
  Profile& p = run.profiles.emplace_back();
  run.profile = 0;
  p.trace.layers = {{.name = "a"}, {.name = "b"}};
  p.trace.tensors = {{.name = "x", .bytes = {1024}, .persistent = true},
                     {.name = "y", .bytes = {2048}, .persistent = true}};
  p.trace.ops = {{.name = "f", .layer = LayerIndex{0}, .reads = {{0}}},
                 {.name = "g", .layer = LayerIndex{1}, .reads = {{1}}}};
  p.places = {0, 8192};
  const Sharing s = sharing_of(run);
  EXPECT_EQ(s.pages_before.used, 1u);
  EXPECT_EQ(s.pages_before.shared, 1u);
  EXPECT_EQ(s.pages_before.dragged, Bytes{3072}) << "2048 of y with layer a, 1024 of x with layer b";
  EXPECT_EQ(s.pages_after.used, 2u);
  EXPECT_EQ(s.pages_after.shared, 0u);
  EXPECT_EQ(s.chunks_after.dragged, Bytes{0});
  p.trace.ops[0].reads = {{0}, {1}};
  p.trace.ops[1].reads = {{0}, {1}};
  EXPECT_EQ(sharing_of(run).pages_before.shared, 0u) << "tensors of one habit may share";
}

TEST(ReportReuse, MeasuresTheBytesBetweenTwoAccesses) {
  const Reuse reuse = hand_made().reuse;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> bins;
  for (const ReuseBin& b : reuse.histogram)
    if (b.accesses > 0) bins[b.least.value] = {b.accesses, b.bytes.value};
  EXPECT_EQ(bins, (decltype(bins){{0, {2, 24576}}, {4096, {1, 8192}}, {8192, {2, 20480}}, {16384, {1, 8192}}}));
  EXPECT_FALSE(reuse.simulated);
  ASSERT_FALSE(reuse.curve.empty());
  EXPECT_EQ(reuse.curve.back().lru_in, Bytes{0}) << "with the whole peak nothing is fetched";
  const auto quarter_less =
      std::find_if(reuse.curve.begin(), reuse.curve.end(), [](const CurvePoint& p) { return p.share == 0.75; });
  ASSERT_NE(quarter_less, reuse.curve.end());
  EXPECT_EQ(quarter_less->lru_in, std::nullopt) << "the first op has 24576 bytes of operands and 512 of scratch";
}

// A table of eight chunks, of which an op looks up rows in two and updates those of one.
TEST(ReportReuse, SimulatesRowsWherePagesWereTracked) {
  report::Run run{.budget = {16384}, .chunk = {8192}};
  run.profile = 0;
  Profile& p = run.profiles.emplace_back();
  p.tracked = true;
  p.trace.tensors = {{.name = "table", .bytes = {65536}, .persistent = true}, {.name = "out", .bytes = {4096}}};
  p.trace.ops = {{.name = "look up", .time = {1}, .reads = {{0}}, .writes = {{1}}},
                 {.name = "update", .time = {1}, .reads = {{0}, {1}}, .writes = {{0}}}};
  p.trace.pages = {{.op = {0}, .tensor = {0}, .pages = {2, 3}, .read = true},
                   {.op = {0}, .tensor = {0}, .pages = {10, 11}, .read = true},
                   {.op = {0}, .tensor = {1}, .pages = {0, 1}, .written = true},
                   {.op = {1}, .tensor = {0}, .pages = {2, 3}, .read = true, .written = true},
                   {.op = {1}, .tensor = {1}, .pages = {0, 1}, .read = true}};
  const Trace cut = simulated_trace(run);
  EXPECT_EQ(peak_bytes(cut), peak_bytes(p.trace)) << "nothing is lost";
  EXPECT_EQ(largest_op_bytes(p.trace), Bytes{69632});
  EXPECT_EQ(largest_op_bytes(cut), Bytes{20480}) << "two chunks and the output";
  EXPECT_EQ(cut.tensors.size(), 6u) << "runs: before, read and written, between, read, after; and the output";
  EXPECT_THAT(cut.ops[1].reads, ElementsAre(TensorIndex{1}, TensorIndex{5}));
  EXPECT_THAT(cut.ops[1].writes, ElementsAre(TensorIndex{1}));
  EXPECT_THAT(analyse(run, {}).remarks, ::testing::Contains(HasSubstr("steps that touch other rows fetch more")));
  p.tracked = false;
  EXPECT_EQ(simulated_trace(run).tensors.size(), 2u);
}

TEST(ReportReuse, AsksTheSimulatorForEachBudgetAndKeepsItsReasonWhereItHasNone) {
  const Simulate simulate = [](const Trace&, const Machine& machine, std::string_view policy) -> Result<Simulated> {
    EXPECT_EQ(policy, "vedette");
    EXPECT_EQ(machine.granule, Bytes{1})
        << "with the whole peak nothing may move, however many small tensors there are";
    if (machine.tiers[0].capacity < Bytes{20000}) return Error{Cause::infeasible, "too little"};
    return Simulated{.step = {7000}, .stall = {3000}, .bytes_in = {1}, .bytes_out = {2}};
  };
  const Reuse reuse = hand_made({.simulate = simulate, .bound = {}, .plain_step = {}}).reuse;
  EXPECT_TRUE(reuse.simulated);
  EXPECT_EQ(reuse.curve.back().step, Nanoseconds{7000});
  EXPECT_EQ(reuse.curve.front().step, std::nullopt);
  EXPECT_EQ(reuse.curve.front().note, "too little");
}

TEST(ReportReuse, AsksAboutAnotherMachineForOtherBudgetsAlone) {
  Machine other = by_hand::hand_made_machine();
  other.links[0].bytes_per_s = 1;
  ReportOptions options;
  options.machine = other;
  options.bound = [](const Trace&, const Machine& machine) {
    return Nanoseconds{machine.links[0].bytes_per_s == 1 ? 9000 : 4000};
  };
  options.simulate = [](const Trace&, const Machine& machine, std::string_view) -> Result<Simulated> {
    EXPECT_EQ(machine.links[0].bytes_per_s, 1u);
    return Simulated{.step = {7000}, .stall = {}, .bytes_in = {}, .bytes_out = {}};
  };
  const Report report = hand_made(options);
  EXPECT_EQ(report.headline.bound, Nanoseconds{4000}) << "of the run as it was";
  EXPECT_EQ(report.waterfall.bound, Nanoseconds{4000});
  EXPECT_EQ(report.reuse.curve.back().bound, Nanoseconds{9000});
  EXPECT_EQ(report.machine, by_hand::hand_made_machine());
  EXPECT_THAT(report.remarks, ElementsAre(HasSubstr("on the machine that was named")));
}

TEST(ReportPlan, TellsWhatCameInTimeLateNeedlesslyOrUnplanned) {
  const PlanFigures p = hand_made().plan;
  ASSERT_TRUE(p.known);
  EXPECT_EQ(p.planned_fetches, 3u);
  EXPECT_EQ(p.planned_evictions, 2u);
  EXPECT_EQ(p.in_time, 1u);
  EXPECT_EQ(p.late, 1u);
  EXPECT_EQ(p.early, 0u);
  EXPECT_EQ(p.not_needed, 1u);
  EXPECT_EQ(p.wasted, 1u);
  EXPECT_EQ(p.missed, 1u);
  EXPECT_EQ(p.unplanned_evictions, 1u);
  EXPECT_EQ(p.late_wait, Nanoseconds{15000});
  EXPECT_EQ(p.moves.front().fate, "late");
  EXPECT_EQ(p.moves.front().lead, Nanoseconds{-15000});
  EXPECT_THAT(p.reasons, ElementsAre("the weight is not read between the first op and the last"));
}

// An evaluation, or a checkpoint. Their moves are recorded with the step before.
TEST(ReportPlan, LeavesOutWhatMovesBetweenSteps) {
  const by_hand::Folder folder;
  report::Run run = load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
  const PlanFigures before = plan_of(run);
  const Nanoseconds end = run.shown_step()->ended;
  for (const auto& [verb, cause] : {std::pair("evict", "room"), std::pair("fetch", "urgent")})
    run.moves.push_back({.verb = verb, .cause = cause, .issued = end, .started = end, .ended = end + Nanoseconds{9}});
  const PlanFigures after = plan_of(run);
  EXPECT_EQ(after.missed, before.missed);
  EXPECT_EQ(after.unplanned_evictions, before.unplanned_evictions);
}

TEST(ReportOverhead, ComparesTheProfilingStepAndSumsWhatIsNotManaged) {
  const Overhead o = hand_made().overhead;
  EXPECT_EQ(o.profiling_step, Nanoseconds{220000});
  EXPECT_EQ(o.warm_up_step, Nanoseconds{150000});
  EXPECT_EQ(o.profiling_cost, 2.0);
  ASSERT_TRUE(o.process.has_value());
  EXPECT_EQ(o.unmanaged->value, o.process->value - 24576);
  EXPECT_EQ(o.events_dropped, 0u);
}

TEST(ReportFollowed, TellsWhatTheStepsOfEachPhaseCost) {
  const std::vector<Followed> followed = hand_made().followed;
  ASSERT_EQ(followed.size(), 3u);
  EXPECT_EQ(followed[0].phase, "warm-up");
  EXPECT_EQ(followed[1].time, Nanoseconds{220000});
  EXPECT_EQ(followed[2].phase, "planned");
  EXPECT_EQ(followed[2].steps, 3u);
  EXPECT_EQ(followed[2].stall, Nanoseconds{45000});
  EXPECT_EQ(followed[2].faults, 3u);
  EXPECT_THAT(format_text(hand_made(), nullptr), HasSubstr("What steps followed"));
}

TEST(ReportText, HasTheSameFigures) {
  const std::string text = format_text(hand_made(), nullptr);
  for (const char* part :
       {"stays within the budget   yes", "24.0 KiB (86 %)", "28.0 KiB", "0.1 ms of 3",
        "3: 1 in time, 1 late, 0 early, 1 not needed", "1 of 3, 4.0 KiB of 28.0 KiB", "short-lived", "linear",
        "Where the step's time goes", "stalls: late fetch        + 15.0 us    most in linear 15.0 us",
        "What to change\n--------------\nNo simulator was asked for advice."})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(ReportText, PutsTwoRunsSideBySide) {
  const Report run = hand_made();
  const std::string text = format_text(run, &run);
  EXPECT_THAT(text, HasSubstr("this run               the other"));
  EXPECT_THAT(text, HasSubstr("step, median                         0.1 ms of 3             0.1 ms of 3"));
}

TEST(ReportCompared, SortsLayersByWhatChanged) {
  Report run = hand_made(), other = run;
  run.layers = {{.layer = 0, .name = "a", .phase = "forward", .time = {100}, .moved_in = {8}},
                {.layer = 1, .name = "a", .phase = "backward", .time = {100}, .stall = {50}},
                {.layer = 2, .name = "gone", .phase = "forward", .time = {40}}};
  other.layers = {{.layer = 0, .name = "new", .phase = "forward", .time = {30}},
                  {.layer = 1, .name = "a", .phase = "forward", .time = {101}, .moved_out = {24}},
                  {.layer = 2, .name = "a", .phase = "backward", .time = {90}}};
  std::vector<std::tuple<std::string, std::string, std::int64_t>> told;
  for (const LayerDifference& each : compared(run, other)) told.emplace_back(each.name, each.phase, each.change.value);
  using T = std::tuple<std::string, std::string, std::int64_t>;
  EXPECT_THAT(told, ElementsAre(T{"a", "backward", -60}, T{"gone", "forward", -40}, T{"new", "forward", 30},
                                T{"a", "forward", 1}));
  EXPECT_EQ(compared(run, other)[3].here.moved, Bytes{8});
  EXPECT_EQ(compared(run, other)[3].there.moved, Bytes{24});
  const std::string text = format_text(run, &other);
  EXPECT_THAT(text, HasSubstr("Layers of both runs, by what changed"));
  EXPECT_THAT(text, HasSubstr("##########|          \n")) << "the largest change, to the left: the other is faster";
  EXPECT_THAT(text, HasSubstr("|#####     \n"));
  EXPECT_LT(text.find("gone "), text.find("new  "));
}

TEST(ReportPage, LeavesOutTheTensorsThatMovedLeastAndSaysHowMany) {
  Report report = hand_made();
  report.tensors.clear();
  for (std::uint32_t t = 0; t < 10; ++t)
    report.tensors.push_back({.tensor = t, .bytes = {1000 - t}, .fetches = t == 8 ? 1u : 0u});
  report.heat.rows = {{.first_tensor = 6, .last_tensor = 7, .pages = 2}};
  report.heat.ranges = {{.layer = 0, .tensor = 1, .pages = {0, 1}}, {.layer = 0, .tensor = 5, .pages = {0, 1}}};
  report.heat.order = {0, 5, 9};
  shorten(report, 3);
  std::vector<std::uint32_t> kept;
  for (const TensorRow& row : report.tensors) kept.push_back(row.tensor);
  EXPECT_THAT(kept, ElementsAre(0, 1, 6, 7, 8)) << "what moved, the largest, and those that the heat map names";
  EXPECT_EQ(report.tensors_left_out, 5u);
  EXPECT_EQ(report.heat.ranges.size(), 1u);
  EXPECT_EQ(report.heat.ranges_left_out, 1u);
  EXPECT_THAT(report.heat.order, ElementsAre(0u));
}

void list_keys(const nlohmann::json& value, const std::string& path, std::set<std::string>& keys) {
  if (value.is_array() && !value.empty()) return list_keys(value.front(), path + "[]", keys);
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) {
    keys.insert(path + "." + key);
    list_keys(inner, path + "." + key, keys);
  }
}

TEST(ReportJson, HasTheFiguresUnderTheKeysThatAreDocumented) {
  const auto json = nlohmann::json::parse(format_json(hand_made(), nullptr));
  EXPECT_EQ(json["format"], "vedette-report-1");
  EXPECT_EQ(json["run"]["headline"]["median_step_ns"], 110000);
  EXPECT_EQ(json["run"]["headline"]["speed_of_plain"], 0.9);
  EXPECT_EQ(json["run"]["layers"][1]["moved_in_bytes"], 24576);
  EXPECT_EQ(json["run"]["tensors"][2]["class"], "short-lived");
  EXPECT_EQ(json["run"]["plan"]["late"], 1);
  EXPECT_FALSE(json.contains("other"));
  std::set<std::string> keys;
  list_keys(json["run"], "", keys);
  std::ifstream file(VEDETTE_SOURCE_DIR "/docs/report.md");
  const std::string manual{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& key : keys) {
    const std::string name = key.substr(key.rfind('.') + 1);
    EXPECT_THAT(manual, HasSubstr("`" + name + "`")) << key << " is not in docs/report.md";
  }
}

}  // namespace
}  // namespace vedette::report::figures_test
