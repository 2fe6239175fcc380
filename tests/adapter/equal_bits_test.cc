// Training inside a budget gives the bits that training without a guard gives: nine models, and three that Python
// exports, at several budgets, on two slow tiers.
#include <gtest/gtest.h>

#include <filesystem>

#include "adapter/exported.h"
#include "adapter/training.h"
#include "support/torch_threads.h"
#include "support/whole_run.h"

namespace vedette::test::equal_bits_test {
namespace {

constexpr std::int64_t steps = 12;
const std::vector<std::uint64_t> all = {100, 50, 25, 20};  // in a whole run; else two of them

struct Case {
  const char *model, *slow;
  bool born_under_the_guard;                       // else adopted
  std::vector<std::uint64_t> percents = {50, 25};  // budgets, of the plain run's peak
  bool step_in_backward = false;                   // the guarded run; the plain one steps afterwards
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " on " << c.slow << (c.step_in_backward ? ", steps in backward" : "");
}

class EqualBits : public ::testing::TestWithParam<Case> {};

Outcome train_guarded(const Case& c, std::uint64_t budget, const std::string& slow, Counters& counters) {
  Outcome outcome;
  std::unique_ptr<examples::Model> model;
  if (!c.born_under_the_guard) model = small(c.model);
  Guard guard{{.fast_memory = Bytes{budget}, .slow = slow, .chunk = small_chunk}};
  if (c.born_under_the_guard) model = small(c.model);
  if (c.step_in_backward)
    model->use([](torch::optim::Optimizer& optimizer, const std::function<void()>& backward) {
      step_in_backward(optimizer, backward);
    });
  guard.watch(model->module());
  for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard.watch(*optimizer);
  train(*model, 0, steps, outcome, &guard);
  keep_tensors(*model, outcome);
  counters = guard.counters();
  return outcome;
}

std::string slow_tier(const Case& c) {
  const bool over_host = std::string(c.slow) == "host_nvme";
  if (std::string(c.slow) != "nvme" && !over_host) return c.slow;
  const std::string folder =
      ::testing::TempDir() + "vedette_equal_bits_" + std::filesystem::path(c.model).stem().string();
  std::filesystem::create_directories(folder);
  return (over_host ? "host:1MiB+nvme:" : "nvme:") + folder;
}

void expect_equal_bits(const Case& c) {
  testing::compute_with_given_threads();
  const std::string slow = slow_tier(c);
  const Plain plain = train_plain(c.model, steps);
  ASSERT_FALSE(plain.outcome.tensors.empty());
  for (const std::uint64_t percent : c.percents) {
    if (!testing::whole_run() && c.percents == all && percent != 50 && percent != 20) continue;
    SCOPED_TRACE(std::to_string(percent) + " % of " + std::to_string(plain.peak_bytes) + " bytes");
    Counters counters;
    const Outcome guarded = train_guarded(c, plain.peak_bytes * percent / 100, slow, counters);
    EXPECT_EQ(guarded.losses, plain.outcome.losses);
    ASSERT_EQ(guarded.tensors.size(), plain.outcome.tensors.size());
    for (const auto& [name, bytes] : plain.outcome.tensors) EXPECT_TRUE(guarded.tensors.at(name) == bytes) << name;
    EXPECT_LE(counters.resident_max_bytes.value, plain.peak_bytes * percent / 100);
    if (percent <= 50) {
      EXPECT_GT(counters.bytes_in.value, 0u) << "a budget this small must have moved something";
    }
    std::printf("%s %s %lu %%: in %.1f MiB out %.1f MiB stalls %lu (%.1f ms) faults %lu peak %.1f MiB\n", c.model,
                c.slow, static_cast<unsigned long>(percent), static_cast<double>(counters.bytes_in.value) / 1048576,
                static_cast<double>(counters.bytes_out.value) / 1048576,
                static_cast<unsigned long>(counters.stall_count), static_cast<double>(counters.stall_ns) / 1e6,
                static_cast<unsigned long>(counters.faults), static_cast<double>(plain.peak_bytes) / 1048576);
  }
}

TEST_P(EqualBits, AtEveryBudget) { expect_equal_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, EqualBits,
                         ::testing::Values(Case{"mlp", "host", false, all}, Case{"resnet18", "host", false, all},
                                           Case{"lstm", "host", true, all}, Case{"gpt", "host", true, all},
                                           Case{"mlp", "nvme", true, all}, Case{"resnet18", "nvme", true, all},
                                           Case{"lstm", "nvme", false, all}, Case{"gpt", "nvme", false, all},
                                           Case{"mobilenetv2", "nvme", true}, Case{"vgg16", "nvme", false},
                                           Case{"dcgan", "nvme", true}, Case{"bert", "nvme", true},
                                           Case{"recommender", "nvme", true}, Case{"recommender", "host", false},
                                           Case{"mlp", "host_nvme", false, all}),
                         [](const auto& the) { return std::string(the.param.model) + "_" + the.param.slow; });

INSTANTIATE_TEST_SUITE_P(StepsInBackward, EqualBits,
                         ::testing::Values(Case{"resnet18", "nvme", true, {25}, true},
                                           Case{"gpt", "host", false, {25}, true},
                                           Case{"dcgan", "nvme", false, {50}, true},
                                           Case{"vgg16", "host", true, {25}, true},
                                           Case{"mobilenetv2", "host", false, {25}, true}),
                         [](const auto& the) { return std::string(the.param.model) + "_" + the.param.slow; });

class EqualBitsOfExports : public ::testing::TestWithParam<const char*> {};

TEST_P(EqualBitsOfExports, AtEveryBudget) {
  const Exported exported = export_model(GetParam());
  if (!exported.missing.empty()) GTEST_SKIP() << exported.missing;
  ASSERT_FALSE(exported.file.empty()) << "it was not exported";
  expect_equal_bits({exported.file.c_str(), "host", true, {50, 30}});
}

INSTANTIATE_TEST_SUITE_P(Torchvision, EqualBitsOfExports, ::testing::ValuesIn(exported_models),
                         [](const auto& the) { return std::string(the.param); });

}  // namespace
}  // namespace vedette::test::equal_bits_test
