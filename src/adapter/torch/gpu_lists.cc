// One boxed kernel for all operators on lists of a GPU's tensors, above libtorch's own: see gpu_lists.h.
#include "adapter/torch/gpu_lists.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "adapter/torch/fused_steps.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/operators.h"

namespace vedette::adapter {
namespace {

using torch::jit::Stack;

std::size_t bytes_of(const c10::IValue& item) {
  if (!item.isTensor()) return 0;
  const at::Tensor& tensor = item.toTensor();
  return tensor.defined() && tensor.is_cuda() && tensor.device() == GpuStorages::device() ? tensor.nbytes() : 0;
}

c10::ArrayRef<const c10::IValue> last_of(const Stack& stack, std::size_t count) {
  return c10::ArrayRef<const c10::IValue>(stack.data(), stack.size()).slice(stack.size() - count);
}

bool any_requires_grad(c10::ArrayRef<const c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    if (!argument.isTensorList()) return false;
    const auto list = argument.toListRef();
    return std::any_of(list.begin(), list.end(),
                       [](const c10::IValue& item) { return item.toTensor().requires_grad(); });
  });
}

// The list as it is. libtorch's own kernel for autograd is the one that stands here instead: where a gradient is
// wanted, the formula of one tensor after the other has it.
void as_one(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack, std::size_t arguments) {
  const c10::ArrayRef<const c10::IValue> inputs = last_of(*stack, arguments);
  const bool has_formula = op.schema().name().starts_with("aten::_foreach_");
  if (has_formula && c10::GradMode::is_enabled() && any_requires_grad(inputs))
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const at::AutoDispatchBelowAutograd below;
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

class Groups {
 public:
  Groups(const c10::FunctionSchema& schema, Stack arguments) : schema_(schema), arguments_(std::move(arguments)) {
    for (const c10::IValue& argument : arguments_) {
      if (argument.isTensorList()) tensors_ = std::max(tensors_, argument.toListRef().size());
    }
  }
  std::size_t tensors() const { return tensors_; }
  // One past the last tensor of the group that begins there.
  std::size_t end_of(std::size_t begin, std::size_t most) const {
    std::size_t end = begin, bytes = 0;
    for (; end < tensors_; ++end) {
      for (const c10::IValue& argument : arguments_) {
        if (argument.isTensorList() && end < argument.toListRef().size()) bytes += bytes_of(argument.toListRef()[end]);
      }
      if (end > begin && bytes > most) break;
    }
    return end;
  }
  Stack group(std::size_t begin, std::size_t end) const {
    Stack stack;
    for (std::size_t i = 0; i < arguments_.size(); ++i) stack.push_back(part(i, begin, end));
    return stack;
  }

 private:
  // Of lists with one entry a tensor that part; numbers may be one tensor of them.
  c10::IValue part(std::size_t i, std::size_t begin, std::size_t end) const {
    const c10::IValue& whole = arguments_[i];
    if (whole.isTensor() && schema_.arguments()[i].name() == "scalars")
      return whole.toTensor().narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin));
    const auto listed = schema_.arguments()[i].type()->cast<c10::ListType>();
    const bool numbers = whole.isList() && listed && listed->getElementType()->kind() == c10::TypeKind::NumberType;
    if (!(whole.isTensorList() || numbers) || whole.toListRef().size() != tensors_) return whole;
    c10::impl::GenericList list(whole.toList().elementType());
    for (std::size_t t = begin; t < end; ++t) list.push_back(whole.toListRef()[t]);
    return list;
  }

  const c10::FunctionSchema& schema_;
  const Stack arguments_;
  std::size_t tensors_ = 0;
};

void in_groups(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t arguments = schema.arguments().size();
  if (!goes_in_groups(last_of(*stack, arguments))) return as_one(op, keys, stack, arguments);
  const Groups groups(schema, Stack(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end()));
  torch::jit::drop(*stack, arguments);
  std::vector<c10::List<at::Tensor>> results(schema.returns().size());
  for (std::size_t begin = 0, end = 0; begin < groups.tensors(); begin = end) {
    end = groups.end_of(begin, GpuStorages::opened()->longest_list());
    Stack group = groups.group(begin, end);
    op.callBoxed(group);  // through the dispatcher: an op of its own
    for (std::size_t r = 0; r < results.size(); ++r) results[r].append(group[r].toTensorList());
  }
  for (c10::List<at::Tensor>& each : results) stack->emplace_back(std::move(each));
}

bool returns_lists(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

}  // namespace

bool takes_lists(std::string_view operator_name) {
  return operator_name.starts_with("aten::_foreach_") || is_fused_step(operator_name);
}

bool goes_in_groups(c10::ArrayRef<const c10::IValue> arguments) {
  const GpuStorages* const gpu = GpuStorages::opened();
  if (gpu == nullptr || !gpu->active() || !announces_this_thread()) return false;
  std::size_t bytes = 0, tensors = 0;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList()) continue;
    const auto list = argument.toListRef();
    tensors = std::max(tensors, list.size());
    for (const c10::IValue& item : list) bytes += bytes_of(item);
  }
  return tensors > 1 && bytes > gpu->longest_list();
}

void cut_long_lists() {
  static torch::Library library = [] {
    torch::Library registered(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCUDA, __FILE__, __LINE__);
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!takes_lists(name.name)) continue;
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      const bool writes_elsewhere = name.overload_name.find("out") != std::string::npos;
      if (!op || writes_elsewhere || !returns_lists(op->schema())) continue;
      registered.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&in_groups>());
    }
    return registered;
  }();
}

}  // namespace vedette::adapter
