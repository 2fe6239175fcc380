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

// So small that libtorch's own allocator keeps most tensors beside the weights, and all of the last layer's.
constexpr std::int64_t batch = 8;
constexpr Bytes budget = 64_MiB, kept_by_libtorch = {budget.value / 4096};
constexpr Bytes chunk = 64_KiB, in_the_slab = {chunk.value / 64};  // on the processor: several tensors a page

class PageProfileOfAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    at::set_num_threads(2);
  }
};

// The trace of the profiled step.
Trace profile(const std::string& name, const GuardOptions& options) {
  Guard guard{options};
  const auto model = examples::make_model(name, {.batch = batch, .small = true, .seed = 3, .script = {}});
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
      {.fast_memory = budget, .slow = "nvme:" + ::testing::TempDir(), .chunk = chunk, .profile = ProfileTicks::ops});
  if (pages.pages.empty()) GTEST_SKIP() << "no page tracker works on this machine";
  const Trace operands = profile("mlp", {.fast_memory = budget, .fast = "gpu:0", .slow = "host"});
  std::size_t kept = 0;
  for (const Tensor& tensor : operands.tensors) kept += tensor.bytes < kept_by_libtorch ? 1 : 0;
  EXPECT_GT(kept, 10u) << "the GPU's profile lacks small tensors";
  // Those in the slab that lived before the profiled step are in no log, and an op may name one that it does not read.
  const ProfileMatch all = match_profiles(pages, operands);
  for (const LayerMatch& layer : all.layers) {
    if (layer.layer.empty()) continue;
    EXPECT_GE(layer.by_operands, layer.by_pages) << layer.layer;
    EXPECT_LE((layer.by_operands.value - layer.by_pages.value) * 50, layer.by_operands.value) << layer.layer;
  }
  const ProfileMatch match = match_profiles(pages, operands, {in_the_slab.value + 1});
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
