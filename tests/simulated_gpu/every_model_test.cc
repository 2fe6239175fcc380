// The models of examples/models under a guard of GPU memory, those for a GPU in small forms among them. At 100, 50, 30
// and 20 % of their peak losses and all state have the plain run's bits on the simulated GPU. A budget that is too
// small for an op is told, and how large it is.
#include "simulated_gpu/training_process.h"

namespace vedette::testing::every_model_test {
namespace {

std::string name_of(const ::testing::TestParamInfo<const char*>& the) {
  std::string name = the.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

class EveryModel : public SimulatedGuard, public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryModel, HasThePlainRunsBitsAtEveryBudget) { expect_equal_bits_at(GetParam(), {100, 50, 30, 20}); }

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         ::testing::Values("mlp", "resnet18", "lstm", "gpt", "mobilenetv2", "vgg16", "dcgan", "bert",
                                           "recommender", "resnet50", "vit", "gpt2-medium", "gpt-1.3b"),
                         name_of);

// All that can be recomputed is dropped at every opportunity.
class EveryModelRecomputing : public SimulatedGuard, public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryModelRecomputing, HasThePlainRunsBits) {
  expect_equal_bits_at(GetParam(), {100, 50, 25, 20}, "", "--recompute-all");
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModelRecomputing,
                         ::testing::Values("mlp", "resnet18", "lstm", "gpt", "mobilenetv2", "vgg16", "dcgan", "bert",
                                           "recommender", "resnet50", "vit", "gpt2-medium", "gpt-1.3b"),
                         name_of);

// What a device may do otherwise than the simulated one does by default.
class EveryDevice : public SimulatedGuard, public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryDevice, HasTheSameBits) { expect_equal_bits_at("gpt", {50, 30}, GetParam()); }
TEST_P(EveryDevice, HasTheSameBitsWithAllDropped) {
  expect_equal_bits_at("gpt", {50, 30}, GetParam(), "--recompute-all");
}

INSTANTIATE_TEST_SUITE_P(Devices, EveryDevice,
                         ::testing::Values("latency_us=10", "latency_us=1000", "one_engine=1 latency_us=100",
                                           "copies_wait=1", "copies_wait=1 one_engine=1 gbs=1", "unmap_waits=1",
                                           "gbs=0.2", "copies_wait=1 unmap_waits=1 one_engine=1 latency_us=1000"));

}  // namespace
}  // namespace vedette::testing::every_model_test
