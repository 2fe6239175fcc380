// Optimizer steps inside a backward pass, one parameter at a time: see step_in_backward() in vedette/torch.h.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/lbfgs.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "adapter/torch/operators.h"
#include "vedette/torch.h"

namespace vedette {
namespace {

namespace autograd = torch::autograd;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

// Steps one parameter with its group's options, as the optimizer's own step() would among all others.
void step_one(Optimizer& optimizer, const at::Tensor& parameter, const OptimizerParamGroup& group) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{parameter}, group.options().clone());
  const auto swap = [&] { std::swap(optimizer.param_groups(), groups); };
  swap();
  const adapter::OptimizerSteps steps;
  try {
    optimizer.step();
  } catch (...) {
    swap();
    throw;
  }
  swap();
  at::Tensor(parameter).mutable_grad().reset();
}

class StepHook final : public autograd::PostAccumulateGradHook {
 public:
  StepHook(Optimizer& optimizer, std::size_t group, std::mutex& one_at_a_time, autograd::PostAccumulateGradHook* former)
      : optimizer_(optimizer), group_(group), one_at_a_time_(one_at_a_time), former_(former) {}
  void operator()(const autograd::Variable& parameter) override {
    if (former_ != nullptr) (*former_)(parameter);
    const std::lock_guard lock(one_at_a_time_);
    if (stepped_)
      throw Failure({.cause = Cause::unsupported,
                     .message = "a parameter's gradient came in two parts, and the first has stepped the optimizer "
                                "already; step after backward where a pass accumulates gradients more than once"});
    stepped_ = true;
    step_one(optimizer_, parameter, optimizer_.param_groups()[group_]);
  }

 private:
  Optimizer& optimizer_;
  const std::size_t group_;
  std::mutex& one_at_a_time_;  // passes may run on threads of the autograd engine
  autograd::PostAccumulateGradHook* former_;
  bool stepped_ = false;
};

// A Reducer's hook is called when ours has freed the gradient, and would reduce zeros.
void refuse_other_hooks(const Optimizer& optimizer) {
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto accumulator = autograd::impl::try_get_grad_accumulator(parameter);
      if (accumulator == nullptr || accumulator->post_hooks().empty()) continue;
      throw Failure({.cause = Cause::unsupported,
                     .message = "step_in_backward: something else waits for the parameters' gradients (the Reducer of "
                                "data parallel training, for instance), which would be freed before it sees them; call "
                                "backward() and the optimizer's step() instead"});
    }
  }
}

class Hooks {  // on the optimizer's parameters, while this lives
 public:
  explicit Hooks(Optimizer& optimizer) {
    for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
      for (const at::Tensor& parameter : optimizer.param_groups()[group].params()) {
        if (!parameter.requires_grad()) continue;
        auto former = std::move(autograd::impl::post_acc_grad_hooks(parameter));
        autograd::impl::set_post_acc_grad_hooks(
            parameter, std::make_unique<StepHook>(optimizer, group, one_at_a_time_, former.get()));
        hooked_.push_back({parameter, std::move(former)});
      }
    }
  }
  ~Hooks() {
    for (Hooked& each : hooked_) autograd::impl::set_post_acc_grad_hooks(each.parameter, std::move(each.former));
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

 private:
  struct Hooked {
    at::Tensor parameter;
    std::unique_ptr<autograd::PostAccumulateGradHook> former;
  };
  std::mutex one_at_a_time_;
  std::vector<Hooked> hooked_;
};

}  // namespace

void step_in_backward(Optimizer& optimizer, const std::function<void()>& backward) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr)
    throw Failure(
        {.cause = Cause::unsupported,
         .message = "LBFGS looks at all gradients together and cannot step in backward; call its step() afterwards"});
  refuse_other_hooks(optimizer);
  {
    const Hooks hooks(optimizer);
    backward();
  }
  optimizer.step();  // what this pass did not reach, and an earlier one did
  optimizer.zero_grad();
}

}  // namespace vedette
