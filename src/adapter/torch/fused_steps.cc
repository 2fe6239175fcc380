// One boxed kernel for all fused steps and GradScaler's check, above libtorch's own: see fused_steps.h.
#include "adapter/torch/fused_steps.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace vedette::adapter {
namespace {

// With and without the learning rate as a tensor. All write their first argument, a list with one tensor a parameter.
// The check's second argument is one number for all tensors, which an infinite one sets and none clears.
constexpr std::array<std::pair<const char*, const char*>, 8> fused_steps = {{
    {"aten::_fused_adam_", ""},
    {"aten::_fused_adam_", "tensor_lr"},
    {"aten::_fused_adamw_", ""},
    {"aten::_fused_adamw_", "tensor_lr"},
    {"aten::_fused_sgd_", ""},
    {"aten::_fused_sgd_", "tensor_lr"},
    {"aten::_fused_adagrad_", ""},
    {"aten::_amp_foreach_non_finite_check_and_unscale_", ""},
}};

// The arguments for tensor `i`: of each list that one; an empty list (no state of this kind) stays empty.
void push_for_one(const torch::jit::Stack& arguments, std::size_t i, torch::jit::Stack& stack) {
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList()) {
      stack.push_back(argument);
      continue;
    }
    c10::List<at::Tensor> one;
    const c10::List<at::Tensor> all = argument.toTensorList();
    if (i < all.size()) one.push_back(all.get(i));
    stack.emplace_back(std::move(one));
  }
}

void one_by_one(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::size_t arguments = op.schema().arguments().size();
  const torch::jit::Stack whole(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  const std::size_t tensors = whole[0].isTensorList() ? whole[0].toTensorList().size() : 0;
  if (tensors <= 1) {
    const at::AutoDispatchBelowAutograd below;
    return op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  torch::jit::drop(*stack, arguments);
  for (std::size_t i = 0; i < tensors; ++i) {
    torch::jit::Stack one;
    push_for_one(whole, i, one);
    op.callBoxed(one);  // through the dispatcher: an op of its own
  }
}

}  // namespace

bool is_fused_step(std::string_view operator_name) {
  return std::any_of(fused_steps.begin(), fused_steps.end(),
                     [&](const auto& step) { return operator_name == step.first; });
}

void step_one_by_one() {
  static torch::Library library = [] {
    torch::Library registered(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
    for (const auto& [name, overload] : fused_steps) {
      if (!c10::Dispatcher::singleton().findSchema({name, overload})) continue;
      const std::string full = *overload == '\0' ? name : std::string(name) + "." + overload;
      registered.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&one_by_one>());
    }
    return registered;
  }();
}

}  // namespace vedette::adapter
