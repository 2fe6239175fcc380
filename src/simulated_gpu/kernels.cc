// libsimulated_kernels.so: gives libtorch's CUDA device the CPU's kernels, from its constructor. The simulated runtime
// loads it into a process that holds libtorch_cuda.so.
//
// Operators that make or shape tensors keep CUDA's own code, so the caching allocator, streams and views are the real
// ones. Where libtorch's CPU takes another path than its CUDA device (dropout, LSTM cells, attention), the CPU's
// formula is registered here, so that bits are equal. Where the CPU has no kernel (SyncBatchNorm), it gets one.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/transformers/attention.h>

#include <set>

#include "simulated_gpu/batch_norm.h"
#include "simulated_gpu/operators.h"

namespace vedette::simulated {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::int64_t attention_by_products(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                                   double, bool, std::optional<double>, bool) {
  return 0;  // SDPBackend::math
}

// The formula of at::native::dropout for the CPU, by operators that autograd sees.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  if (p == 0 || !train || input.numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  at::Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p);
  noise.div_(1 - p);
  return input.mul(noise);
}

// libtorch's LSTM takes a fused cell on every device but the CPU: the four gates, written out.
ThreeTensors lstm_cell(const at::Tensor& from_input, const at::Tensor& from_hidden, const at::Tensor& cx,
                       const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  at::Tensor gates = from_input + from_hidden;
  if (input_bias && input_bias->defined()) gates += *input_bias;
  if (hidden_bias && hidden_bias->defined()) gates += *hidden_bias;
  auto g = gates.chunk(4, 1);
  g[0].sigmoid_();
  g[1].sigmoid_();
  g[2].tanh_();
  g[3].sigmoid_();
  const at::Tensor cy = g[1] * cx + g[0] * g[2];
  return {g[3] * at::tanh(cy), cy, gates};
}

ThreeTensors lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
                                const at::Tensor& cy, const at::Tensor& gates, bool has_bias) {
  const auto g = gates.chunk(4, 1);
  const at::Tensor tanh_cy = at::tanh(cy);
  at::Tensor d_cy = at::zeros_like(cy), d_out = at::zeros_like(cy);
  if (grad_cy && grad_cy->defined()) d_cy = d_cy + *grad_cy;
  if (grad_hy && grad_hy->defined()) {
    d_out = *grad_hy * tanh_cy;
    d_cy = d_cy + *grad_hy * g[3] * (1 - tanh_cy * tanh_cy);
  }
  const at::Tensor d = at::cat({d_cy * g[2] * g[0] * (1 - g[0]), d_cy * cx * g[1] * (1 - g[1]),
                                d_cy * g[0] * (1 - g[2] * g[2]), d_out * g[3] * (1 - g[3])},
                               1);
  return {d, d_cy * g[1], has_bias ? d.sum(0) : at::Tensor()};
}

// These make and shape tensors on the host, as on a GPU, or have kernels of their own below.
const std::set<std::string>& kept_operators() {
  static const std::set<std::string> names = {"aten::empty.memory_format",
                                              "aten::empty_strided",
                                              "aten::_efficientzerotensor",
                                              "aten::as_strided",
                                              "aten::view",
                                              "aten::_reshape_alias",
                                              "aten::resize_",
                                              "aten::set_",
                                              "aten::set_.source_Storage",
                                              "aten::set_.source_Storage_storage_offset",
                                              "aten::set_.source_Tensor",
                                              "aten::unfold",
                                              "aten::is_set_to",
                                              "aten::view_as_real",
                                              "aten::view_as_complex",
                                              "aten::record_stream",
                                              "aten::_local_scalar_dense",
                                              "aten::copy_",
                                              "aten::_thnn_fused_lstm_cell",
                                              "aten::_thnn_fused_lstm_cell_backward_impl",
                                              "aten::_fused_sdp_choice",
                                              "aten::_pin_memory",
                                              "aten::is_pinned"};
  return names;
}

std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* const kept = new std::vector<c10::RegistrationHandleRAII>;
  return *kept;
}

void put(const c10::OperatorName& name, c10::DispatchKey key, c10::KernelFunction kernel) {
  registrations().push_back(
      c10::Dispatcher::singleton().registerImpl(name, key, std::move(kernel), std::nullopt, nullptr, "simulated GPU"));
}

// Where there are a CPU kernel and a formula for all devices, the formula's last bits may differ: the kernel is taken.
void put_cpu_kernels() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !name.name.starts_with("aten::") || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    if (kept_operators().contains(toString(name))) continue;
    const bool any_other = op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) ||
                           op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                           op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                           op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (any_other) put(name, c10::DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&boxed>());
  }
}

// libtorch's CUDA device has kernels for whole lists; here a list goes through the formula of one tensor after the
// other.
void list_by_list(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

void put_lists() {
  static const std::set<std::string> others = {"aten::_chunk_cat", "aten::_chunk_cat.out",
                                               "aten::split_with_sizes_copy.out"};
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    const bool takes_lists = name.name.starts_with("aten::_foreach_") || others.contains(toString(name));
    if (!op || !takes_lists || !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      put(name, c10::DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&list_by_list>());
  }
}

template <class Function>
void put_own(const char* name, c10::DispatchKey key, Function* function) {
  put({name, ""}, key, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
}

void put_missing_cpu_kernels() {
  constexpr auto cpu = c10::DispatchKey::CPU;
  put_own("aten::batch_norm_stats", cpu, &batch_norm::stats);
  put_own("aten::batch_norm_gather_stats_with_counts", cpu, &batch_norm::gather_stats_with_counts);
  put_own("aten::batch_norm_elemt", cpu, &batch_norm::elemt);
  put_own("aten::batch_norm_backward_reduce", cpu, &batch_norm::backward_reduce);
  put_own("aten::batch_norm_backward_elemt", cpu, &batch_norm::backward_elemt);
}

__attribute__((constructor)) void begin() {
  constexpr auto device = c10::DispatchKey::CUDA;
  take_cpu_allocator_place();
  at::globalContext().setUserEnabledCuDNN(false);
  put_missing_cpu_kernels();
  put_cpu_kernels();
  put_lists();
  put_own("aten::copy_", device, &copy_from);
  put_own("aten::_local_scalar_dense", device, &local_scalar);
  put_own("aten::_fused_sdp_choice", device, &attention_by_products);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_by_products);  // scaled_dot_product_attention's
  put_own("aten::_thnn_fused_lstm_cell", device, &lstm_cell);
  put_own("aten::_thnn_fused_lstm_cell_backward_impl", device, &lstm_cell_backward);
  put_own("aten::dropout", c10::DispatchKey::AutogradCUDA, &dropout);
  put({"aten::convolution", ""}, device, c10::KernelFunction::makeFromBoxedFunction<&boxed>());
  put({"aten::convolution_backward", ""}, device, c10::KernelFunction::makeFromBoxedFunction<&boxed>());
}

}  // namespace
}  // namespace vedette::simulated
