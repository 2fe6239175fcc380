// Writes that no op announces, where a session recomputes: by libraries that have a tensor's memory (numpy), operators
// of threads that do not train, kernels that such threads launch. No recipe makes a tensor again that they may write.
//
// Under a guard of GPU memory operators of other threads hold their operands, which says the same.
//
// Thread rule: any thread; look_for_other_writers() belongs to the thread that makes and ends guards.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <span>

namespace at {
struct RecordFunction;
}

namespace vedette {
class Session;
}

namespace vedette::adapter {

// Of this session from now on, where it recomputes. nullptr: of none; waits for functions of below that run.
void look_for_other_writers(Session* session);
extern std::atomic<bool> writers_are_looked_for;  // relaxed: a hint

// Something may write the storage from now on that no op announces.
void others_write(const c10::StorageImpl& storage);
// An operator begins on a thread that does not train.
void others_write(const at::RecordFunction& function);
void others_write(std::span<const at::Tensor> tensors);

}  // namespace vedette::adapter
