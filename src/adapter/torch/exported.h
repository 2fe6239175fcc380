// Storages whose addresses other libraries have (numpy, DLPack, kernels of one's own): their memory is exchanged
// neither by watch() nor by bring_home(), nor when a guard of GPU memory ends. The arena itself never changes an
// address, so that a tensor which is there may be exported. In GPU memory a storage stays in place from its mark on.
//
// Invariant: a storage is known here from the first call that exports it until it is gone. Thread rule: any thread. The
// table is immortal, because exports may end after every guard.
#pragma once
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <span>
#include <vector>

namespace at {
class Tensor;
}

namespace vedette::adapter {

// A foreign library has the memory while this lives: numpy's array, for instance. Made before the library has it, since
// numpy's door marks a storage as not resizable for ever.
class Export {
 public:
  explicit Export(const at::Tensor& tensor);  // one without memory of its own is no export
  explicit Export(c10::StorageImpl& storage);
  ~Export();
  Export(const Export&) = delete;
  Export& operator=(const Export&) = delete;
  void for_ever() noexcept { for_ever_ = true; }  // it does not end with this object

 private:
  explicit Export(c10::weak_intrusive_ptr<c10::StorageImpl> storage);

  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  bool for_ever_ = false;
};

// As the function of vedette/torch.h.
void mark_exported(c10::StorageImpl& storage);

// A library has the storage's address, as far as this process shows it. A storage with an allocator that is not
// resizable was exported before anything was counted.
bool is_exported(const c10::StorageImpl& storage);

// Where a language knows all of its tensors (Python): of these storages, which of them others hold. The caller has one
// reference to each.
using Judge = std::function<std::vector<bool>(std::span<const c10::StorageImpl* const>)>;
void set_judge(Judge judge);  // once, before the first guard
// Of each: is_exported(), or the judge says so.
std::vector<bool> exported_among(std::span<const c10::StorageImpl* const> storages);

}  // namespace vedette::adapter
