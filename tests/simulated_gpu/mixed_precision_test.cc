// Training in mixed precision under a guard of GPU memory: autocast to bf16, and a scaler of gradients as
// torch.amp.GradScaler is. Losses, scales, parameters and optimizer state have the bits of the same loop without a
// guard, also where gradients overflow and a step is left out. There is no fp16 here: the CPU's kernels have no softmax
// from it to float.
#include "models/mixed_precision.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>
#include <optional>
#include <sstream>

#include "models/model.h"
#include "models/state.h"
#include "simulated_gpu/torch_device.h"
#include "support/whole_run.h"
#include "vedette/torch.h"

namespace vedette::testing::mixed_precision_test {
namespace {

constexpr int steps = 8;
constexpr int overflows_at = 5;  // a step whose gradients are infinite
const c10::Device device(at::kCUDA, 0);

struct Trained {
  std::string losses;  // and scales, a line a step
  std::map<std::string, std::string> state;
  int left_out = 0;
  std::uint64_t peak = 0, moved = 0;
  std::string phase;
};

// Without a budget: without a guard.
Trained train(const std::string& name, std::optional<Bytes> budget) {
  Trained trained;
  const auto model = examples::make_model(name, {.small = true, .seed = 3, .script = {}});
  std::optional<Guard> guard;
  if (budget) guard.emplace(GuardOptions{.fast_memory = *budget, .fast = "gpu:0", .slow = "host"});
  model->module().to(device);
  torch::optim::Optimizer& optimizer = model->optimizer();
  if (guard) {
    guard->watch(model->module());
    guard->watch(optimizer);
  }
  examples::GradScaler scaler(device, {.scale = 1024, .growth_interval = 2});
  std::ostringstream losses;
  for (int i = 0; i < steps; ++i) {
    std::optional<Guard::Step> step;
    if (guard) step.emplace(*guard);
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const examples::Autocast autocast(at::kCUDA);
      loss = model->loss(i, model->batch());
    }
    if (i == overflows_at) loss = loss * std::numeric_limits<float>::infinity();
    scaler.scale(loss.to(at::kFloat)).backward();
    if (!scaler.step(optimizer)) ++trained.left_out;
    scaler.update();
    losses << std::hexfloat << loss.item<float>() << ' ' << scaler.value() << '\n';
  }
  trained.losses = losses.str();
  trained.state = examples::digests(*model);
  if (guard) {
    const Counters counters = guard->counters();
    trained.peak = counters.resident_max_bytes.value;
    trained.moved = counters.bytes_out.value;
    trained.phase = guard->session().phase();
  }
  return trained;
}

class MixedPrecision : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20});
  }
};

TEST_P(MixedPrecision, HasTheUnguardedRunsBits) {
  const std::string model = GetParam();
  const Trained plain = train(model, std::nullopt);
  EXPECT_EQ(plain.left_out, 1);
  const Trained whole = train(model, Bytes{64 << 20});
  EXPECT_EQ(whole.losses, plain.losses);
  for (const std::uint64_t percent : {50u, 35u}) {
    if (!whole_run() && percent == 50) continue;
    const Trained inside = train(model, Bytes{whole.peak * percent / 100});
    EXPECT_EQ(inside.losses, plain.losses) << percent;
    EXPECT_EQ(examples::first_difference(inside.state, plain.state), "") << percent;
    EXPECT_EQ(inside.left_out, 1) << percent;
    EXPECT_GT(inside.moved, 0u) << percent;
    EXPECT_EQ(inside.phase, "planned") << percent;
  }
  EXPECT_EQ(control().races(), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision, ::testing::Values("gpt", "resnet18"),
                         [](const auto& the) { return std::string(the.param); });

}  // namespace
}  // namespace vedette::testing::mixed_precision_test
