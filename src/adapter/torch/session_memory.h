// Under which address a session knows a storage's memory.
#pragma once
#include <c10/core/StorageImpl.h>

#include "adapter/torch/gpu_storages.h"

namespace vedette::adapter {

// nullptr: no session's. On the CPU it is where the memory lies, which may be no session's either. Any thread.
inline const void* session_memory(const c10::StorageImpl& storage) noexcept {
  if (storage.device().is_cpu()) return storage.data_ptr().get();
  return storage.device().is_cuda() ? GpuStorages::name_of(storage) : nullptr;
}

}  // namespace vedette::adapter
