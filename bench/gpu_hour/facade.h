// In front of libtorch's CUDA allocator, whatever has been allocated before: what is large enough goes to an executor,
// while one is active; all else is passed on. Memory is freed by the deleter it was born with.
//
// libtorch keeps the pointer to its allocator in an atomic that can be stored to; it refuses only to exchange it by
// name (changeCurrentAllocator). Thread rule: any; activate() while no op runs.
#pragma once
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <map>
#include <string>

#include "gpu_hour/executor.h"

namespace vedette::gpu {

namespace caching = c10::cuda::CUDACachingAllocator;

// What an op is announced with; the costs of less are measured, too.
enum class Announced { nothing, begin, begin_with_inputs, inputs_and_outputs };

// While it lives, libtorch's ops are announced, and what they allocate comes from `executor`, unless it is nullptr.
class Announcements {
 public:
  Announcements(Announced what, Executor* executor);
  ~Announcements();
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

 private:
  at::CallbackHandle handle_ = 0;
};

std::uint64_t announced_ops();  // since the program began

// Installed once and for ever.
void install_facade();

}  // namespace vedette::gpu
