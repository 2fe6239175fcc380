// Planners on the real training steps that VEDETTE_DATA holds, at a quarter of their peak.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/machine.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::given_traces_test {
namespace {

TEST(Sentinel, PlansTheGivenTraces) {
  const auto files = testing::given_trace_files();
  if (files.empty()) GTEST_SKIP() << "no traces/*.json in VEDETTE_DATA, the folder '" << testing::data_folder() << "'";
  for (const auto& file : files) {
    const Trace trace = testing::load_trace(file);
    const Machine machine =
        testing::two_tiers(std::max(Bytes{peak_bytes(trace).value / 4}, testing::smallest_fast_tier(trace, {4096})),
                           {4096}, 15'000'000'000);
    const Result<Plan> plan = make_policy("sentinel", 1)->prepare(trace, machine);
    ASSERT_TRUE(plan.ok()) << file << ": " << plan.error().message;
    const std::optional<Violation> found = check(trace, machine, *plan);
    EXPECT_FALSE(found.has_value()) << file << ": " << found->message;
  }
}

std::optional<Trace> given(const std::string& name) {
  const auto files = testing::given_trace_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const auto& file) { return file.filename().string() == name + ".json"; });
  if (found == files.end()) return std::nullopt;
  return testing::load_trace(*found);
}

double percent_of_ideal(const Trace& trace, const Machine& machine) {
  const Replayed got = replay(trace, machine, *make_policy("vedette", 1)).value();
  return 100 * static_cast<double>(got.ideal.value) / static_cast<double>(got.measured.time.value);
}

Machine a100() {
  const auto presets = machine_presets();
  return std::find_if(presets.begin(), presets.end(), [](const auto& p) { return p.name == "a100-g10"; })->make();
}

// Where host memory is full, the best way of dealing stays between tiers differs with the rule that leaves short gaps
// alone. The plan reached 88.2 % of ideal where only the best without it was searched on.
TEST(Vedette, SearchesEachWayOfDealingWithShortGapsLeftAlone) {
  const auto bert = given("bert_base-1280");
  if (!bert) GTEST_SKIP() << "no bert_base-1280.json in VEDETTE_DATA";
  Machine machine = a100();
  machine.tiers[1].capacity = 64_GiB;
  EXPECT_GE(percent_of_ideal(*bert, machine), 91);
}

// The search with recomputation ended at 99.5 % of ideal where moves alone reach 99.99.
TEST(Vedette, IsNotBehindMovesAloneWhereItMayRecompute) {
  const auto vit = given("vit-1280");
  if (!vit) GTEST_SKIP() << "no vit-1280.json in VEDETTE_DATA";
  Machine machine = a100();
  ASSERT_TRUE(machine.can_recompute);
  const double with = percent_of_ideal(*vit, machine);
  machine.can_recompute = false;
  EXPECT_GE(with, percent_of_ideal(*vit, machine) - 0.01);
}

}  // namespace
}  // namespace vedette::given_traces_test
