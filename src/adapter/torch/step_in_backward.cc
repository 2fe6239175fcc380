// Optimizer steps inside a backward pass, one parameter at a time: see step_in_backward() in vedette/torch.h.
#include <mutex>

#include "adapter/torch/gradient_hooks.h"
#include "vedette/torch.h"

namespace vedette {

void step_in_backward(torch::optim::Optimizer& optimizer, const std::function<void()>& backward,
                      StepInBackwardOptions options) {
  adapter::refuse_to_step_in_backward(optimizer, options.per_parameter);
  {
    std::mutex one_at_a_time;  // autograd has a thread for each device
    const adapter::GradientHooks hooks(optimizer, [&](const adapter::GradientHooks::Parameter& parameter) {
      const std::lock_guard lock(one_at_a_time);
      adapter::step_one(optimizer, parameter.tensor, optimizer.param_groups()[parameter.group]);
    });
    backward();
  }
  optimizer.step();  // parameters that only an earlier pass reached
  optimizer.zero_grad();
}

}  // namespace vedette
