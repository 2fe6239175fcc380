// The pages that a step on the processor touches, op by op, are the operands that the same step has on a GPU, and the
// pages for which a GPU takes faults in managed memory. Ops are matched by name and order, and each layer has the same
// bytes in all profiles.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "models/model.h"
#include "simulated_gpu/torch_device.h"
#include "support/profile_match.h"
#include "support/torch_threads.h"
#include "vedette/torch.h"

namespace vedette::testing::page_profile_test {
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
    compute_with_given_threads();
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

GuardOptions on_the_processor() {
  return {.fast_memory = budget, .slow = "nvme:" + ::testing::TempDir(), .chunk = chunk, .profile = ProfileTicks::ops};
}
GuardOptions by_operands() { return {.fast_memory = budget, .fast = "gpu:0", .slow = "host"}; }
GuardOptions by_cupti(std::vector<std::string>& said) {
  return {.fast_memory = budget,
          .fast = "gpu:0",
          .slow = "host",
          .profile = ProfileTicks::ops,
          .tracker = "cupti",
          .on_message = [&said](std::string_view sentence) { said.emplace_back(sentence); }};
}

void expect_equal_in_each_layer(const Trace& pages, const ProfileMatch& match) {
  for (const OpIndex op : match.only_in_pages) ADD_FAILURE() << "in the pages alone: " << pages.ops[op.value].name;
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

struct PageCounts {
  std::uint64_t touched = 0, written = 0;
  bool operator==(const PageCounts&) const = default;
};
void PrintTo(const PageCounts& counts, std::ostream* out) {
  *out << counts.touched << " pages, " << counts.written << " of them written";
}

// By op; of tensors that lie in managed memory on the GPU.
std::vector<PageCounts> pages_by_op(const Trace& trace) {
  std::vector<PageCounts> counts(trace.ops.size());
  for (const PageAccess& each : trace.pages) {
    if (trace.tensors[each.tensor.value].bytes < kept_by_libtorch) continue;
    counts[each.op.value].touched += each.pages.end - each.pages.begin;
    counts[each.op.value].written += each.written ? each.pages.end - each.pages.begin : 0;
  }
  return counts;
}

TEST_F(PageProfileOfAGpu, EachLayersPagesOnTheProcessorAreItsOperandsOnTheGpu) {
  const Trace pages = profile("mlp", on_the_processor());
  if (pages.pages.empty()) GTEST_SKIP() << "no page tracker works on this machine";
  const Trace operands = profile("mlp", by_operands());
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
  for (const OpIndex op : match.only_in_operands)
    EXPECT_EQ(operands.ops[op.value].name, "aten::_to_copy") << "what a GPU does besides is bring its input";
  expect_equal_in_each_layer(pages, match);
}

TEST_F(PageProfileOfAGpu, PagesByCuptiAreTheOperandsAndThePagesOnTheProcessor) {
  std::vector<std::string> said;
  const Trace faults = profile("mlp", by_cupti(said));
  EXPECT_THAT(said, ::testing::ElementsAre(::testing::HasSubstr("for small runs"),
                                           ::testing::StartsWith("all of a step fits")));
  ASSERT_FALSE(faults.pages.empty());
  const Trace operands = profile("mlp", by_operands());
  const ProfileMatch match = match_profiles(faults, operands, kept_by_libtorch);
  EXPECT_TRUE(match.only_in_operands.empty());
  expect_equal_in_each_layer(faults, match);
  const Trace pages = profile("mlp", on_the_processor());
  if (pages.pages.empty()) GTEST_SKIP() << "no page tracker works on this machine";
  const auto here = pages_by_op(pages), there = pages_by_op(faults);
  std::size_t compared = 0;
  for (const auto& [on_processor, on_gpu] : match_profiles(pages, faults).ops) {
    if (!pages.ops[on_processor.value].layer) continue;
    EXPECT_EQ(there[on_gpu.value], here[on_processor.value]) << pages.ops[on_processor.value].name;
    compared += here[on_processor.value].touched > 0 ? 1 : 0;
  }
  EXPECT_GT(compared, 20u);
}

TEST_F(PageProfileOfAGpu, WhatCuptiRefusesOrLosesIsASentence) {
  std::vector<std::string> said;
  control().fail("cuptiActivityEnable", 1, 39);
  try {
    profile("mlp", by_cupti(said));
    FAIL() << "the guard was made";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("another profiler holds CUPTI"));
  }
  control().choose(simulated::Options{.fault_records = 100});
  profile("mlp", by_cupti(said));
  EXPECT_THAT(said, ::testing::Contains(::testing::AllOf(::testing::HasSubstr("profiling misses pages: CUPTI lost"),
                                                         ::testing::HasSubstr("smaller model or batch"))));
}

}  // namespace
}  // namespace vedette::testing::page_profile_test
