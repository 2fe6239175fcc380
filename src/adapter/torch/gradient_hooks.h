// Waiting for gradients: a hook that runs when a parameter's gradient is complete, and the update of one parameter
// then. Thread rule: the training thread.
#pragma once
#include <torch/csrc/autograd/function_hook.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace vedette::adapter {

// Throws Failure where a hook runs after the parameter's gradient is complete, as a Reducer's does. It would be called
// when a step in backward has freed the gradient, and would reduce zeros.
void refuse_other_hooks(const at::Tensor& parameter);

// Throws Failure for an optimizer that is none of libtorch's by its exact type, and where refuse_other_hooks() does.
// `per_parameter`: the program's word that it updates each parameter from its own gradient alone.
void refuse_to_step_in_backward(torch::optim::Optimizer& optimizer, bool per_parameter);

// Steps one parameter with its group's options, as the optimizer's own step() would among all others. Frees its
// gradient.
void step_one(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
              const torch::optim::OptimizerParamGroup& group);

// While it lives, `complete` is called for each of the optimizer's parameters when its gradient is complete, after
// hooks that were there before. The number is the parameter's, counted through all groups. A second part of a gradient
// is an exception: Failure.
class GradientHooks {
 public:
  struct Parameter {
    const at::Tensor& tensor;
    std::size_t group, number;
  };
  using Complete = std::function<void(const Parameter&)>;
  GradientHooks(torch::optim::Optimizer& optimizer, Complete complete);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  class Hook;
  struct Hooked {
    at::Tensor parameter;
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> former;
  };
  const Complete complete_;
  std::mutex one_at_a_time_;  // passes may run on threads of the autograd engine
  std::vector<Hooked> hooked_;
};

}  // namespace vedette::adapter
