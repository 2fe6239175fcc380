// By the dispatcher's keys: see taken_apart.h.
#include "adapter/torch/taken_apart.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace vedette::adapter {
namespace {

using c10::DispatchKey;

// While transforms are open, an operator goes through both for each of them, and is called again with the tensors that
// the innermost had wrapped. When none is left, neither key is on.
constexpr c10::DispatchKeySet transforms({DispatchKey::FuncTorchDynamicLayerFrontMode,
                                          DispatchKey::FuncTorchDynamicLayerBackMode});
// Of tensors that wrap others.
constexpr c10::DispatchKeySet wrappers({DispatchKey::Python, DispatchKey::Batched, DispatchKey::FuncTorchBatched,
                                        DispatchKey::BatchedNestedTensor, DispatchKey::Functionalize});

bool has(const c10::IValue& value, c10::DispatchKeySet keys) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.key_set().has_any(keys);
  }
  if (!value.isList()) return false;
  for (const c10::IValue& item : value.toListRef()) {
    if (!item.isTensor() && !item.isList() && !item.isNone()) return false;
    if (has(item, keys)) return true;
  }
  return false;
}

}  // namespace

bool in_transform() noexcept {
  const c10::impl::LocalDispatchKeySet here = c10::impl::tls_local_dispatch_key_set();
  return (here.included_ - here.excluded_).has_any(transforms);
}

bool is_taken_apart(c10::ArrayRef<const c10::IValue> arguments) {
  if (in_transform()) return true;
  // A subclass that calls an operator on itself has excluded its key before: the operator's kernel comes next.
  const c10::DispatchKeySet keys = wrappers - c10::impl::tls_local_dispatch_key_set().excluded_;
  for (const c10::IValue& argument : arguments)
    if (has(argument, keys)) return true;
  return false;
}

}  // namespace vedette::adapter
