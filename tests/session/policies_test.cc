// Every policy of the table runs live: the same loop ends with the same bytes, within the budget, whoever decides what moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "session/loop.h"
#include "vedette/policy.h"

namespace vedette {
namespace {

using testing::Loop;
using testing::open_session;
using testing::Outcome;

class Live : public ::testing::TestWithParam<std::string> {};

Outcome run(const std::string& policy, Bytes budget) {
  Outcome outcome;
  const auto session = open_session(budget, "host", policy, 64_KiB, nullptr, &outcome.messages);
  Loop loop(*session, 8, 300'000);
  for (std::uint64_t step = 0; step < 8; ++step) outcome.losses.push_back(loop.step(step));
  outcome.state = loop.state();
  outcome.counters = session->counters();
  return outcome;
}

// They leave some kinds of tensors where they are; a session whose policy has no plan says so and runs on demand.
constexpr std::array particular = {"flashneuron", "flashneuron+", "vdnn-all", "vdnn-conv", "vdnn-dyn", "tflms", "zero-infinity"};

TEST_P(Live, EndsWithTheSameBytesInAnyBudget) {
  const Outcome plenty = run(GetParam(), 64_MiB);
  for (const std::uint64_t percent : {70U, 40U}) {
    const Bytes budget{plenty.counters.peak_bytes * percent / 100};
    const Outcome tight = run(GetParam(), budget);
    EXPECT_EQ(plenty, tight) << percent << " %";
    EXPECT_LE(tight.counters.resident_max_bytes, budget.value) << percent << " %";
    EXPECT_GT(tight.counters.bytes_in, 0U) << percent << " %";
    const bool may_refuse = std::count(particular.begin(), particular.end(), GetParam()) > 0;
    for (const std::string& message : tight.messages) {
      const bool refuses = may_refuse && message.find("smallest workable size") != std::string::npos;
      EXPECT_TRUE(refuses || message.find("has no solver") != std::string::npos) << percent << " %: " << message;
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const PolicyEntry& entry : policies()) all.emplace_back(entry.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Each, Live, ::testing::ValuesIn(names()), [](const auto& each) {
  std::string name = each.param;
  if (name.back() == '+') name.replace(name.size() - 1, 1, "_of_g10");
  std::replace_if(name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace vedette
