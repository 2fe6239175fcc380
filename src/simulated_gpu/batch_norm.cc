// The formulas: see batch_norm.h.
#include "simulated_gpu/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/AccumulateType.h>

#include <vector>

namespace vedette::simulated::batch_norm {
namespace {

at::Tensor wide(const at::Tensor& of_channels) { return of_channels.to(at::kDouble); }

// [channels, values of each]
at::Tensor by_channel(const at::Tensor& tensor) { return wide(tensor).transpose(0, 1).reshape({tensor.size(1), -1}); }

// To be spread over an input's other dimensions.
at::Tensor over(const at::Tensor& input, const at::Tensor& of_channels) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return wide(of_channels).view(shape);
}

bool given(const Optional& tensor) { return tensor && tensor->defined(); }

void move_on(const Optional& running, const at::Tensor& now, double momentum) {
  if (given(running)) running->copy_(wide(*running) * (1 - momentum) + now * momentum);
}

}  // namespace

TwoTensors stats(const at::Tensor& input, double eps) {
  const at::Tensor values = by_channel(input), mean = values.mean(1);
  const at::Tensor variance = (values - mean.unsqueeze(1)).square().mean(1);
  const at::ScalarType type = at::toAccumulateType(input.scalar_type(), true);
  return {mean.to(type), (variance + eps).rsqrt().to(type)};
}

// Chan, Golub, LeVeque 1979: means and squared deviations of two sets give those of both.
TwoTensors gather_stats_with_counts(const at::Tensor&, const at::Tensor& mean, const at::Tensor& invstd,
                                    const Optional& running_mean, const Optional& running_var, double momentum,
                                    double eps, const at::Tensor& counts) {
  at::Tensor all = at::zeros({mean.size(1)}, at::kDouble), deviations = at::zeros_like(all);
  double so_far = 0;
  for (std::int64_t rank = 0; rank < mean.size(0); ++rank) {
    const double count = counts[rank].item<double>(), both = so_far + count;
    const at::Tensor other = wide(mean[rank]), variance = wide(invstd[rank]).pow(-2) - eps;
    deviations = deviations + variance * count + (other - all).square() * (so_far * count / both);
    all = all * (so_far / both) + other * (count / both);
    so_far = both;
  }
  move_on(running_mean, all, momentum);
  move_on(running_var, deviations / (so_far - 1), momentum);
  return {all.to(mean.scalar_type()), (deviations / so_far + eps).rsqrt().to(mean.scalar_type())};
}

at::Tensor elemt(const at::Tensor& input, const Optional& weight, const Optional& bias, const at::Tensor& mean,
                 const at::Tensor& invstd, double) {
  at::Tensor result = (wide(input) - over(input, mean)) * over(input, invstd);
  if (given(weight)) result = result * over(input, *weight);
  if (given(bias)) result = result + over(input, *bias);
  return at::empty_like(input).copy_(result);
}

FourTensors backward_reduce(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                            const at::Tensor& invstd, const Optional& weight, bool input_g, bool weight_g,
                            bool bias_g) {
  const at::Tensor dy = by_channel(grad_out), sum = dy.sum(1);
  const at::Tensor sum_xmu = (dy * (by_channel(input) - wide(mean).unsqueeze(1))).sum(1);
  const at::ScalarType type = mean.scalar_type(), own = given(weight) ? weight->scalar_type() : type;
  return {input_g ? sum.to(type) : at::Tensor(), input_g ? sum_xmu.to(type) : at::Tensor(),
          weight_g ? (sum_xmu * wide(invstd)).to(own) : at::Tensor(), bias_g ? sum.to(own) : at::Tensor()};
}

at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const Optional& weight, const at::Tensor& sum_dy,
                          const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  const double values = count.sum().item<double>();
  const at::Tensor slope = wide(sum_dy_xmu) / values * wide(invstd).square();
  const at::Tensor scale = given(weight) ? wide(*weight) * wide(invstd) : wide(invstd);
  const at::Tensor apart = (wide(input) - over(input, mean)) * over(input, slope);
  return at::empty_like(input).copy_((wide(grad_out) - over(input, sum_dy) / values - apart) * over(input, scale));
}

}  // namespace vedette::simulated::batch_norm
