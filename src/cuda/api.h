// The types and numbers of CUDA's driver interface that vedette and its benches use, so that they build where no CUDA
// toolkit is.
//
// Source: cuda.h of CUDA 13.0. The names are cuda.h's, without its prefixes. tests/cuda/layout.cc compares every size,
// offset, number and signature with the real header where one is installed.
#pragma once

namespace vedette::cuda {

using Address = unsigned long long;  // CUdeviceptr
using DeviceNumber = int;            // CUdevice
using Handle = unsigned long long;   // CUmemGenericAllocationHandle
using ContextHandle = struct ContextTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;

// CUresult: the errors that vedette itself decides on.
constexpr int success = 0, error_invalid_value = 1, error_out_of_memory = 2, error_no_device = 100,
              error_invalid_device = 101, error_invalid_context = 201, error_invalid_handle = 400,
              error_not_found = 500, error_not_ready = 600, error_already_registered = 712, error_not_registered = 713,
              error_not_supported = 801;

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
  concurrent_managed_access = 89,  // host and device use managed memory at once, page by page
  can_use_host_pointer_for_registered_memory = 91,
  host_register_supported = 99,
  pageable_memory_access_uses_host_page_tables = 100,
  virtual_memory_management_supported = 102,
  host_numa_id = 134,
  host_numa_memory_management_supported = 141,  // cuMemCreate of a NUMA node's memory, CUDA 12.2
  host_memory_management_supported = 145,
};

enum class CaptureMode : int { global = 0, of_thread = 1, relaxed = 2 };  // CUstreamCaptureMode
enum class Advice : int { set_read_mostly = 1, unset_read_mostly = 2 };   // CUmem_advise

constexpr unsigned stream_non_blocking = 1;      // CU_STREAM_NON_BLOCKING
constexpr unsigned event_disable_timing = 2;     // CU_EVENT_DISABLE_TIMING
constexpr int granularity_recommended = 1;       // CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
constexpr unsigned host_register_portable = 1;   // CU_MEMHOSTREGISTER_PORTABLE
constexpr unsigned host_register_mapped = 2;     // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr unsigned host_allocate_portable = 1;   // CU_MEMHOSTALLOC_PORTABLE
constexpr unsigned managed_attached_global = 1;  // CU_MEM_ATTACH_GLOBAL

}  // namespace vedette::cuda
