// CUDA's driver, loaded at run time, for a probe that has to go on where a driver lacks a function: such a function is
// refused when it is called, and a call that fails throws. vedette itself asks for all functions at once
// (cuda/driver.h).
//
// The functions are those of src/cuda/calls.def and some more. What a driver does not export is asked for by
// cuGetProcAddress as of CUDA 13.0: cuMemcpyBatchAsync had another signature in 12.8.
#pragma once
#include <string>

#include "gpu_probe/cuda_api.h"
#include "gpu_probe/library.h"

namespace vedette::gpu {

struct Driver {
  explicit Driver(const std::string& file);  // throws Refused("no driver (...)"), or where cuInit says no

  Library library;
#define CALL(member, header_name, exported_name, ...) Call<__VA_ARGS__> member{library, #exported_name};
#include "cuda/calls.def"
#include "cuda/managed_calls.def"
#include "gpu_probe/calls.def"
#undef CALL
};

}  // namespace vedette::gpu
