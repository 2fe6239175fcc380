// vedette for libtorch: a guard around a training loop. While a Guard lives, CPU tensors are born in its arena, operators
// announce their operands, and what does not fit into `fast_memory` waits in the slow tier.
//
//   vedette::Guard guard{{.fast_memory = 2_GiB}};
//   guard.watch(*model);
//   guard.watch(optimizer);
//   for (auto& batch : *loader) {
//     auto step = guard.step();
//     ...the loop as it was...
//   }
//
// Thread rule: construct, watch, step and bring_home from the training thread. Tensors may be used, made and freed by any thread.
// Errors: the constructor, watch(), step() and allocations inside the loop throw vedette::Failure or c10::Error with one sentence.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "vedette/session.h"

namespace vedette {

struct Fraction {                    // of the machine's memory (MemTotal, or the memory cgroup's limit where that is less)
  double value = 1.0;                // (0, 1]
};
constexpr Fraction fraction(double value) noexcept { return {value}; }

struct GuardOptions {
  std::variant<Bytes, Fraction> fast_memory = Fraction{0.5};
  std::string slow = "nvme:.";       // as SessionOptions::slow
  std::string policy = "vedette";
  Bytes chunk = {std::uint64_t{2} << 20};
  std::uint32_t warmup_steps = 1;
  ProfileTicks profile = ProfileTicks::layers;
  Observer* observer = nullptr;      // borrowed; a recorder, for instance
  std::function<void(std::string_view)> on_message;  // default: a line on standard error
  std::uint64_t seed = 1;
};

class Guard {
 public:
  explicit Guard(GuardOptions options);
  ~Guard();                          // tensors stay valid where they are; never throws
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Adopts what exists: the storages of parameters, buffers and optimizer state move into the arena, views follow. What the
  // module or optimizer gets later is born there. May be called at any time between steps, any number of times.
  void watch(torch::nn::Module& module, std::string_view name = "");
  void watch(torch::optim::Optimizer& optimizer);

  StepScope step();                  // throws what went wrong in the background since the last step
  LayerScope layer(std::string_view name);
  ResidentScope resident(const at::Tensor& tensor);  // pins the tensor's memory: for system calls and other libraries

  // Moves everything watched to ordinary memory, when that fits; training goes on without the guard. Throws
  // Cause::out_of_memory, and changes nothing, when it does not fit.
  void bring_home();

  Session& session() noexcept { return *session_; }
  Counters counters() const noexcept { return session_->counters(); }

 private:
  struct State;
  std::unique_ptr<Session> session_;
  std::unique_ptr<State> state_;
};

}  // namespace vedette
