// The storages of tensors in an operator's arguments and results.
//
// Thread rule: the thread whose operator runs.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>
#include <c10/core/StorageImpl.h>

namespace vedette::adapter {

// Calls `each` for the storage of each tensor of a device in `value`, also in lists and in lists of lists. A list of
// other values ends at its first item.
template <class Each>
void each_storage(const c10::IValue& value, c10::DeviceType device, const Each& each) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.device().type() == device && tensor.has_storage())
      each(*tensor.storage().unsafeGetStorageImpl());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (!item.isTensor() && !item.isList() && !item.isNone()) break;
      each_storage(item, device, each);
    }
  }
}

}  // namespace vedette::adapter
