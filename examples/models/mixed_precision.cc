// Autocast and the scaler's operators: see mixed_precision.h.
#include "models/mixed_precision.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/optim/optimizer.h>

#include <vector>

namespace vedette::examples {

Autocast::Autocast(c10::DeviceType device, bool on) : device_(device), on_(on) {
  if (!on_) return;
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  at::autocast::set_autocast_enabled(device_, false);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // casts of the parameters
}

GradScaler::GradScaler(c10::Device device, Options options)
    : growth_interval_(options.growth_interval),
      scale_(at::full({1}, options.scale, at::TensorOptions(device).dtype(at::kFloat))),
      finite_steps_(at::zeros({1}, at::TensorOptions(device).dtype(at::kInt))),
      infinite_(at::zeros({1}, at::TensorOptions(device).dtype(at::kFloat))) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_.squeeze(); }

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient);
    }
  }
  at::Tensor infinite = at::zeros_like(infinite_);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, infinite, scale_.reciprocal());
  infinite_.add_(infinite);
  const bool finite = infinite.item<float>() == 0;
  if (finite) optimizer.step();
  left_out_ += finite ? 0 : 1;
  return finite;
}

void GradScaler::update() {
  at::_amp_update_scale_(scale_, finite_steps_, infinite_, 2.0, 0.5, growth_interval_);
  infinite_.zero_();
}

float GradScaler::value() const { return scale_.item<float>(); }

}  // namespace vedette::examples
