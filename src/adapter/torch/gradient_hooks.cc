// Hooks of complete gradients: see gradient_hooks.h.
#include "adapter/torch/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>
#include <utility>

#include "adapter/torch/operators.h"
#include "vedette/result.h"

namespace vedette::adapter {

namespace autograd = torch::autograd;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

void refuse_other_hooks(const at::Tensor& parameter) {
  const auto accumulator = autograd::impl::try_get_grad_accumulator(parameter);
  if (accumulator == nullptr || accumulator->post_hooks().empty()) return;
  throw Failure({.cause = Cause::unsupported,
                 .message = "step_in_backward: something else waits for the parameters' gradients (the Reducer of "
                            "data parallel training, for instance), which would be freed before it sees them; call "
                            "backward() and the optimizer's step() instead"});
}

// A subclass may have a step() of its own.
bool is_a_rule_for_each_parameter(const Optimizer& optimizer) {
  const std::type_info& kind = typeid(optimizer);
  return kind == typeid(torch::optim::Adam) || kind == typeid(torch::optim::AdamW) ||
         kind == typeid(torch::optim::SGD) || kind == typeid(torch::optim::RMSprop) ||
         kind == typeid(torch::optim::Adagrad);
}

void refuse_to_step_in_backward(Optimizer& optimizer, bool per_parameter) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr)
    throw Failure(
        {.cause = Cause::unsupported,
         .message = "LBFGS looks at all gradients together and cannot step in backward; call its step() afterwards"});
  if (!per_parameter && !is_a_rule_for_each_parameter(optimizer))
    throw Failure({.cause = Cause::unsupported,
                   .message = "step_in_backward: the step() of an optimizer that is none of libtorch's own may look at "
                              "more than one parameter's gradient; call backward() and its step() instead, or say "
                              ".per_parameter = true where it updates each parameter from its own gradient alone"});
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) refuse_other_hooks(parameter);
}

void step_one(Optimizer& optimizer, const at::Tensor& parameter, const OptimizerParamGroup& group) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{parameter}, group.options().clone());
  const auto swap = [&] { std::swap(optimizer.param_groups(), groups); };
  swap();
  const OptimizerSteps steps;
  try {
    optimizer.step();
  } catch (...) {
    swap();
    throw;
  }
  swap();
  at::Tensor(parameter).mutable_grad().reset();
}

class GradientHooks::Hook final : public autograd::PostAccumulateGradHook {
 public:
  Hook(GradientHooks& hooks, std::size_t group, std::size_t number, autograd::PostAccumulateGradHook* former)
      : hooks_(hooks), group_(group), number_(number), former_(former) {}
  void operator()(const autograd::Variable& parameter) override {
    if (former_ != nullptr) (*former_)(parameter);
    const std::lock_guard lock(hooks_.one_at_a_time_);
    if (called_)
      throw Failure({.cause = Cause::unsupported,
                     .message = "a parameter's gradient came in two parts, and the first has stepped the optimizer "
                                "already; step after backward where a pass accumulates gradients more than once"});
    called_ = true;
    hooks_.complete_({parameter, group_, number_});
  }

 private:
  GradientHooks& hooks_;
  const std::size_t group_, number_;
  autograd::PostAccumulateGradHook* former_;
  bool called_ = false;
};

GradientHooks::GradientHooks(Optimizer& optimizer, Complete complete) : complete_(std::move(complete)) {
  std::size_t number = 0;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const at::Tensor& parameter : optimizer.param_groups()[group].params()) {
      const std::size_t own = number++;
      if (!parameter.requires_grad()) continue;
      auto former = std::move(autograd::impl::post_acc_grad_hooks(parameter));
      autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*this, group, own, former.get()));
      hooked_.push_back({parameter, std::move(former)});
    }
  }
}

GradientHooks::~GradientHooks() {
  for (Hooked& each : hooked_) autograd::impl::set_post_acc_grad_hooks(each.parameter, std::move(each.former));
}

}  // namespace vedette::adapter
