// The storages of tensors in an operator's arguments and results, or that are watched: also of those that stand inside
// of others.
//
// Thread rule: the thread whose operator runs, or that watches.
#pragma once
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>
#include <c10/core/StorageImpl.h>

#include "adapter/torch/taken_apart.h"

namespace vedette::adapter {

// Calls `each` for the tensors that are reached by this one: itself, or a sparse one's numbers and values, and the
// tangent of a dual number. One without a storage is a wrapper, of functorch or a subclass with __torch_dispatch__;
// they call operators on what is inside (taken_apart.h).
template <class Each>
void each_part(const at::Tensor& tensor, const Each& each) {
  if (!tensor.defined()) return;
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (impl->has_storage()) {
    each(tensor);
  } else if (const auto* const sparse = dynamic_cast<const at::SparseTensorImpl*>(impl)) {
    each_part(sparse->indices(), each);
    each_part(sparse->values(), each);
  } else if (const auto* const rows = dynamic_cast<const at::SparseCsrTensorImpl*>(impl)) {
    each_part(rows->compressed_indices(), each);
    each_part(rows->plain_indices(), each);
    each_part(rows->values(), each);
  } else {
    each(tensor);
  }
  if (impl->autograd_meta() == nullptr || in_transform()) return;
  if (const at::Tensor& tangent = tensor._fw_grad(/*level=*/0); tangent.defined()) each_part(tangent, each);
}

// Calls `each` for the storage of each tensor of a device in `value`, also in lists and in lists of lists. A list of
// other values ends at its first item.
template <class Each>
void each_storage(const c10::IValue& value, c10::DeviceType device, const Each& each) {
  if (value.isTensor()) {
    each_part(value.toTensor(), [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return;
      c10::StorageImpl* const storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if (storage->device_type() == device) each(*storage);
    });
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (!item.isTensor() && !item.isList() && !item.isNone()) break;
      each_storage(item, device, each);
    }
  }
}

}  // namespace vedette::adapter
