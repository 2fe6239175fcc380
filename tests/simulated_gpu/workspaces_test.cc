// Device memory that a library takes from libtorch's allocator and keeps for ever: cuBLAS's workspaces, and others of
// which nothing is known. A guard neither keeps its range for it, nor moves everything in each step.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing::workspaces_test {
namespace {

const c10::Device device(at::kCUDA, 0);
constexpr Bytes most_of_it{std::size_t{150} << 20};  // of 256 MiB: two guards' ranges do not fit beside each other

void clear_workspaces() {  // at::cuda::clearCublasWorkspaces()
  reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "_ZN2at4cuda21clearCublasWorkspacesEv"))();
}

unsigned long workspaces_written() {
  return reinterpret_cast<unsigned long (*)(unsigned long)>(::dlsym(RTLD_DEFAULT, "simulated_workspaces_written"))(0);
}

class GpuWorkspaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20});
  }
  void TearDown() override { EXPECT_EQ(control().races(), std::vector<std::string>()); }
  static std::unique_ptr<Guard> guard(Bytes budget) {
    return std::make_unique<Guard>(GuardOptions{.fast_memory = budget, .fast = "gpu:0", .slow = "host"});
  }
  // Products on this thread and on autograd's. `between` is called before each step.
  template <class Between>
  static std::vector<float> train(Guard* guard, const Between& between) {
    torch::manual_seed(3);
    torch::nn::Linear layer(256, 256);
    layer->to(device);
    if (guard != nullptr) guard->watch(*layer);
    torch::optim::SGD optimizer(layer->parameters(), 0.1);
    const at::Tensor input = at::ones({512, 256}, device);
    std::vector<float> losses;
    for (int i = 0; i < 10; ++i) {
      between();
      std::optional<Guard::Step> step;
      if (guard != nullptr) step.emplace(*guard);
      optimizer.zero_grad();
      const at::Tensor loss = layer->forward(input).pow(2).mean();
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<float>());
    }
    return losses;
  }
};

// Products have none where the device gives libtorch no handle to give them to, and then a test shows nothing.
class WorkspacesOfProducts : public GpuWorkspaces {
 protected:
  void TearDown() override {
    GpuWorkspaces::TearDown();
    if (IsSkipped()) return;
    EXPECT_GE(workspaces_written(), 30u) << "ten steps have 30 products";
  }
};

TEST_F(WorkspacesOfProducts, AreLibtorchsOwnMemoryAndTheRangeGoesWithItsGuard) {
  std::vector<float> inside;
  {
    const auto first = guard(most_of_it);
    inside = train(first.get(), [] {});
  }
  EXPECT_EQ(train(nullptr, [] {}), inside);
  const auto second = guard(most_of_it);
  EXPECT_EQ(train(second.get(), [] {}), inside);
}

TEST_F(WorkspacesOfProducts, ThatAnOpMakesBecomeLibtorchsOwnWhenItEnds) {
  const std::vector<float> plain = train(nullptr, [] {});
  auto first = guard(2_MiB);
  const auto live = first->counters().live_bytes.value;
  EXPECT_EQ(train(first.get(), [] { clear_workspaces(); }), plain);
  EXPECT_EQ(first->counters().live_bytes.value, live);
  first.reset();
  EXPECT_EQ(train(nullptr, [] {}), plain);
  first = guard(most_of_it);
  first.reset();
  EXPECT_NO_THROW(first = guard(most_of_it));
}

// --- as large as on a GPU --------------------------------------------------------------------------------------------

constexpr std::size_t large = std::size_t{32} << 20;

std::size_t allocated() {
  constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<std::size_t>(c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).allocated_bytes[all].current);
}

// Of 32 MiB, whether libtorch keeps them or makes one for each product, and whether or not a product has run before.
class LargeWorkspaces : public WorkspacesOfProducts,
                        public ::testing::WithParamInterface<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
    ::setenv("CUBLASLT_WORKSPACE_SIZE", "32768", 1);
    ::setenv("TORCH_CUBLAS_WORKSPACE_CACHE", std::get<1>(GetParam()) == "kept" ? "1" : "0", 1);
    WorkspacesOfProducts::SetUp();
  }
  static std::vector<float> train(Guard* guard) {
    torch::manual_seed(3);
    torch::nn::Sequential layers;
    for (int i = 0; i < 8; ++i) layers->push_back(torch::nn::Linear(256, 256));
    layers->to(device);
    if (guard != nullptr) guard->watch(*layers);
    torch::optim::SGD optimizer(layers->parameters(), 0.1);
    const at::Tensor input = at::ones({512, 256}, device);
    std::vector<float> losses;
    for (int i = 0; i < 8; ++i) {
      std::optional<Guard::Step> step;
      if (guard != nullptr) step.emplace(*guard);
      optimizer.zero_grad();
      const at::Tensor loss = layers->forward(input).pow(2).mean();
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<float>());
    }
    return losses;
  }
};

TEST_P(LargeWorkspaces, LieBesideTheBudget) {
  std::vector<float> plain;
  if (std::get<0>(GetParam()) == "later") plain = train(nullptr);
  const std::size_t before = plain.empty() ? 0 : allocated();  // libtorch opens its device with the first tensor
  auto one = guard(6_MiB);
  const bool for_each_product = TORCH_VERSION_MINOR >= 15 && std::get<1>(GetParam()) == "each";
  EXPECT_GE(allocated(), before + (plain.empty() || for_each_product ? large : 0)) << "before a step";
  const std::vector<float> guarded = train(one.get());
  EXPECT_GE(allocated(), large);
  EXPECT_GT(one->counters().bytes_in.value, 0u) << "6 MiB are less than a step needs";
  one.reset();
  if (plain.empty()) plain = train(nullptr);
  EXPECT_EQ(guarded, plain);
  constexpr bool apart = TORCH_VERSION_MINOR < 14;  // cuBLASLt's workspace, which libtorch keeps for the plain run
  EXPECT_NO_THROW(one = guard(apart ? Bytes{most_of_it.value - large} : most_of_it));
}

INSTANTIATE_TEST_SUITE_P(All, LargeWorkspaces,
                         ::testing::Combine(::testing::Values("first", "later"), ::testing::Values("each", "kept")),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

// --- of a library that nothing is known of ---------------------------------------------------------------------------

c10::DataPtr kept;  // no storage has it

at::Tensor keep(const at::Tensor& tensor) {
  const std::size_t bytes = 300 << 10;
  if (!kept) kept = c10::GetAllocator(at::kCUDA)->allocate(bytes);
  at::from_blob(kept.get(), {static_cast<std::int64_t>(bytes) / 4}, tensor.options()).fill_(7);
  return tensor + 1;
}

TORCH_LIBRARY(workspaces_test, library) { library.def("keep(Tensor tensor) -> Tensor"); }
TORCH_LIBRARY_IMPL(workspaces_test, CUDA, library) { library.impl("keep", &keep); }

TEST_F(GpuWorkspaces, ThatAreKeptInTheRangeAreLeftOutByThePlanAndASteadyStepMovesNothing) {
  const auto one = guard(4_MiB);
  constexpr std::int64_t many = 32 << 10;  // 128 KiB
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("workspaces_test::keep", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  static_cast<void>(op.call(at::full({many}, 1.0, device)));  // among what the plan will place
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(at::full({many}, 1.0 * i, device));
  std::uint64_t moved = 0;
  for (int s = 0; s < 12; ++s) {
    if (s == 8) moved = one->counters().bytes_in.value + one->counters().bytes_out.value;
    const auto step = one->step();
    at::Tensor sum = at::zeros({many}, device);
    for (at::Tensor& weight : weights) {
      sum = sum + op.call(weight);
      weight.add_(1);
    }
    for (at::Tensor& weight : weights) sum = sum + weight.mul(2);
  }
  EXPECT_EQ(one->session().phase(), "planned");
  EXPECT_EQ(one->counters().bytes_in.value + one->counters().bytes_out.value, moved);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(weights[static_cast<std::size_t>(i)].cpu().eq(i + 12).all().item<bool>());
  kept = {};
}

}  // namespace
}  // namespace vedette::testing::workspaces_test
