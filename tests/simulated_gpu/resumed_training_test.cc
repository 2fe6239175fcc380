// The models of examples/models, resumed under a guard of GPU memory: see resumed_training.h.
#include "simulated_gpu/resumed_training.h"

#include <gtest/gtest.h>

#include "simulated_gpu/torch_device.h"

namespace vedette::testing::resumed_training_test {
namespace {

class ResumedTraining : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{1} << 30});
    control().forget_races();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(control().races(), std::vector<std::string>());
  }
};

TEST_P(ResumedTraining, OfACpuHasThePlainRunsBits) { expect_resumed_bits(GetParam(), at::kCPU, 256_MiB); }
TEST_P(ResumedTraining, OfAGpuHasThePlainRunsBits) { expect_resumed_bits(GetParam(), at::kCUDA, 256_MiB); }

INSTANTIATE_TEST_SUITE_P(Models, ResumedTraining,
                         ::testing::Values("mlp", "resnet18", "lstm", "gpt", "mobilenetv2", "vgg16", "dcgan", "bert",
                                           "recommender", "resnet50", "vit", "gpt2-medium", "gpt-1.3b"),
                         [](const auto& the) {
                           std::string name = the.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace vedette::testing::resumed_training_test
