// vedette for libtorch: a guard around a training loop. While a Guard lives, CPU tensors are allocated in its arena,
// operators announce their operands, and tensors that do not fit into `fast_memory` stay in the slow tier until used.
//
//   vedette::Guard guard{{.fast_memory = 2_GiB}};
//   guard.watch(*model);
//   guard.watch(optimizer);
//   for (auto& batch : *loader) {
//     auto step = guard.step();
//     ...the loop as it was...
//   }
//
// Thread rule: construct, watch, step and bring_home from the training thread. Any thread may use, make and free
// tensors, but none may make one while the first guard of a process is constructed. A child of fork() (a data loader's
// worker) allocates ordinary memory; a guarded tensor of its parent ends it with a sentence when it is touched, and
// step() and watch() throw. Errors: the constructor, watch(), step() and allocations inside the loop throw
// vedette::Failure or c10::Error, whose message is one sentence.
#pragma once
#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "vedette/session.h"

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11,
              "vedette is written for libtorch 2.11 and later minor versions; older ones lack what it needs");

namespace vedette {

// A share of the machine's memory (MemTotal, or the smallest limit of the memory cgroups above this process where that
// is less), as it is when the share becomes Bytes. Under torchrun it is a share of each rank's part of this machine:
// LOCAL_WORLD_SIZE ranks divide the memory. Throws Failure of Cause::malformed_input outside of (0, 1].
struct Fraction {
  double value = 1.0;
  operator Bytes() const;
};
constexpr Fraction fraction(double value) noexcept { return {value}; }

// A guard's options are its session's. Defaults differ: fast_memory of 0 bytes is fraction(0.5), or all that a GPU
// has free; without on_message each sentence is written to standard error once. With a recording a `profile` of layers
// is one of ops, so that its map counts. Where `record` is empty, the environment variable VEDETTE_RECORD may name a
// file; where `ranks` is 1, LOCAL_WORLD_SIZE may say another number.
using GuardOptions = SessionOptions;

// A guard that is opened while another one lives in this process shares its memory: teacher and student, two models
// that are trained by turns, the phases of a program. The budgets add up to one, and all of it serves the step that
// runs; where a guard ends its part goes. fast_memory of 0 adds nothing. Other options are the first guard's: one that
// is another value than there and than the default is refused. Messages and the recording are the first guard's.

class Guard {
  struct State;

 public:
  class [[nodiscard("a Layer marks the scope it lives in")]] Layer : Scope {
   public:
    ~Layer();

   private:
    friend class Guard;
    Layer(State & state, std::string_view name);
    State& state_;
    LayerScope scope_;
  };

  class [[nodiscard("a Step marks the scope it lives in")]] Step : Scope {
   public:
    // As step(), where the scope is not a block: std::optional<Guard::Step> one; one.emplace(guard); one.reset();
    explicit Step(Guard & guard);
    ~Step();  // never throws; the next step() throws its error
    Layer layer(std::string_view name);

   private:
    struct Turn {  // of the one step that runs
      explicit Turn(State& of);
      ~Turn();
      State& state;
    };
    State& state_;
    Turn turn_;
    StepScope scope_;
  };

  explicit Guard(GuardOptions options);  // beside another guard: between its steps
  ~Guard();                              // tensors stay valid where they are; never throws
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Moves the storages of parameters, buffers and optimizer state into the arena; views follow. Later storages are
  // allocated there. May be called at any time between steps, any number of times. Parameters that
  // are parts of a file mapped for this process (safetensors, load with mmap) get memory of their own; other tensors of
  // the file do not follow. Other memory that libtorch did not allocate (from_blob, shared memory) stays where it is,
  // with a message, and so does what is exported (mark_exported(), numpy). bring_home() visits modules and optimizers
  // again.
  void watch(torch::nn::Module& module, std::string_view name = "");
  void watch(torch::optim::Optimizer& optimizer);  // Adam, AdamW, SGD, RMSprop, Adagrad, LBFGS
  // The same for tensors that no torch::nn::Module has: a Python module's, for instance. A weight "conv1.weight"
  // belongs to layer "conv1". In a later call a tensor that is watched already gets its new name.
  struct Named {
    at::Tensor tensor;
    std::string name;
    TensorKind kind = TensorKind::weight;
  };
  void watch(std::span<const Named> tensors);

  // Session::place(): where tensors lie, by their names in reports ("conv1.weight", "conv1.weight.exp_avg"). Throws its
  // error as a Failure.
  void place(std::string_view names, std::string_view tier, Session::Placement as = Session::Placement::hint) {
    if (const auto placed = session().place(names, tier, as); !placed) throw Failure(placed.error());
  }

  Step step();  // throws the first error of a background thread since the last step
  // in a step: the ops of this scope are one layer, whatever parameters they use
  Layer layer(std::string_view name);
  // Pins the tensor's memory, for system calls and other libraries. A zero-copy send (MSG_ZEROCOPY, vmsplice) needs it
  // until the send is done, or may carry other tensors' bytes. Failure (out_of_memory): the budget has no room for it
  // beside what is pinned already.
  ResidentScope resident(const at::Tensor& tensor);

  // Moves all watched storages and their gradients to ordinary memory; training goes on without the guard. Throws
  // Cause::out_of_memory, and changes nothing, when they do not fit. Watched modules and optimizers must be alive. What
  // another guard watches stays with that one.
  void bring_home();

  // Session::set_fast_memory(): another budget while the program runs, of this guard; the answer is of all guards of
  // the process together. Throws its error as a Failure, and forks'.
  FastMemory set_fast_memory(Bytes bytes);

  Session& session() noexcept;
  Counters counters() const noexcept;

 private:
  static std::shared_ptr<State> living();
  void join(GuardOptions options);
  std::shared_ptr<State> state_;
};

using Step = Guard::Step;

// Another library has the address of the tensor's memory from now on: at::toDLPack, from_blob over its data_ptr, a
// registration for DMA. watch() and bring_home() leave such memory where it is, with a message. Memory of the arena
// keeps its address, and may be exported once it is watched. GPU memory of a living guard comes at this call, and stays
// at its address as long as the tensor's storage lives: all of the guard's GPU memory stays with it when the guard
// ends. Throws Failure of Cause::out_of_memory where the budget has no room for it. Thread rule: any thread.
void mark_exported(const at::Tensor& tensor);

// Replaces `backward(); optimizer.step(); optimizer.zero_grad();`, with the same bits: each parameter is updated as
// soon as its gradient is complete, within the pass, and the gradient is freed. So no gradient is evicted, and the
// optimizer's state is fetched while the pass computes instead of all at once when it has ended.
//
//   vedette::step_in_backward(optimizer, [&] { loss.backward(); });   // instead of loss.backward(); optimizer.step();
//
// With accumulated gradients, call it for the last pass before the step; parameters that only an earlier pass reached
// are updated when `backward` returns. It does not suit loops that use the gradients of several parameters between pass
// and step (to clip their common norm). It needs no guard. Errors: throws Failure, before the first update, for an
// optimizer that is none of Adam, AdamW, SGD, RMSprop and Adagrad by its exact type; `per_parameter` allows others. It
// throws where another library's hook waits for a gradient (the Reducer of data parallel training). It
// also throws where a second part of a parameter's gradient comes after its update: two passes in one call, or a layer
// recomputed in two parts. A second pass over a retained graph throws libtorch's own error, since the parameters have
// changed. Exceptions of `backward` pass through; the parameters that it had reached are updated then. Thread rule: the
// training thread; no other thread uses the optimizer meanwhile. Source: the fused update of LOMO (Lv et al., ACL
// 2024), for any optimizer.
struct StepInBackwardOptions {
  // The program's word about an optimizer of its own: its step() updates each parameter from that parameter's gradient
  // and state alone. No norm over all, no average among ranks, no count of its calls.
  bool per_parameter = false;
};
void step_in_backward(torch::optim::Optimizer& optimizer, const std::function<void()>& backward,
                      StepInBackwardOptions options = {});

// Calls each of oneMKL's vector functions (sqrt, exp, tanh, ...) once on one element, as the Guard's constructor does.
// oneMKL 2024.2, which libtorch 2.11 is built with, chooses a function's code at its first call. Where several threads
// make that call at once, one of them may run the code of low accuracy, once, for its whole share. Relative errors of
// 3e-4 were seen in the square roots of an Adam step. A program that compares runs bit by bit calls this before its
// first operator. The first call takes about a millisecond, others nothing. Thread rule: any thread; no other thread
// uses libtorch's operators meanwhile. Source: pytorch/pytorch issue 188792.
void resolve_vector_math();

}  // namespace vedette
