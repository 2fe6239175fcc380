// A libtorch that is not there yet: headers with the minor version after the newest that was tried, beside a library
// that says so, too. The guard is compiled against them for this program, and asks by behaviour.
#include <c10/core/CPUAllocator.h>
#include <caffe2/core/common.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <map>
#include <string>
#include <vector>

#include "vedette/torch.h"

// In the place of libtorch's own: what a program defines comes first.
const std::map<std::string, std::string>& caffe2::GetBuildOptions() {
  static const std::map<std::string, std::string> options{{"TORCH_VERSION", UNTRIED_TORCH}};
  return options;
}

namespace vedette::testing::untried_version_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

float loss_after_steps(Guard* guard) {
  torch::manual_seed(3);
  torch::nn::Linear layer(64, 64);
  torch::optim::SGD optimizer(layer->parameters(), 0.1);
  if (guard != nullptr) {
    guard->watch(*layer);
    guard->watch(optimizer);
  }
  float last = 0;
  for (int i = 0; i < 4; ++i) {
    std::optional<Guard::Step> step;
    if (guard != nullptr) step.emplace(*guard);
    optimizer.zero_grad();
    const at::Tensor loss = layer->forward(at::ones({32, 64})).pow(2).mean();
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
  }
  return last;
}

TEST(UntriedVersion, OpensWithASentenceAndTrains) {
  const float plain = loss_after_steps(nullptr);
  std::vector<std::string> said;
  Guard guard({.fast_memory = 16_MiB, .slow = "host", .on_message = [&](auto each) { said.emplace_back(each); }});
  EXPECT_EQ(loss_after_steps(&guard), plain);
  EXPECT_EQ(std::count_if(said.begin(), said.end(),
                          [](const std::string& each) {
                            return each.starts_with("libtorch " UNTRIED_TORCH
                                                    " was never tried with vedette; what a "
                                                    "guard stands on is as it was in 2.");
                          }),
            1);
}

TEST(UntriedVersion, ThatBehavesOtherwiseIsRefused) {
  {
    const Guard before({.fast_memory = 16_MiB, .slow = "host", .on_message = [](auto) {}});
  }
  c10::SetAllocator(c10::kCPU, c10::GetDefaultCPUAllocator(), 255);  // no allocation comes to us any more
  try {
    const Guard guard({.fast_memory = 16_MiB, .slow = "host"});
    FAIL() << "a guard opened that no allocation comes to";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), AllOf(HasSubstr("libtorch " UNTRIED_TORCH " is not as vedette knows it"),
                                      HasSubstr("an allocation of CPU memory does not come to vedette")));
  }
}

}  // namespace
}  // namespace vedette::testing::untried_version_test
