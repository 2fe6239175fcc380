// The table of exports: see exported.h.
#include "adapter/torch/exported.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "adapter/torch/gpu_addresses.h"
#include "adapter/torch/other_writers.h"
#include "vedette/torch.h"

namespace vedette::adapter {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct Exported {
  WeakStorage storage;  // so that its address is not used again
  std::size_t exports = 0;
  bool exported_before = false;  // anything was counted
};

struct Table {
  std::mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Exported> storages;
  std::size_t most = 1024;  // then those that are gone go, too
};

Table& table() {
  static Table* const immortal = new Table;
  return *immortal;
}

WeakStorage storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return WeakStorage(c10::intrusive_ptr<c10::StorageImpl>());
  return tensor.storage().getWeakStorageImpl();
}

Judge& judge() {
  static Judge* const immortal = new Judge;
  return *immortal;
}

// numpy's door leaves this trace. A storage without an allocator was never resizable.
bool looks_exported(const c10::StorageImpl& storage) { return !storage.resizable() && storage.allocator() != nullptr; }

}  // namespace

Export::Export(const at::Tensor& tensor) : Export(storage_of(tensor)) {}
Export::Export(c10::StorageImpl& storage)
    : Export(WeakStorage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage))) {}

Export::Export(WeakStorage exported) : storage_(std::move(exported)) {
  const auto storage = storage_.lock();
  if (!storage) return;
  others_write(*storage);
  const std::lock_guard lock(table().mutex);
  auto& storages = table().storages;
  if (storages.size() >= table().most) {
    std::erase_if(storages, [](const auto& each) { return each.second.storage.expired(); });
    table().most = std::max(table().most, 2 * storages.size());
  }
  const auto [at, is_new] = storages.try_emplace(storage.get(), Exported{storage_, 0, looks_exported(*storage)});
  static_cast<void>(is_new);
  ++at->second.exports;
}

Export::~Export() {
  if (for_ever_) return;
  const std::lock_guard lock(table().mutex);
  const auto found = table().storages.find(storage_._unsafe_get_target());
  if (found != table().storages.end()) --found->second.exports;
}

void mark_exported(c10::StorageImpl& storage) {
  keep_in_place(storage);
  Export(storage).for_ever();
}

bool is_exported(const c10::StorageImpl& storage) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().storages.find(&storage);
  if (found != table().storages.end()) return found->second.exports > 0 || found->second.exported_before;
  return looks_exported(storage);
}

void set_judge(Judge those) { judge() = std::move(those); }

std::vector<bool> exported_among(std::span<const c10::StorageImpl* const> storages) {
  std::vector<bool> exported = judge() ? judge()(storages) : std::vector<bool>(storages.size());
  for (std::size_t i = 0; i < storages.size(); ++i) exported[i] = exported[i] || is_exported(*storages[i]);
  return exported;
}

}  // namespace vedette::adapter

namespace vedette {

void mark_exported(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) adapter::mark_exported(*tensor.storage().unsafeGetStorageImpl());
}

}  // namespace vedette
