// What a guard of GPU memory asks libtorch at its opening: each answer that is not as it was is named, and nothing
// crashes.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "adapter/torch/behaviour_gpu.h"
#include "adapter/torch/gpu_storages.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing::behaviour_test {
namespace {

using adapter::GpuStorages;
using adapter::libtorch_of_gpu_as_it_is;
using adapter::LibtorchOfGpu;
using adapter::what_differs_on;
using ::testing::HasSubstr;
using ::testing::Optional;

GuardOptions options() {
  return {.fast_memory = 2_MiB, .fast = "gpu:0", .slow = "host", .on_message = [](auto) {}};
}

class GpuBehaviour : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20});
    { const Guard opens(options()); }
    gpu_ = GpuStorages::opened();
  }
  GpuStorages* gpu_ = nullptr;
};

std::size_t allocated() {
  constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<std::size_t>(c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).allocated_bytes[all].current);
}

TEST_F(GpuBehaviour, OfThisLibtorchIsAsItWasAndLeavesNothingBehind) {
  const std::size_t before = allocated();
  std::array<double, 20> microseconds{};
  for (double& each : microseconds) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(what_differs_on(*gpu_), std::nullopt);
    each = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("the questions take %.0f us\n", microseconds[microseconds.size() / 2]);
  EXPECT_EQ(allocated(), before);
  EXPECT_EQ(control().races(), std::vector<std::string>());
}

TEST_F(GpuBehaviour, NamesAnAllocationThatGoesElsewhere) {
  LibtorchOfGpu libtorch = libtorch_of_gpu_as_it_is();
  libtorch.make = [](std::int64_t bytes, c10::Device device) {
    at::Tensor made;
    std::thread([&] { made = at::empty({bytes}, at::TensorOptions(at::kByte).device(device)); }).join();
    return made;
  };
  EXPECT_THAT(what_differs_on(*gpu_, libtorch),
              Optional(HasSubstr("an allocation of GPU memory does not come to vedette")));
}

TEST_F(GpuBehaviour, NamesAStorageThatKeepsItsOldPointer) {
  LibtorchOfGpu libtorch = libtorch_of_gpu_as_it_is();
  libtorch.exchange = [](c10::StorageImpl&, c10::DataPtr) {};
  EXPECT_THAT(what_differs_on(*gpu_, libtorch), Optional(HasSubstr("does not follow its new pointer")));
}

TEST_F(GpuBehaviour, NamesAStreamThatWaitsForNoEvent) {
  LibtorchOfGpu libtorch = libtorch_of_gpu_as_it_is();
  libtorch.stream = [](GpuStorages& gpu) { return gpu.beside_captures(); };  // another one than libtorch queues on
  libtorch.lead = std::chrono::milliseconds(500);
  EXPECT_THAT(what_differs_on(*gpu_, libtorch), Optional(HasSubstr("does not wait for an event")));
  EXPECT_NE(control().races(), std::vector<std::string>());
  control().forget_races();
}

TEST_F(GpuBehaviour, NamesACopyThatReadsOtherMemory) {
  LibtorchOfGpu libtorch = libtorch_of_gpu_as_it_is();
  libtorch.copy_to_host = [](const at::Tensor& tensor) { return at::full(tensor.sizes(), 7, at::kByte); };
  EXPECT_THAT(what_differs_on(*gpu_, libtorch), Optional(HasSubstr("does not read where")));
}

}  // namespace
}  // namespace vedette::testing::behaviour_test
