// The price list: its tensors and groups, its predictions against replayed steps, and what would make a tenth less
// memory cost nothing.
#include "profiler/report/prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "profiler/report/report.h"
#include "support/traces.h"
#include "vedette/bound.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::report::prices_test {
namespace {

using ::testing::HasSubstr;

Run of_trace(const std::string& name) {
  Run run{.program = name, .policy = "vedette"};
  run.profiles.emplace_back().trace =
      testing::load_trace(std::filesystem::path(VEDETTE_SOURCE_DIR) / "tests/traces" / (name + ".json"));
  run.profile = 0;
  return run;
}
const Trace& step_of(const Run& run) { return run.profiles[0].trace; }

Machine slow_machine(const Run& run, double share, std::uint64_t bytes_per_s = 300'000'000) {
  const auto peak = static_cast<double>(peak_bytes(step_of(run)).value);
  return testing::two_tiers({static_cast<std::uint64_t>(peak * share)}, {1}, bytes_per_s);
}

Result<Simulated> simulate(const Trace& trace, const Machine& machine, std::string_view policy) {
  const auto ran = replay(trace, machine, *make_policy(policy, 1));
  if (!ran) return ran.error();
  return Simulated{.step = ran->measured.time,
                   .stall = ran->measured.stall,
                   .bytes_in = ran->bytes_in,
                   .bytes_out = ran->bytes_out,
                   .recompute = ran->recompute};
}

PriceList list_of(const Run& run, const Machine& machine, bool simulated = true) {
  ReportOptions options{.machine = machine};
  options.pricer.prices = memory_prices;
  if (simulated) options.pricer.simulate = simulate;
  return prices_of(run, options, tensors_of(run));
}

TEST(Prices, AreOfTensorsDearestFirstAndOfTheirGroups) {
  const report::Run run = of_trace("unet");
  const Machine machine = slow_machine(run, 0.4);
  const PriceList list = list_of(run, machine, false);
  ASSERT_TRUE(list.known);
  const MemoryPrices prices = memory_prices(step_of(run), machine);
  EXPECT_EQ(list.waiting, Nanoseconds{static_cast<std::int64_t>(prices.waiting_ns)});
  ASSERT_GT(list.tensors.size(), 5u);
  Nanoseconds all;
  for (std::size_t i = 0; i < list.tensors.size(); ++i) {
    const PricedTensor& t = list.tensors[i];
    EXPECT_GE(list.tensors[i > 0 ? i - 1 : 0].gone, t.gone);
    EXPECT_EQ(t.gone.value, static_cast<std::int64_t>(prices.tensor_ns[t.tensor]));
    EXPECT_EQ(t.name, step_of(run).tensors[t.tensor].name);
    EXPECT_NEAR(t.ns_per_mib * static_cast<double>(t.bytes.value) / (1 << 20), static_cast<double>(t.gone.value), 2);
    EXPECT_LE(t.budget_ns_per_mib, list.ns_per_mib * (1 + 1e-9)) << "a part of the step costs no more than all of it";
    all += t.gone;
  }
  for (const char* by : {"layer", "role", "alike"}) {
    Nanoseconds sum;
    for (const PricedGroup& group : list.groups)
      if (group.by == by) sum += group.gone;
    EXPECT_EQ(sum, all) << by;
  }
}

// The dearest of each trace are taken away, and the step is planned and replayed anew.
TEST(Prices, PredictWhatAReplaySaves) {
  for (const auto& [name, share] : {std::pair("unet", 0.4), {"mlp_adam", 0.6}, {"chain4", 0.4}}) {
    const report::Run run = of_trace(name);
    const Machine machine = slow_machine(run, share);
    const PriceList list = list_of(run, machine);
    ASSERT_TRUE(list.simulated) << list.note;
    double predicted = 0, saved = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const PricedTensor& t = list.tensors.at(i);
      Trace without = step_of(run);
      without.tensors[t.tensor].bytes = {1};
      const auto then = simulate(without, machine, "vedette");
      ASSERT_TRUE(then);
      predicted += static_cast<double>(t.gone.value);
      saved += static_cast<double>((*list.simulated - then->step).value);
    }
    EXPECT_GT(saved, 0.4 * predicted) << name;
    EXPECT_LT(saved, 1.6 * predicted) << name;
    // Less memory costs at least what the bound says, in the simulator as in the proof, as far as plans are as good.
    ASSERT_TRUE(list.less && list.more);
    const double tenth = list.ns_per_mib * static_cast<double>(machine.tiers[0].capacity.value) / (1 << 20) / 10;
    EXPECT_GT(static_cast<double>((*list.less - *list.simulated).value), 0.6 * tenth) << name;
    EXPECT_GT(static_cast<double>((*list.simulated - *list.more).value), 0.4 * tenth) << name;
  }
}

const FreeMemory* found(const PriceList& list, const std::string& change) {
  for (const FreeMemory& each : list.free)
    if (each.change == change) return &each;
  return nullptr;
}

TEST(Prices, SayWhatWouldMakeATenthLessCostNothing) {
  const report::Run run = of_trace("unet");
  const Machine machine = slow_machine(run, 0.4);
  const PriceList list = list_of(run, machine);
  EXPECT_THAT(list.note, HasSubstr("10 % less memory ("));
  const auto less = [&] {
    Machine smaller = machine;
    smaller.tiers[0].capacity.value = machine.tiers[0].capacity.value * 9 / 10;
    return smaller;
  }();
  const FreeMemory* const tensors = found(list, "tensors");
  ASSERT_NE(tensors, nullptr) << list.note;
  Trace without = step_of(run);
  Bytes bytes;
  for (const std::uint32_t t : tensors->tensors) {
    bytes += without.tensors[t].bytes;
    EXPECT_THAT(tensors->sentence, HasSubstr(without.tensors[t].name));
    without.tensors[t].bytes = {1};
  }
  EXPECT_EQ(bytes, tensors->bytes);
  EXPECT_EQ(simulate(without, less, "vedette")->step, tensors->step) << "it is what the simulator said";
  EXPECT_LE(static_cast<double>(tensors->step.value), 1.005 * static_cast<double>(list.simulated->value));
  EXPECT_THAT(tensors->sentence, HasSubstr(" from op "));

  const FreeMemory* const links = found(list, "links");
  ASSERT_NE(links, nullptr);
  EXPECT_GT(links->factor, 1);
  Machine faster = less;
  for (Link& link : faster.links)
    link.bytes_per_s = static_cast<std::uint64_t>(static_cast<double>(link.bytes_per_s) * links->factor);
  EXPECT_EQ(simulate(step_of(run), faster, "vedette")->step, links->step);
}

TEST(Prices, SayWhereATenthLessCostsNothing) {
  const report::Run run = of_trace("unet");
  const PriceList list = list_of(run, slow_machine(run, 0.95, 100'000'000'000));
  ASSERT_EQ(list.free.size(), 1u) << list.note;
  EXPECT_EQ(list.free[0].change, "nothing");
  EXPECT_THAT(list.free[0].sentence, HasSubstr("costs nothing"));
  EXPECT_EQ(list.ns_per_mib, 0);
}

TEST(Prices, SayWhyThereAreNone) {
  const report::Run run = of_trace("chain4");
  EXPECT_THAT(prices_of(run, {}, {}).note, HasSubstr("No prices were asked for"));
  ReportOptions options;
  options.pricer.prices = memory_prices;
  EXPECT_THAT(prices_of(run, options, {}).note, HasSubstr("--machine"));
  EXPECT_THAT(prices_of(report::Run{}, options, {}).note, HasSubstr("profiled step"));
  options.machine = slow_machine(run, 0.4);
  options.pricer.simulate = [](const Trace&, const Machine&, std::string_view) -> Result<Simulated> {
    return Error{Cause::unavailable, "the time was over"};
  };
  const PriceList list = prices_of(run, options, tensors_of(run));
  EXPECT_TRUE(list.known) << "prices need no simulator";
  EXPECT_THAT(list.note, HasSubstr("the time was over"));
}

TEST(Prices, AreShownAsTextAndAsJson) {
  const report::Run run = of_trace("unet");
  ReportOptions options{.machine = slow_machine(run, 0.4)};
  options.pricer = {.simulate = simulate, .prices = memory_prices};
  const Report report = analyse(run, options);
  const std::string text = format_text(report, nullptr);
  const PricedTensor& dearest = report.prices.tensors.at(0);
  for (const std::string& part : {std::string("What memory costs"), dearest.name, report.prices.free.at(0).sentence})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = nlohmann::json::parse(format_json(report, nullptr))["run"]["prices"];
  EXPECT_EQ(json["tensors"][0]["gone_ns"], dearest.gone.value);
  EXPECT_EQ(json["runs"][0][0], report.prices.runs.at(0).begin);
  EXPECT_EQ(json["free"][0]["sentence"], report.prices.free[0].sentence);
}

}  // namespace
}  // namespace vedette::report::prices_test
