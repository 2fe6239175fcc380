// A program that is run twice, as it is and under a guard with little memory, and what it ended with: every loss,
// parameter, buffer and optimizer state, bit by bit.
#pragma once
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "adapter/training.h"
#include "support/torch_threads.h"

namespace vedette::test {

namespace nn = torch::nn;

// of programs as small as these
inline constexpr Bytes trial_chunk = {std::uint64_t{32} << 10};

// A program under test. Without a guard, `within` runs what it is given; with one, as a step of the guard.
struct Trial {
  Guard* guard = nullptr;
  Outcome outcome = {};

  void within(const auto& body) {
    if (guard == nullptr) return body();
    const auto step = guard->step();
    body();
  }
  void watch(nn::Module& module, std::string_view name = "") {
    if (guard != nullptr) guard->watch(module, name);
  }
  void watch(torch::optim::Optimizer& optimizer) {
    if (guard != nullptr) guard->watch(optimizer);
  }
  void keep(const at::Tensor& loss) { outcome.losses.push_back(std::bit_cast<std::uint32_t>(loss.item<float>())); }
  void keep(const std::string& name, const at::Tensor& tensor) {
    outcome.tensors[name] = bytes_of(tensor.cpu().contiguous());
  }
  void keep(const nn::Module& module, const std::string& prefix = "") {
    for (const auto& item : module.named_parameters()) keep(prefix + item.key(), item.value());
    for (const auto& item : module.named_buffers()) keep(prefix + item.key(), item.value());
  }
  void keep(torch::optim::Optimizer& optimizer, const std::string& prefix = "") {
    each_state(optimizer, [&](const std::string& name, const at::Tensor& state) { keep(prefix + name, state); });
  }
};

inline GuardOptions tight(std::uint64_t budget) {
  constexpr std::uint64_t fewest_chunks = 12;
  return {.fast_memory = Bytes{std::max(budget, fewest_chunks * trial_chunk.value)},
          .slow = "host",
          .chunk = trial_chunk,
          .on_message = [](auto) {}};
}

inline void expect_same(const Outcome& guarded, const Outcome& plain) {
  EXPECT_EQ(guarded.losses, plain.losses);
  ASSERT_EQ(guarded.tensors.size(), plain.tensors.size());
  for (const auto& [name, bytes] : plain.tensors) EXPECT_TRUE(guarded.tensors.at(name) == bytes) << name;
  EXPECT_FALSE(plain.losses.empty() && plain.tensors.empty()) << "nothing was compared";
}

// At `percent` of what the program needs without a guard.
template <class Program>
void expect_same_bits(const Program& program, std::uint64_t percent = 40) {
  testing::compute_with_given_threads();
  Trial plain;
  examples::forget_peak();
  torch::manual_seed(3);
  program(plain);
  const std::uint64_t budget = examples::counted_peak_bytes() * percent / 100;
  Guard guard(tight(budget));
  Trial guarded{.guard = &guard};
  torch::manual_seed(3);
  program(guarded);
  expect_same(guarded.outcome, plain.outcome);
  if (percent < 100) {
    EXPECT_GT(guard.counters().bytes_in.value, 0u) << "a budget this small must have moved something";
  }
  EXPECT_FALSE(guard.session().take_error());
}

}  // namespace vedette::test
