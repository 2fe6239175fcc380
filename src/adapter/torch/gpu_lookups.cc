// RecordFunction into GpuMemory::looked_up: see gpu_lookups.h.
#include "adapter/torch/gpu_lookups.h"

#include <ATen/core/TensorBase.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>

#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/operator_table.h"

namespace vedette::adapter {
namespace {

struct Lookup final : at::ObserverContext {
  Lookup(const at::Tensor& of, at::Tensor rows) : table(of), numbers(std::move(rows)) {}
  const at::Tensor table, numbers;
};

std::optional<at::Tensor> strided_on_gpu(const c10::IValue& value) {
  if (!value.isTensor()) return std::nullopt;
  const at::Tensor& tensor = value.toTensor();
  const bool fits = tensor.defined() && tensor.is_cuda() && tensor.layout() == c10::kStrided && tensor.has_storage() &&
                    tensor.is_contiguous() && tensor.numel() > 0;
  return fits ? std::optional(tensor) : std::nullopt;
}

// Sparse tensors are left out: adding one to a table calls an operator with the numbers of its rows.
std::unique_ptr<at::ObserverContext> begin_lookup(const at::RecordFunction& function) {
  thread_local OperatorTable operators;
  const Operator& op = operators.of(function);
  const auto inputs = arguments_of(function);
  if (!op.rows || op.rows->is_sparse || op.rows->of_entries || op.rows->numbers >= inputs.size()) return nullptr;
  if (op.rows->dimension && !(inputs[*op.rows->dimension].isInt() && inputs[*op.rows->dimension].toInt() == 0))
    return nullptr;
  const auto table = strided_on_gpu(inputs[op.rows->table]);
  if (!table || table->dim() == 0 || GpuStorages::table_of(*table->storage().unsafeGetStorageImpl()) == 0)
    return nullptr;
  const c10::IValue& given = inputs[op.rows->numbers];
  const bool in_list = given.isList() && !given.toListRef().empty();  // table[first, second...]: the first one
  const auto numbers = strided_on_gpu(in_list ? given.toListRef()[0] : given);
  if (!numbers || (numbers->scalar_type() != at::kLong && numbers->scalar_type() != at::kInt)) return nullptr;
  return std::make_unique<Lookup>(*table, *numbers);
}

void end_lookup(const at::RecordFunction&, at::ObserverContext* context) {
  const auto* const lookup = dynamic_cast<const Lookup*>(context);
  if (lookup == nullptr || GpuStorages::opened() == nullptr) return;
  const at::Tensor &table = lookup->table, &numbers = lookup->numbers;
  const auto rows = static_cast<std::uint64_t>(table.size(0));
  GpuStorages::opened()->looked_up({.table = GpuStorages::table_of(*table.storage().unsafeGetStorageImpl()),
                                    .first = static_cast<std::uint64_t>(table.storage_offset()) * table.itemsize(),
                                    .rows = rows,
                                    .row_bytes = static_cast<std::uint64_t>(table.numel()) / rows * table.itemsize(),
                                    .numbers = reinterpret_cast<DeviceAddress>(numbers.unsafeGetTensorImpl()->data()),
                                    .count = static_cast<std::uint64_t>(numbers.numel()),
                                    .number_bytes = static_cast<std::uint32_t>(numbers.itemsize())});
}

at::CallbackHandle registered() {
  static const at::CallbackHandle handle = [] {
    const auto made = at::addGlobalCallback(
        at::RecordFunctionCallback(&begin_lookup, &end_lookup).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    at::disableCallback(made);
    return made;
  }();
  return handle;
}

bool listens = false;

}  // namespace

void prepare_for_lookups() { static_cast<void>(registered()); }

void listen_for_lookups(bool on) {
  if (on == listens) return;
  listens = on;
  if (on) {
    at::reenableCallback(registered());
  } else {
    at::disableCallback(registered());
  }
}

}  // namespace vedette::adapter
