// Training inside a budget gives the bits that training without a guard gives: four models, four budgets, two slow tiers.
#include <gtest/gtest.h>

#include <filesystem>

#include <ATen/Parallel.h>

#include "adapter/training.h"

namespace vedette::test {
namespace {

constexpr std::int64_t steps = 12;

struct Case {
  const char *model, *slow;
  bool born_under_the_guard;         // else adopted
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " on " << c.slow; }

class EqualBits : public testing::TestWithParam<Case> {};

Outcome train_guarded(const Case& c, std::uint64_t budget, const std::string& slow, Counters& counters) {
  Outcome outcome;
  std::unique_ptr<examples::Model> model;
  if (!c.born_under_the_guard) model = small(c.model);
  Guard guard{{.fast_memory = Bytes{budget}, .slow = slow, .chunk = small_chunk}};
  if (c.born_under_the_guard) model = small(c.model);
  guard.watch(model->module());
  guard.watch(model->optimizer());
  train(*model, 0, steps, outcome, &guard);
  keep_tensors(*model, outcome);
  counters = guard.counters();
  return outcome;
}

TEST_P(EqualBits, AtEveryBudget) {
  const Case& c = GetParam();
  at::set_num_threads(2);
  std::string slow = c.slow;
  if (slow == "nvme") {
    slow = "nvme:" + testing::TempDir() + "vedette_equal_bits_" + c.model;
    std::filesystem::create_directories(slow.substr(5));
  }
  const Plain plain = train_plain(c.model, steps);
  ASSERT_FALSE(plain.outcome.tensors.empty());
  for (const std::uint64_t percent : {100u, 50u, 25u, 20u}) {
    SCOPED_TRACE(std::to_string(percent) + " % of " + std::to_string(plain.peak_bytes) + " bytes");
    Counters counters;
    const Outcome guarded = train_guarded(c, plain.peak_bytes * percent / 100, slow, counters);
    EXPECT_EQ(guarded.losses, plain.outcome.losses);
    ASSERT_EQ(guarded.tensors.size(), plain.outcome.tensors.size());
    for (const auto& [name, bytes] : plain.outcome.tensors) EXPECT_TRUE(guarded.tensors.at(name) == bytes) << name;
    EXPECT_LE(counters.resident_max_bytes, plain.peak_bytes * percent / 100);
    if (percent <= 50) {
      EXPECT_GT(counters.bytes_in, 0u) << "a budget this small must have moved something";
    }
    std::printf("%s %s %lu %%: in %.1f MiB out %.1f MiB stalls %lu (%.1f ms) faults %lu peak %.1f MiB\n", c.model, c.slow,
                static_cast<unsigned long>(percent), static_cast<double>(counters.bytes_in) / 1048576,
                static_cast<double>(counters.bytes_out) / 1048576, static_cast<unsigned long>(counters.stall_count),
                static_cast<double>(counters.stall_ns) / 1e6, static_cast<unsigned long>(counters.faults),
                static_cast<double>(plain.peak_bytes) / 1048576);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EqualBits,
                         testing::Values(Case{"mlp", "host", false}, Case{"resnet18", "host", false},
                                         Case{"lstm", "host", true}, Case{"gpt", "host", true}, Case{"mlp", "nvme", true},
                                         Case{"resnet18", "nvme", true}, Case{"lstm", "nvme", false},
                                         Case{"gpt", "nvme", false}),
                         [](const auto& the) { return std::string(the.param.model) + "_" + the.param.slow; });

}  // namespace
}  // namespace vedette::test
