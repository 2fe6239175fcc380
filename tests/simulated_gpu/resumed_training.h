// Trainings that a guard of GPU memory takes over: model and optimizer have state before the guard is made, which is
// larger than the budget. They are guarded, go on without a guard, and are guarded again. Losses and all state have the
// bits of the same training without guards.
//
// Thread rule: one thread.
#pragma once
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "models/model.h"
#include "models/state.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing {

struct Resumed {
  std::string losses;  // a line a step
  std::map<std::string, std::string> state;
  Bytes peak, smallest;  // under the first guard
  std::uint64_t moved = 0;
};

// Without a budget: without guards. `first_on` is the device of the steps before them.
inline Resumed resume(const std::string& name, std::optional<Bytes> budget, c10::DeviceType first_on) {
  constexpr int first_steps = 2, steps = 5, guards = 2;
  const c10::Device device(at::kCUDA, 0);
  Resumed resumed;
  const auto model = examples::make_model(name, {.small = true, .seed = 3, .script = {}});
  std::ostringstream losses;
  int number = 0;
  const auto run = [&](int count, Guard* guard) {
    for (int i = 0; i < count; ++i, ++number) {
      std::optional<Guard::Step> step;
      if (guard != nullptr) step.emplace(*guard);
      losses << model->train_step(number) << '\n';
    }
  };
  model->module().to(c10::Device(first_on, first_on == at::kCUDA ? 0 : -1));
  run(first_steps, nullptr);
  model->module().to(device);
  for (torch::optim::Optimizer* const optimizer : model->optimizers())
    examples::each_state(
        *optimizer, [&](const std::string&, const at::Tensor& state) { at::Tensor(state).set_data(state.to(device)); });
  for (int turn = 0; turn < guards; ++turn) {
    std::optional<Guard> guard;
    if (budget) {
      guard.emplace(GuardOptions{.fast_memory = *budget, .fast = "gpu:0", .slow = "host"});
      guard->watch(model->module());
      for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard->watch(*optimizer);
    }
    run(steps, guard ? &*guard : nullptr);
    if (guard && turn == 0) {
      resumed.peak = {guard->counters().peak_bytes.value};
      resumed.smallest = guard->session().smallest_budget();
      resumed.moved = guard->counters().bytes_in.value;
    }
    guard.reset();
    run(1, nullptr);
  }
  resumed.losses = losses.str();
  resumed.state = examples::digests(*model);
  return resumed;
}

// In parts of its peak, which `whole` holds. Tensors that are small beside a budget are outside of it: the peak is that
// of a budget of nearly its size.
inline void expect_resumed_bits(const std::string& name, c10::DeviceType first_on, Bytes whole) {
  const Resumed plain = resume(name, std::nullopt, first_on);
  const auto expect_plain_bits = [&](const Resumed& guarded) {
    EXPECT_EQ(guarded.losses, plain.losses);
    EXPECT_EQ(examples::first_difference(plain.state, guarded.state), "");
  };
  Resumed ample = resume(name, whole, first_on);
  expect_plain_bits(ample);
  ample = resume(name, Bytes{ample.peak.value * 5 / 4}, first_on);
  expect_plain_bits(ample);
  for (const std::uint64_t percent : {50u, 30u, 20u}) {
    SCOPED_TRACE(name + " in " + std::to_string(percent) + " % of its peak");
    const Bytes budget{std::max(ample.peak.value * percent / 100, ample.smallest.value)};
    const Resumed small = resume(name, budget, first_on);
    expect_plain_bits(small);
    EXPECT_GT(small.moved, 0u);
  }
}

}  // namespace vedette::testing
