// vedette for libtorch: a guard around a training loop. While a Guard lives, CPU tensors are born in its arena,
// operators announce their operands, and what does not fit into `fast_memory` waits in the slow tier.
//
//   vedette::Guard guard{{.fast_memory = 2_GiB}};
//   guard.watch(*model);
//   guard.watch(optimizer);
//   for (auto& batch : *loader) {
//     auto step = guard.step();
//     ...the loop as it was...
//   }
//
// Thread rule: construct, watch, step and bring_home from the training thread. Tensors may be used, made and freed by
// any thread, but no thread may be making one while the guard is constructed for the first time in a process. Errors:
// the constructor, watch(), step() and allocations inside the loop throw vedette::Failure or c10::Error, one sentence.
#pragma once
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/version.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "vedette/session.h"

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11,
              "vedette is written for libtorch 2.11; another minor version has other layouts under the same names");

namespace vedette {

struct Fraction {      // of the machine's memory (MemTotal, or the memory cgroup's limit where that is less)
  double value = 1.0;  // (0, 1]
};
constexpr Fraction fraction(double value) noexcept { return {value}; }

struct GuardOptions {
  std::variant<Bytes, Fraction> fast_memory = Fraction{0.5};
  std::string slow = "nvme:.";  // as SessionOptions::slow
  std::string policy = "vedette";
  Bytes chunk = {std::uint64_t{2} << 20};
  std::uint32_t warmup_steps = 1;
  ProfileTicks profile = ProfileTicks::layers;
  std::string tracker = "best";                           // as SessionOptions::tracker
  Observer* observer = nullptr;                           // borrowed; a recorder, for instance
  std::function<void(std::string_view)> on_message = {};  // default: a line on standard error, each sentence once
  std::uint64_t seed = 1;
  bool checksums = false;  // as SessionOptions::checksums: bytes that others changed in the slow tier end the program,
                           // not become numbers
};

class Guard {
  struct State;

 public:
  class [[nodiscard("a Layer marks the scope it lives in")]] Layer {
   public:
    ~Layer();
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;

   private:
    friend class Guard;
    Layer(State & state, std::string_view name);
    State& state_;
    LayerScope scope_;
  };

  class [[nodiscard("a Step marks the scope it lives in")]] Step {
   public:
    ~Step();  // never throws; what went wrong, the next step() tells
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    Layer layer(std::string_view name);

   private:
    friend class Guard;
    explicit Step(State & state);
    State& state_;
    StepScope scope_;
  };

  explicit Guard(GuardOptions options);
  ~Guard();  // tensors stay valid where they are; never throws
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Adopts what exists: the storages of parameters, buffers and optimizer state move into the arena, views follow. What
  // the module or optimizer gets later is born there. May be called at any time between steps, any number of times.
  // Memory that libtorch did not allocate (from_blob, mapped files) stays where it is, with a message. bring_home()
  // looks at both again.
  void watch(torch::nn::Module& module, std::string_view name = "");
  void watch(torch::optim::Optimizer& optimizer);  // Adam, AdamW, SGD, RMSprop, Adagrad

  Step step();  // throws what went wrong in the background since the last step
  Layer layer(
      std::string_view name);  // in a step: what follows in this scope is one layer, whatever parameters it uses
  ResidentScope resident(const at::Tensor& tensor);  // pins the tensor's memory: for system calls and other libraries

  // Moves everything watched, its gradients included, to ordinary memory, when that fits; training goes on without the
  // guard. Throws Cause::out_of_memory, and changes nothing, when it does not fit. Watched modules and optimizers must
  // live.
  void bring_home();

  Session& session() noexcept;
  Counters counters() const noexcept;

 private:
  std::unique_ptr<State> state_;
};

// Stands for `backward(); optimizer.step(); optimizer.zero_grad();`, with the same bits: each parameter is updated as
// soon as its gradient is complete, within the pass, and the gradient is freed. So gradients need not wait for the
// optimizer in the slow tier, and the optimizer's state comes while the pass computes instead of all at once when it
// has ended.
//
//   vedette::step_in_backward(optimizer, [&] { loss.backward(); });   // instead of loss.backward(); optimizer.step();
//
// Where gradients are accumulated, it is for the last pass before the step; what only an earlier pass reached is
// stepped when `backward` returns. Not for loops that look at the gradients of several parameters between pass and step
// (to clip their common norm). Throws Failure for an optimizer that does so itself (LBFGS), and where the gradient of
// one parameter comes in two parts (two passes in one call, a layer in two parts that are computed again in backward),
// the first of which has stepped it. A second pass over a graph that was kept throws libtorch's own error, since its
// parameters have changed. What `backward` throws comes out; the parameters that it had reached are updated then. Needs
// no guard. Thread rule: the training thread; nobody else uses the optimizer meanwhile. Source: the fused update of
// LOMO (Lv et al., ACL 2024), for any optimizer.
void step_in_backward(torch::optim::Optimizer& optimizer, const std::function<void()>& backward);

// Calls each of oneMKL's vector functions (sqrt, exp, tanh, ...) once on one element, as the Guard's constructor does.
// oneMKL 2024.2, which libtorch 2.11 is built with, chooses a function's code when it is first called; where several
// threads make that call at once, one of them may run the code of low accuracy, once, for its whole share (relative
// errors of 3e-4 were seen in an Adam step's square roots). A program that compares runs bit by bit, or with itself,
// calls this before its first operator. The first call takes about a millisecond, others nothing. Thread rule: any
// thread; nobody uses libtorch's operators meanwhile. Source: pytorch/pytorch issue 188792.
void resolve_vector_math();

}  // namespace vedette
