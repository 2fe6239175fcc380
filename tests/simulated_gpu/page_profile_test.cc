// The pages that a step on the processor touches, op by op, are the operands that the same step has on a GPU. Ops are
// matched by name and order, and each layer has the same bytes in both profiles.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cstdio>

#include "models/model.h"
#include "profiler/match.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing {
namespace {

class PageProfileOfAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    at::set_num_threads(2);
  }
};

// The trace of the profiled step. A batch of 128 makes all but the last layer's tensors larger than those that
// libtorch's allocator keeps.
Trace profile(const std::string& name, const GuardOptions& options) {
  Guard guard{options};
  const auto model = examples::make_model(name, {.batch = 128, .small = true, .seed = 3, .script = {}});
  if (options.fast != "dram") model->module().to(at::Device(at::kCUDA, 0));
  guard.watch(model->module());
  for (int s = 0; s < 6; ++s) {
    const auto step = guard.step();
    model->train_step(s);
  }
  return guard.session().trace() == nullptr ? Trace() : *guard.session().trace();
}

TEST_F(PageProfileOfAGpu, EachLayersPagesOnTheProcessorAreItsOperandsOnTheGpu) {
  const Trace pages = profile(
      "mlp",
      {.fast_memory = 64_MiB, .slow = "nvme:" + ::testing::TempDir(), .chunk = 64_KiB, .profile = ProfileTicks::ops});
  if (pages.pages.empty()) GTEST_SKIP() << "no page tracker works on this machine";
  const Trace operands = profile("mlp", {.fast_memory = 64_MiB, .fast = "gpu:0", .slow = "host"});
  const ProfileMatch match = match_profiles(pages, operands);
  for (const OpIndex op : match.only_in_pages) ADD_FAILURE() << "on the processor alone: " << pages.ops[op.value].name;
  for (const OpIndex op : match.only_in_operands)
    EXPECT_EQ(operands.ops[op.value].name, "aten::_to_copy") << "what a GPU does besides is bring its input";
  EXPECT_GT(match.ops.size(), 60u);
  std::size_t with_bytes = 0;
  for (const LayerMatch& layer : match.layers) {
    if (layer.layer.empty()) continue;  // the batch is made on the processor in both
    EXPECT_EQ(layer.by_pages.value, layer.by_operands.value)
        << layer.layer << ", phase " << static_cast<int>(layer.phase) << ", " << layer.ops << " ops";
    with_bytes += layer.by_pages.value > 0 ? 1 : 0;
    std::printf("%s, phase %d: %u ops, %lu bytes by pages, %lu of operands\n", layer.layer.c_str(),
                static_cast<int>(layer.phase), layer.ops, static_cast<unsigned long>(layer.by_pages.value),
                static_cast<unsigned long>(layer.by_operands.value));
  }
  EXPECT_GE(with_bytes, 5u) << "two layers forward and backward, and the optimizer";
}

}  // namespace
}  // namespace vedette::testing
