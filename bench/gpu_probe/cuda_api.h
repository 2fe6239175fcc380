// The few types and numbers of CUDA's driver interface that the probe uses, so that it builds where no CUDA toolkit is.
//
// Source: cuda.h of CUDA 13.5 (CUDA_VERSION 13050); all of it is the same in 13.0, and all but CUmemcpyAttributes
// (12.8) in 12.2. The names are cuda.h's, without its prefixes. tests/bench/gpu_layout.cc compares every size, offset
// and number with the real header where one is installed.
#pragma once
#include <cstddef>
#include <cstdint>

namespace vedette::gpu {

using Address = unsigned long long;  // CUdeviceptr
using Device = int;                  // CUdevice
using Handle = unsigned long long;   // CUmemGenericAllocationHandle
using Context = struct ContextTag*;  // CUcontext, and so on
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;

// CUresult: only what the probe itself decides on.
constexpr int success = 0, error_invalid_value = 1, error_out_of_memory = 2, error_not_ready = 600;

enum class LocationType : int { device = 1, host = 2, host_numa = 3 };  // CUmemLocationType

struct Location {  // CUmemLocation
  LocationType type = LocationType::device;
  int id = 0;  // of the device or the NUMA node; ignored for host
};

struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

struct AllocationProperties {      // CUmemAllocationProp
  int type = 1;                    // CU_MEM_ALLOCATION_TYPE_PINNED
  int requested_handle_types = 0;  // CU_MEM_HANDLE_TYPE_NONE
  Location location;
  void* win32_handle_meta_data = nullptr;
  struct Flags {
    unsigned char compression_type = 0, gpu_direct_rdma_capable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};

struct CopyAttributes {         // CUmemcpyAttributes
  int source_access_order = 1;  // CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
  Location source_hint, destination_hint;
  unsigned flags = 1;  // CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE
};

enum class Attribute : int {  // CUdevice_attribute
  multiprocessor_count = 16,
  l2_cache_size = 38,
  async_engine_count = 40,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  managed_memory = 83,
  pageable_memory_access = 88,
  concurrent_managed_access = 89,
  can_use_host_pointer_for_registered_memory = 91,
  host_register_supported = 99,
  pageable_memory_access_uses_host_page_tables = 100,
  virtual_memory_management_supported = 102,
  host_numa_id = 134,
  host_numa_virtual_memory_management_supported = 141,
  host_virtual_memory_management_supported = 145,
};

constexpr unsigned stream_non_blocking = 1;                               // CU_STREAM_NON_BLOCKING
constexpr unsigned stream_wait_value_at_least = 0;                        // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned host_alloc_portable = 1, host_alloc_mapped = 2;        // CU_MEMHOSTALLOC_*
constexpr unsigned host_register_portable = 1, host_register_mapped = 2;  // CU_MEMHOSTREGISTER_*
constexpr unsigned attach_global = 1;                                     // CU_MEM_ATTACH_GLOBAL
constexpr int granularity_minimum = 0, granularity_recommended = 1;       // CU_MEM_ALLOC_GRANULARITY_*

}  // namespace vedette::gpu
