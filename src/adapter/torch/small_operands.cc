// Storages that a profile has besides: see small_operands.h.
#include "adapter/torch/small_operands.h"

#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/watched.h"

namespace vedette::adapter {

SmallOperands::SmallOperands(const Announcer& owner)
    : owner_(owner.gpu != nullptr && owner.in_step && owner.session.wants_uses_beside() ? &owner : nullptr) {}

void SmallOperands::add(const c10::StorageImpl& storage, bool written) {
  if (owner_ == nullptr) return;
  const std::size_t bytes = storage.nbytes();
  if (bytes == 0 || storage.data_ptr().get() == nullptr || !storage.device().is_cuda() ||
      !owner_->gpu->leaves_to_libtorch(bytes))
    return;
  uses_.push_back({.address = storage.data_ptr().get(),
                   .bytes = {bytes},
                   .written = written,
                   .name = owner_->watched.name_of(&storage)});
}

void SmallOperands::tell() const {
  for (const Session::UseBeside& use : uses_) owner_->session.uses_beside(use);
}

}  // namespace vedette::adapter
