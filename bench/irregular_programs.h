// Eight programs whose steps never repeat: shapes grow or are drawn, experts and inner loops vary, generation comes
// between training steps. Each is written as people write it, for libtorch's C++ frontend; none knows of vedette but by
// the calls of a Run. `small` keeps the ops and shrinks the shapes, for tests.
#pragma once
#include <torch/cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vedette/torch.h"

namespace vedette::bench {

struct Run {
  Guard* guard = nullptr;  // nullptr: plain
  bool small = false;
  std::string device = "cpu";  // or "cuda"
  int steps = 12;
  std::vector<double> step_ms = {};
  std::vector<std::uint32_t> losses = {};  // bit patterns
  std::uint64_t bits = 0;                  // a hash of all that was kept at the end, byte by byte
  std::function<void()> after_step = [] {};

  at::Tensor there(const at::Tensor& data) const { return data.to(at::Device(device)); }
  void move(torch::nn::Module& module) const { module.to(at::Device(device)); }
  // Without a guard the body alone; with one, as a step of the guard.
  void within(const auto& body) {
    const auto began = std::chrono::steady_clock::now();
    if (guard == nullptr) {
      body();
    } else {
      const auto step = guard->step();
      body();
    }
    if (device == "cuda") torch::cuda::synchronize();  // a step lasts until its work has ended
    step_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
    after_step();
  }
  void watch(torch::nn::Module& module, const std::string& name = "");
  void watch(torch::optim::Optimizer& optimizer);
  void keep(const at::Tensor& loss);
  void keep(const torch::nn::Module& module);
  void keep_bytes(const at::Tensor& tensor);
};

struct Program {
  const char* name;
  const char* what;
  void (*run)(Run&);
};

const std::vector<Program>& irregular_programs();

}  // namespace vedette::bench
