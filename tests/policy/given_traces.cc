// Planners on the real training steps that VEDETTE_DATA holds, at a quarter of their peak.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"

namespace vedette {
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

}  // namespace
}  // namespace vedette
