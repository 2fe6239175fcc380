// What the probe uses of CUDA's driver interface beside src/cuda/api.h, whose names it has, too.
//
// Source: cuda.h of CUDA 13.5 (CUDA_VERSION 13050); all of it is the same in 13.0 and in 12.2. The names are cuda.h's,
// without its prefixes. tests/bench/gpu_layout.cc compares every size, offset and number with the real header where one
// is installed.
#pragma once
#include "cuda/api.h"

namespace vedette::gpu {

using namespace cuda;

using Module = struct ModuleTag*;  // CUmodule
using Function = struct FunctionTag*;

constexpr unsigned stream_wait_value_at_least = 0;  // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned host_allocate_mapped = 2;        // CU_MEMHOSTALLOC_DEVICEMAP
constexpr unsigned host_register_mapped = 2;        // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr int granularity_minimum = 0;              // CU_MEM_ALLOC_GRANULARITY_MINIMUM

}  // namespace vedette::gpu
