// The way from the bound to the step, by cause, and the advice that a simulator prices: on a run whose every figure is
// known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/chunked.h"
#include "cli/nearest.h"
#include "model/producers.h"
#include "profiler/report/report.h"
#include "report/hand_made.h"

namespace vedette::report::advice_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Run hand_made() {
  const by_hand::Folder folder;
  return load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
}

Waterfall fall_of(const Run& run, const ReportOptions& options = {}) {
  return waterfall_of(run, headline_of(run, options));
}

const LostTime& lost(const Waterfall& fall, Lost cause) { return fall.lost.at(static_cast<std::size_t>(cause)); }

void expect_whole(const Waterfall& fall) {
  Nanoseconds sum = fall.bound;
  for (const LostTime& each : fall.lost) {
    sum += each.time;
    Nanoseconds layers;
    for (const LayerTime& layer : each.layers) layers += layer.time;
    EXPECT_EQ(layers, each.time + each.in_bound) << name_of(each.cause);
  }
  EXPECT_EQ(sum, fall.step + fall.ahead);
}

TEST(Waterfall, LeadsFromTheBoundToTheStepByCauseAndLayer) {
  const Waterfall fall = fall_of(hand_made());
  ASSERT_TRUE(fall.known);
  expect_whole(fall);
  EXPECT_EQ(fall.bound, Nanoseconds{4000});
  EXPECT_EQ(fall.step, Nanoseconds{110000});
  // 75,000 ns of the ops less 4,000 of the profile and 1,000 in a fault, and 20,000 after the last op.
  EXPECT_EQ(lost(fall, Lost::operators).time, Nanoseconds{90000});
  EXPECT_EQ(fall.beside_moves, Nanoseconds{61000}) << "nothing moves beside the first op, and nothing after the last";
  EXPECT_EQ(lost(fall, Lost::late_fetch).time, Nanoseconds{15000});
  EXPECT_EQ(lost(fall, Lost::no_room).time, Nanoseconds{0});
  EXPECT_EQ(lost(fall, Lost::write).time, Nanoseconds{0});
  EXPECT_EQ(lost(fall, Lost::fault).time, Nanoseconds{1000});
  ASSERT_EQ(lost(fall, Lost::operators).layers.size(), 3u);
  EXPECT_EQ(lost(fall, Lost::operators).layers[0].layer, 0);
  EXPECT_EQ(lost(fall, Lost::operators).layers[0].time, Nanoseconds{38000});
  EXPECT_EQ(lost(fall, Lost::operators).layers[1].time, Nanoseconds{32000});
  EXPECT_EQ(lost(fall, Lost::operators).layers[2].layer, -1);
  EXPECT_EQ(lost(fall, Lost::late_fetch).layers.at(0).layer, 1);
}

TEST(Waterfall, TellsAWaitForAWriteFromOneForRoomAndOneForAFetch) {
  report::Run run = hand_made();
  const Nanoseconds base = run.shown_step()->began;
  const auto at = [&](std::int64_t ns) { return base + Nanoseconds{ns}; };
  run.faults.clear();
  run.moves = {{.verb = "evict", .cause = "room", .started = at(11000), .ended = at(16000)},
               {.verb = "evict", .cause = "room", .started = at(46000), .ended = at(50000)},
               {.verb = "fetch", .cause = "urgent", .started = at(49000), .ended = at(60000)},
               {.verb = "drop", .cause = "room", .started = at(50000), .ended = at(60000)}};
  run.stalls = {{.op = 1, .in_allocation = true, .began = at(12000), .ended = at(18000)},
                {.op = 3, .in_allocation = false, .began = at(45000), .ended = at(60000)}};
  const Waterfall fall = fall_of(run);
  expect_whole(fall);
  EXPECT_EQ(lost(fall, Lost::write).time, Nanoseconds{4000 + 3000}) << "in the allocation, and until the fetch began";
  EXPECT_EQ(lost(fall, Lost::no_room).time, Nanoseconds{2000});
  EXPECT_EQ(lost(fall, Lost::late_fetch).time, Nanoseconds{12000});
}

TEST(Waterfall, TakesWaitsThatNoPlanAvoidsOffTheCauses) {
  const report::Run run = hand_made();
  const auto with_bound = [&](std::int64_t ns) {
    return fall_of(run, {.simulate = {}, .bound = [ns](const Trace&, const Machine&) { return Nanoseconds{ns}; }});
  };
  const Waterfall fall = with_bound(14000);
  expect_whole(fall);
  EXPECT_EQ(lost(fall, Lost::late_fetch).time, Nanoseconds{5000});
  EXPECT_EQ(lost(fall, Lost::late_fetch).in_bound, Nanoseconds{10000});
  const Waterfall ahead = with_bound(130000);
  expect_whole(ahead);
  EXPECT_EQ(ahead.ahead, Nanoseconds{20000}) << "a step may pass the bound of whole ops";
}

TEST(Waterfall, KnowsTheLeastTimeOfEachOpFromAllSteadySteps) {
  report::Run run = hand_made();
  for (Op& op : run.profiles[0].trace.ops) op.time = {1'000'000};
  EXPECT_THAT(run.fastest, ElementsAre(Nanoseconds{10000}, Nanoseconds{10000}, Nanoseconds{20000}, Nanoseconds{35000}));
  run.fastest[2] = {12000};  // as another step had it
  const Waterfall fall = fall_of(run);
  expect_whole(fall);
  EXPECT_EQ(fall.bound, Nanoseconds{67000});
  EXPECT_EQ(lost(fall, Lost::operators).layers[0].time, Nanoseconds{20000}) << "after the last op";
  EXPECT_EQ(lost(fall, Lost::operators).layers[1].time, Nanoseconds{8000});
}

TEST(Waterfall, IsNotKnownWithoutAWholeStep) {
  report::Run run = hand_made();
  run.ops.pop_back();
  EXPECT_FALSE(fall_of(run).known);
  EXPECT_THAT(advised_of(run, {}, fall_of(run)).note, HasSubstr("Advice needs a recorded step"));
}

// A simulator whose step takes 50 us, some of it waits, less what each change is worth.
struct Worth {
  std::int64_t early = 0, more = 0, chunk = 0, policy = 0, less = 0, recompute = 0;
  double moved_with_more = 1;  // of the bytes as it was
  std::int64_t waits = 25000;  // as it was
};

ReportOptions priced(Worth worth) {
  ReportOptions options;
  options.adviser.in_chunks = [](const Trace& trace, const Machine&, std::string_view) { return trace; };
  options.adviser.policies = {"vedette", "sentinel"};
  options.adviser.simulate = [worth](const Trace& trace, const Machine& machine,
                                     std::string_view policy) -> Result<Simulated> {
    EXPECT_TRUE(machine.habits.early_fetches) << "as sessions move";
    std::int64_t step = 50000;
    if (trace.ops.back().phase != Phase::optimizer) step -= worth.early;
    if (machine.tiers[0].capacity > Bytes{24576}) step -= worth.more;
    if (machine.tiers[0].capacity < Bytes{24576}) step -= worth.less;
    if (machine.granule != Bytes{8192}) step -= worth.chunk;
    if (policy != "vedette") step -= worth.policy;
    if (machine.can_recompute) step -= worth.recompute;
    const double moved = machine.tiers[0].capacity > Bytes{24576} ? worth.moved_with_more : 1;
    return Simulated{.step = {step},
                     .stall = {step - 50000 + worth.waits},
                     .bytes_in = {static_cast<std::uint64_t>(1000 * moved)},
                     .bytes_out = {},
                     .late = step < 50000 ? 1u : 3u,
                     .recompute = {machine.can_recompute ? 700 : 0}};
  };
  return options;
}

Advised advice(const Run& run, const ReportOptions& options) { return advised_of(run, options, fall_of(run)); }

TEST(Advice, PricesEachChangeByWhatItDoesToTheMeasuredWaits) {
  const report::Run run = hand_made();
  const Advised advised = advice(run, priced({.more = 20000, .policy = 11000, .less = 0}));
  EXPECT_EQ(advised.simulated, Nanoseconds{50000});
  ASSERT_EQ(advised.lines.size(), 3u);
  EXPECT_EQ(advised.lines[0].change, Change::more_memory);
  EXPECT_EQ(advised.lines[0].step, Nanoseconds{95000})
      << "110,000 measured with waits of 15,000: of 25,000 simulated ones 5,000 stay, which slower operators hide";
  EXPECT_EQ(advised.lines[0].budget, Bytes{32768}) << "in whole chunks, up to the peak";
  EXPECT_EQ(advised.lines[0].late_fewer, 2);
  EXPECT_EQ(advised.lines[0].sentence,
            "Give it 8.0 KiB more memory (32.0 KiB): 0.1 ms -> 0.1 ms, with 2 late fetches less.");
  EXPECT_EQ(advised.lines[1].change, Change::policy);
  EXPECT_EQ(advised.lines[1].policy, "sentinel");
  EXPECT_EQ(advised.lines[1].step, Nanoseconds{99000});
  EXPECT_EQ(advised.lines[2].change, Change::less_memory);
  EXPECT_EQ(advised.lines[2].budget, Bytes{8192}) << "it costs nothing there";
  EXPECT_EQ(advised.note, "");
}

TEST(Advice, RecomputesWhereTheSessionDidNotAndCountsWhatThatTakes) {
  report::Run run = hand_made();
  ReportOptions options = priced({.less = -9000, .recompute = 15000});
  int laid_to_recompute = 0;
  options.adviser.in_chunks = [&](const Trace& trace, const Machine& machine, std::string_view) {
    laid_to_recompute += machine.can_recompute ? 1 : 0;
    return trace;
  };
  const Advised advised = advice(run, options);
  ASSERT_EQ(advised.lines.size(), 1u);
  EXPECT_EQ(advised.lines[0].change, Change::recompute);
  EXPECT_EQ(laid_to_recompute, 1);
  EXPECT_EQ(advised.lines[0].step, Nanoseconds{110000 - 15000 + 700}) << "waits as simulated, and the ops";
  EXPECT_THAT(advised.lines[0].sentence, HasSubstr(".recompute = vedette::Recompute::planned"));
  run.machine.can_recompute = true;
  EXPECT_THAT(advice(run, options).lines, IsEmpty()) << "it does already";
  EXPECT_EQ(advice(run, options).simulated, Nanoseconds{35000}) << "and is simulated so";
}

TEST(Advice, SaysWhatABoundOfWritesCosts) {
  report::Run run = hand_made();
  constexpr std::uint64_t bound = 5'787'037, without = 900'000'000;  // 500 GB a day
  run.origin.disk_writes = {.bound = {bound}, .without = {without}};
  ReportOptions options = priced({.less = -9000});
  options.adviser.simulate = [inner = options.adviser.simulate](const Trace& trace, const Machine& machine,
                                                                std::string_view policy) {
    auto ran = inner(trace, machine, policy);
    const TierIndex disk{static_cast<std::uint32_t>(machine.tiers.size() - 1)};
    for (const Link& link : machine.links)
      if (link.source == TierIndex{0} && link.target == disk && link.bytes_per_s == without) ran->stall.value -= 10000;
    return ran;
  };
  const Advised advised = advice(run, options);
  ASSERT_EQ(advised.lines.size(), 1u);
  EXPECT_EQ(advised.lines[0].change, Change::no_bound);
  EXPECT_LT(advised.lines[0].step, Nanoseconds{110000});
  EXPECT_THAT(advised.lines[0].sentence, HasSubstr("Without max_writes (500 GB a day): 0.1 ms -> "));
  run.origin.disk_writes = {};
  EXPECT_THAT(advice(run, options).lines, IsEmpty());
}

// What it says of a change is a difference of times, and other load makes larger ones.
TEST(Advice, IsWithheldWhereOtherLoadDisturbedTheRun) {
  const report::Run run = hand_made();
  const Noise quiet{.known = true, .processor_wait = 0.02},
      disturbed{.known = true,
                .processor_wait = 0.98,
                .disturbed = true,
                .why = "It seems that something disturbed this run"};
  const ReportOptions options = priced({.more = 20000, .less = -9000});
  EXPECT_EQ(advised_of(run, options, fall_of(run), quiet).lines.size(), 1u);
  const Advised none = advised_of(run, options, fall_of(run), disturbed);
  EXPECT_THAT(none.lines, IsEmpty());
  EXPECT_THAT(none.note, HasSubstr("No advice: other load disturbed this run"));
  Report report = analyse(run, {});
  report.noise = disturbed;
  report.waterfall.processor_wait = disturbed.processor_wait;
  EXPECT_THAT(format_text(report, nullptr), HasSubstr("tasks waited for one in 98 % of the time: no plan's doing"));
}

TEST(Advice, SpellsOptionsAsTheProgramsLanguageDoes) {
  report::Run run = hand_made();
  const ReportOptions options = priced({.less = -9000, .recompute = 15000});
  const auto sentences = [&] {
    std::string all;
    for (const Advice& line : advice(run, options).lines) all += line.sentence;
    return all;
  };
  run.origin.command = "./train --layers 4";
  EXPECT_THAT(sentences(), HasSubstr("(.recompute = vedette::Recompute::planned)"));
  run.origin.command = "python3 train.py";
  EXPECT_THAT(sentences(), HasSubstr("(recompute=\"planned\")"));
}

TEST(Advice, TakesOffWhatOperatorsTookLongerBesideBytesThatNoLongerMove) {
  const report::Run run = hand_made();
  const Advised advised = advice(run, priced({.more = 20000, .less = -9000, .moved_with_more = 0.5}));
  ASSERT_EQ(advised.lines.size(), 1u);
  EXPECT_EQ(advised.lines[0].step, Nanoseconds{95000 - 61000 / 2});
}

TEST(Advice, ShrinksWaitsInProportionWhereTheSimulatedRunHasLessThanTheMeasuredOne) {
  const Advised advised = advice(hand_made(), priced({.more = 5000, .less = -9000, .waits = 10000}));
  ASSERT_EQ(advised.lines.size(), 1u);
  EXPECT_EQ(advised.lines[0].step, Nanoseconds{110000 - 15000 / 2});
}

TEST(Advice, AddsWaitsThatAreNewAsTheyAreSimulated) {
  const report::Run run = hand_made();
  const Advised advised = advice(run, priced({.less = -300}));
  ASSERT_EQ(advised.lines.size(), 1u);
  EXPECT_EQ(advised.lines[0].change, Change::less_memory);
  EXPECT_EQ(advised.lines[0].step, Nanoseconds{110300});
}

TEST(Advice, KnowsThatSmallChunksMoveMoreSlowly) {
  report::Run run = hand_made();
  run.chunk = 2_MiB;
  run.budget = 64_MiB;
  for (Link& link : run.machine.links) link.bytes_per_s = 2'000'000'000;
  std::map<std::uint64_t, std::uint64_t> speeds;
  ReportOptions options = priced({});
  options.adviser.simulate = [&](const Trace&, const Machine& machine, std::string_view) -> Result<Simulated> {
    if (machine.tiers[0].capacity == 64_MiB) speeds[machine.granule.value] = machine.links[0].bytes_per_s;
    return Simulated{.step = {50000}, .stall = {25000}, .bytes_in = {}, .bytes_out = {}};
  };
  advice(run, options);
  EXPECT_EQ(speeds.at(2 << 20), 2'000'000'000u) << "as measured";
  EXPECT_NEAR(static_cast<double>(speeds.at(256 << 10)), 1'540'000'000, 20'000'000)
      << "45 us a chunk, which 2 MiB have once";
  EXPECT_GT(speeds.at(4 << 20), 2'000'000'000u);
}

TEST(Advice, OfAGpuHasNoChunks) {
  report::Run run = hand_made();
  run.machine.whole_tensors = true;
  ReportOptions options = priced({.more = 20000, .chunk = 30000});
  options.adviser.in_chunks = [](const Trace& trace, const Machine&, std::string_view) {
    ADD_FAILURE() << "tensors move whole there";
    return trace;
  };
  run.machine.granule = {8192};
  for (const Advice& line : advice(run, options).lines) EXPECT_NE(line.change, Change::chunk) << line.sentence;
  EXPECT_FALSE(advice(run, options).lines.empty());
}

TEST(Advice, SaysWhyThereIsNone) {
  const report::Run run = hand_made();
  EXPECT_THAT(advice(run, priced({.less = -9000})).note, HasSubstr("No change that was simulated"));
  ReportOptions broken = priced({});
  broken.adviser.simulate = [](const Trace&, const Machine&, std::string_view) -> Result<Simulated> {
    return Error{Cause::unavailable, "the time is over"};
  };
  EXPECT_EQ(advice(run, broken).note, "The run as it was could not be simulated: the time is over.");
  int left = 2;  // simulations
  ReportOptions brief = priced({.more = 20000});
  brief.adviser.simulate = [&, all = brief.adviser.simulate](const Trace& trace, const Machine& machine,
                                                             std::string_view policy) -> Result<Simulated> {
    if (left-- > 0) return all(trace, machine, policy);
    return Error{Cause::unavailable, "the time is over"};
  };
  EXPECT_EQ(advice(run, brief).lines.size(), 1u);
  left = 2;
  EXPECT_THAT(advice(run, brief).note, HasSubstr("was over before every change was tried"));
  EXPECT_THAT(advice(run, {}).lines, IsEmpty());
}

// Two parameters, each with a gradient and a state; the second one's gradient is complete first.
Trace two_updates() {
  Trace trace;
  for (const char* name : {"w1", "w2", "m1", "m2"})
    trace.tensors.push_back({.name = name, .bytes = {4096}, .kind = TensorKind::weight, .persistent = true});
  for (const char* name : {"g1", "g2"})
    trace.tensors.push_back({.name = name, .bytes = {4096}, .kind = TensorKind::gradient});
  trace.tensors.push_back({.name = "x", .bytes = {4096}});
  const auto op = [&](std::string name, Phase phase, std::vector<TensorIndex> reads, std::vector<TensorIndex> writes,
                      std::vector<TensorIndex> frees = {}) {
    trace.ops.push_back({.name = std::move(name),
                         .phase = phase,
                         .time = {1000},
                         .reads = std::move(reads),
                         .writes = std::move(writes),
                         .frees = std::move(frees)});
  };
  op("forward", Phase::forward, {{0}, {1}}, {{6}});
  op("back 2", Phase::backward, {{1}, {6}}, {{5}});
  op("back 1", Phase::backward, {{0}, {6}}, {{4}});
  op("update 1", Phase::optimizer, {{2}, {4}}, {{0}, {2}});
  op("update 2", Phase::optimizer, {{3}, {5}}, {{1}, {3}}, {{4}, {5}, {6}});
  return trace;
}

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const Op& op : trace.ops) names.push_back(op.name);
  return names;
}

TEST(EarlyUpdates, FollowTheirGradientAndFreeIt) {
  const auto early = updated_early(two_updates());
  ASSERT_TRUE(early.has_value());
  EXPECT_THAT(names_of(*early), ElementsAre("forward", "back 2", "update 2", "back 1", "update 1"));
  EXPECT_THAT(early->ops[2].frees, ElementsAre(TensorIndex{5}));
  EXPECT_THAT(early->ops[3].frees, ElementsAre(TensorIndex{6})) << "what the optimizer only let go of, after backward";
  EXPECT_THAT(early->ops[4].frees, ElementsAre(TensorIndex{4}));
}

TEST(EarlyUpdates, WaitForTheLastUseOfTheWeight) {
  Trace trace = two_updates();
  trace.ops[2].reads = {{0}, {1}, {6}};  // back 1 needs both weights
  EXPECT_EQ(updated_early(trace), std::nullopt) << "nothing runs earlier";
}

TEST(EarlyUpdates, StayWhereOneOperatorLooksAtAllGradients) {
  Trace trace = two_updates();
  trace.ops.insert(trace.ops.begin() + 3,
                   {.name = "norm", .phase = Phase::optimizer, .time = {1}, .reads = {{4}, {5}}});
  EXPECT_EQ(updated_early(trace), std::nullopt);
}

TEST(EarlyUpdates, MakeAGradientBriefThatWasKept) {
  Trace trace = two_updates();
  trace.tensors[4].persistent = trace.tensors[5].persistent = true;
  trace.ops[1].reads = {{1}, {5}, {6}};  // added to what the last step left, which zero_grad() had cleared
  trace.ops[4].frees = {{6}};
  const auto early = updated_early(trace);
  ASSERT_TRUE(early.has_value());
  EXPECT_FALSE(early->tensors[5].persistent);
  EXPECT_THAT(early->ops[1].reads, ElementsAre(TensorIndex{1}, TensorIndex{6}));
  EXPECT_THAT(early->ops[1].writes, ElementsAre(TensorIndex{5}));
}

Machine of_chunks(std::uint64_t granule, std::uint64_t fast = 1 << 20) {
  Machine machine;
  machine.tiers = {{.name = "dram", .capacity = {fast}}, {.name = "nvme"}};
  machine.granule = {granule};
  return machine;
}

TEST(InChunks, LaysAStepAsASessionDoes) {
  Trace trace = two_updates();
  trace.ops[0].workspace = {5000};
  const Trace laid = cli::in_chunks(trace, of_chunks(8192), "vedette");
  EXPECT_EQ(laid.ops.size(), trace.ops.size());
  for (const Tensor& tensor : laid.tensors) EXPECT_EQ(tensor.bytes.value % 8192, 0u);
  Bytes kept;
  for (const Tensor& tensor : laid.tensors)
    if (tensor.persistent) kept += tensor.bytes;
  EXPECT_EQ(kept, Bytes{16384}) << "two weights share a chunk, and two states";
  EXPECT_EQ(laid.ops[0].workspace, Bytes{8192});
  EXPECT_EQ(laid.ops[3].time, trace.ops[3].time);
}

// A layer whose output is normalised and rectified in place, then used again.
TEST(InChunks, SayWhichOpsCanRunAgain) {
  Trace trace;
  trace.tensors = {{.name = "w", .bytes = {8192}, .kind = TensorKind::weight, .persistent = true},
                   {.name = "x", .bytes = {8192}},
                   {.name = "y", .bytes = {8192}},
                   {.name = "mask", .bytes = {8192}}};
  trace.ops = {
      {.name = "aten::convolution", .time = {1000}, .reads = {{0}}, .writes = {{1}}},
      {.name = "aten::native_batch_norm", .time = {100}, .reads = {{1}}, .writes = {{2}}},
      {.name = "aten::relu_", .time = {100}, .reads = {{2}}, .writes = {{2}}},
      {.name = "aten::native_dropout", .time = {100}, .reads = {{2}}, .writes = {{3}}},
      {.name = "aten::add_", .time = {100}, .reads = {{1}, {2}, {3}}, .writes = {{0}}, .frees = {{1}, {2}, {3}}}};
  Machine recomputes = of_chunks(8192);
  recomputes.can_recompute = true;
  const Trace plain = cli::in_chunks(trace, of_chunks(8192), "vedette"),
              laid = cli::in_chunks(trace, recomputes, "vedette");
  std::vector<std::optional<bool>> again;
  for (const Op& op : laid.ops) again.push_back(op.runs_again);
  EXPECT_THAT(again, ElementsAre(true, true, true, false, true)) << "dropout is random";
  EXPECT_EQ(plain.ops[0].runs_again, std::nullopt);
  const std::vector<Op> made = producers(laid);
  EXPECT_TRUE(replayable(made[2])) << "batch_norm, then relu_";
  EXPECT_FALSE(replayable(made[4])) << "it changes a weight";
}

TEST(InChunks, OfAPageEachKeepsTheTensors) {
  const Trace trace = two_updates(), laid = cli::in_chunks(trace, of_chunks(4096), "vedette");
  EXPECT_EQ(peak_bytes(laid), peak_bytes(trace));
  EXPECT_EQ(largest_op_bytes(laid), largest_op_bytes(trace));
}

TEST(InChunks, CutsLargeWeightsAsTheSessionsPolicyWantsThem) {
  Trace trace;
  trace.tensors = {{.name = "w", .bytes = {8 * 4096}, .kind = TensorKind::weight, .persistent = true}};
  trace.ops = {{.name = "use", .time = {1000}, .reads = {{0}}, .writes = {}}};
  const Machine machine = of_chunks(4096, 96 * 4096);
  EXPECT_EQ(cli::in_chunks(trace, machine, "vedette").tensors.size(), 4u) << "a 48th of fast memory each";
  EXPECT_EQ(cli::in_chunks(trace, machine, "sentinel").tensors.size(), 1u);
  EXPECT_EQ(cli::in_chunks(trace, machine, "a policy of another machine").tensors.size(), 1u);
}

TEST(DidYouMean, FindsTheWordThatIsNear) {
  const std::vector<std::string> words{"compare", "plan", "--fast-memory", "--json"};
  EXPECT_EQ(cli::did_you_mean("compaer", words), " (did you mean 'compare'?)");
  EXPECT_EQ(cli::did_you_mean("plans", words), " (did you mean 'plan'?)");
  EXPECT_EQ(cli::did_you_mean("--fast-memroy=20%", words), " (did you mean '--fast-memory'?)");
  EXPECT_EQ(cli::did_you_mean("--fast", words), " (did you mean '--fast-memory'?)") << "the begin of a word";
  EXPECT_EQ(cli::did_you_mean("train", words), "");
  EXPECT_EQ(cli::did_you_mean("", words), "");
}

}  // namespace
}  // namespace vedette::report::advice_test
