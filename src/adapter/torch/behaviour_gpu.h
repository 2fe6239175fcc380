// A guard of GPU memory asks libtorch more at its opening than behaviour.h does. Does an allocation come to us, does a
// storage follow its new pointer, does libtorch's current stream run behind an event of ours? Each copy of a move
// stands on the last. The structures that are read are those of the CPU's questions.
//
// A call that fails is no answer: the session's opening makes the like, and says what fails. Where the calling thread
// allocates from a pool, of a graph or a MemPool, nothing is asked.
//
// Thread rule: the thread that makes a guard, in which the guard's GPU is current.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace vedette::adapter {

class GpuStorages;

// Tests put functions that do otherwise in the places of libtorch's own.
struct LibtorchOfGpu {
  at::Tensor (*make)(std::int64_t bytes, c10::Device device);
  void (*exchange)(c10::StorageImpl& storage, c10::DataPtr memory);
  at::Tensor (*copy_to_host)(const at::Tensor& tensor);
  void* (*stream)(GpuStorages& gpu);  // on which it queues
  // By which a copy that does not wait comes too early.
  std::chrono::microseconds lead{100};
};
LibtorchOfGpu libtorch_of_gpu_as_it_is();

// As what_differs() of behaviour.h. Takes `lead` and some calls of CUDA's.
std::optional<std::string> what_differs_on(GpuStorages& gpu, const LibtorchOfGpu& = libtorch_of_gpu_as_it_is());

// Where the calling thread asks: memory of libtorch's own that is told from others; else a DataPtr without a context.
c10::DataPtr answer_of_gpu(std::size_t bytes);

}  // namespace vedette::adapter
