// Arguments into reads and writes: see op_operands.h.
#include "adapter/torch/op_operands.h"

#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/operator_table.h"
#include "adapter/torch/rows.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/storages.h"
#include "adapter/torch/watched.h"

namespace vedette::adapter {

bool covers_its_storage(const c10::TensorImpl& tensor, const c10::StorageImpl& storage) {
  return tensor.is_non_overlapping_and_dense_default() && tensor.storage_offset() == 0 &&
         static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() == storage.nbytes();
}

bool goes_one_by_one(const Announcer& owner, c10::ArrayRef<const c10::IValue> inputs) {
  if (owner.gpu != nullptr || inputs.empty() || !inputs[0].isTensorList()) return false;
  const auto list = inputs[0].toListRef();
  return list.size() > 1 && list[0].isTensor() && list[0].toTensor().is_cpu();
}

namespace {

bool is_parameter(const at::Tensor& tensor) {  // or a view of one: a linear layer's product has its weight transposed
  if (!tensor.requires_grad()) return false;
  return tensor.is_leaf() || (tensor.is_view() && tensor._base().is_leaf());
}

}  // namespace

void OpOperands::add_part(const at::Tensor& tensor, std::uint8_t use, const Announcer& owner) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  const void* const memory = owner.gpu != nullptr ? owner.gpu->seen(*storage) : session_memory(*storage);
  const c10::DeviceType device = owner.gpu != nullptr ? c10::kCUDA : c10::kCPU;  // torch.compile's own are on none
  if (owner.unwatched != nullptr && storage->device_type() == device && is_parameter(tensor) && !Session::owns(memory))
    owner.unwatched->emplace(storage, Bytes{storage->nbytes()});
  if ((memory == nullptr && owner.gpu == nullptr) || use == Operator::nothing) return;
  if (!parameter) parameter = owner.watched.layer_of(storage);
  const bool is_written = (use & (Operator::write | Operator::overwrite)) != 0;
  if (memory == nullptr) return small.add(*storage, is_written);
  if (views && add_view(tensor, is_written, owner, *this)) return;
  if (is_written) writes.push_back(memory);
  const bool is_read = (use & Operator::read) || ((use & Operator::overwrite) && !covers_its_storage(impl, *storage));
  if (is_read) reads.push_back(memory);
}

void OpOperands::add(const at::Tensor& tensor, std::uint8_t use, const Announcer& owner) {
  each_part(tensor, [&](const at::Tensor& part) {
    wrap_others = wrap_others || !part.has_storage() || part.key_set().has(c10::DispatchKey::Python);
    if (part.has_storage()) add_part(part, use, owner);
  });
}

void OpOperands::add(const c10::IValue& value, std::uint8_t use, const Announcer& owner) {
  if (value.isTensor()) return add(value.toTensor(), use, owner);
  if (!value.isList()) return;
  for (const c10::IValue& item : value.toListRef()) {
    if (item.isNone()) continue;                    // of optional tensors: x[:, numbers] has no first index
    if (!item.isTensor() && !item.isList()) break;  // lists are of one type
    add(item, use, owner);                          // of lists: what each rank gave, in c10d's collectives
  }
}

namespace {

// A tensor that fills its storage tells the storage's shape.
void tell_shape(Session& session, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.has_storage() || tensor.is_nested()) return;
  if (!covers_its_storage(*tensor.unsafeGetTensorImpl(), *tensor.storage().unsafeGetStorageImpl())) return;
  const c10::IntArrayRef sizes = tensor.sizes();
  session.shape(session_memory(*tensor.storage().unsafeGetStorageImpl()), {sizes.data(), sizes.size()});
}

}  // namespace

void tell_shapes(Session& session, c10::ArrayRef<const c10::IValue> inputs) {
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) tell_shape(session, input.toTensor());
    if (!input.isTensorList()) continue;
    for (const at::Tensor& tensor : input.toTensorVector()) tell_shape(session, tensor);
  }
}

}  // namespace vedette::adapter
