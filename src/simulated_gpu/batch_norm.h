// Kernels of the CPU for the operators of torch.nn.SyncBatchNorm, which libtorch has for its CUDA device alone. Each is
// the formula of native_batch_norm in parts, computed in double.
//
// A channel is an index of the second dimension. Statistics of channels have the type in which CUDA's kernels
// accumulate: float, or double where the input is. Thread rule: a stream's thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace vedette::simulated::batch_norm {

using Optional = std::optional<at::Tensor>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Of each channel the mean and 1 / sqrt(variance + eps).
TwoTensors stats(const at::Tensor& input, double eps);

// The same of all ranks together, from those of each, [ranks, channels], and how many values a channel had there.
// Running statistics move on.
TwoTensors gather_stats_with_counts(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                                    const Optional& running_mean, const Optional& running_var, double momentum,
                                    double eps, const at::Tensor& counts);

at::Tensor elemt(const at::Tensor& input, const Optional& weight, const Optional& bias, const at::Tensor& mean,
                 const at::Tensor& invstd, double eps);

// Of each channel the sum of the gradient, its sum times (input - mean), and the gradients of weight and bias. What is
// not asked for is undefined.
FourTensors backward_reduce(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                            const at::Tensor& invstd, const Optional& weight, bool input_g, bool weight_g, bool bias_g);

// The input's gradient; `sum_dy`, `sum_dy_xmu` and `count` are of all ranks.
at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const Optional& weight, const at::Tensor& sum_dy,
                          const at::Tensor& sum_dy_xmu, const at::Tensor& count);

}  // namespace vedette::simulated::batch_norm
