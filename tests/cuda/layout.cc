// Are our declarations of CUDA's driver, of NVML and of CUPTI those of the real headers? Compared where the headers are
// installed: sizes, offsets, numbers, signatures and exported names.
#include <gtest/gtest.h>

#ifdef VEDETTE_CUDA_HEADERS
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cupti.h>
#include <nvml.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "cuda/driver.h"
#include "cuda/fault_records.h"
#include "cuda/nvml.h"
#include "support/same_signature.h"

namespace vedette::cuda::layout_test {
namespace {

using vedette::testing::same;
using vedette::testing::same_signature;

#define SAME_FIELD(Mine, mine, Theirs, theirs)                     \
  static_assert(offsetof(Mine, mine) == offsetof(Theirs, theirs)); \
  static_assert(sizeof(Mine::mine) == sizeof(Theirs::theirs))

static_assert(sizeof(Location) == sizeof(CUmemLocation));
SAME_FIELD(Location, type, CUmemLocation, type);
SAME_FIELD(Location, id, CUmemLocation, id);
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
SAME_FIELD(AccessDescription, location, CUmemAccessDesc, location);
SAME_FIELD(AccessDescription, flags, CUmemAccessDesc, flags);
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
SAME_FIELD(AllocationProperties, type, CUmemAllocationProp, type);
SAME_FIELD(AllocationProperties, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(AllocationProperties, location, CUmemAllocationProp, location);
SAME_FIELD(AllocationProperties, win32_handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(AllocationProperties, flags, CUmemAllocationProp, allocFlags);
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(Handle) == sizeof(CUmemGenericAllocationHandle));

static_assert(sizeof(CopyAttributes) == sizeof(CUmemcpyAttributes));
SAME_FIELD(CopyAttributes, source_access_order, CUmemcpyAttributes, srcAccessOrder);
SAME_FIELD(CopyAttributes, source_hint, CUmemcpyAttributes, srcLocHint);
SAME_FIELD(CopyAttributes, destination_hint, CUmemcpyAttributes, dstLocHint);
SAME_FIELD(CopyAttributes, flags, CUmemcpyAttributes, flags);
static_assert(same(CopyAttributes{}.source_access_order, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM));
static_assert(same(CopyAttributes{}.flags, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE));
static_assert(same_signature(BatchedCopies::Since13{}, PFN_cuMemcpyBatchAsync_v13000{}));
static_assert(same_signature(BatchedCopies::Since12_8{}, PFN_cuMemcpyBatchAsync_v12080{}));
static_assert(same(success, CUDA_SUCCESS) && same(error_invalid_value, CUDA_ERROR_INVALID_VALUE));
static_assert(same(error_out_of_memory, CUDA_ERROR_OUT_OF_MEMORY) && same(error_no_device, CUDA_ERROR_NO_DEVICE));
static_assert(same(error_invalid_device, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(error_invalid_context, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(error_invalid_handle, CUDA_ERROR_INVALID_HANDLE) && same(error_not_ready, CUDA_ERROR_NOT_READY));
static_assert(same(error_not_found, CUDA_ERROR_NOT_FOUND));
static_assert(same(error_already_registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(same(error_not_registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
static_assert(same(error_not_supported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(LocationType::device, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(LocationType::host, CU_MEM_LOCATION_TYPE_HOST));
static_assert(same(LocationType::host_numa, CU_MEM_LOCATION_TYPE_HOST_NUMA));
static_assert(same(AccessDescription{}.flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(same(AllocationProperties{}.type, CU_MEM_ALLOCATION_TYPE_PINNED));
#define SAME_ATTRIBUTE(mine, theirs) static_assert(same(Attribute::mine, CU_DEVICE_ATTRIBUTE_##theirs))
SAME_ATTRIBUTE(multiprocessor_count, MULTIPROCESSOR_COUNT);
SAME_ATTRIBUTE(l2_cache_size, L2_CACHE_SIZE);
SAME_ATTRIBUTE(async_engine_count, ASYNC_ENGINE_COUNT);
SAME_ATTRIBUTE(compute_capability_major, COMPUTE_CAPABILITY_MAJOR);
SAME_ATTRIBUTE(compute_capability_minor, COMPUTE_CAPABILITY_MINOR);
SAME_ATTRIBUTE(managed_memory, MANAGED_MEMORY);
SAME_ATTRIBUTE(pageable_memory_access, PAGEABLE_MEMORY_ACCESS);
SAME_ATTRIBUTE(concurrent_managed_access, CONCURRENT_MANAGED_ACCESS);
SAME_ATTRIBUTE(can_use_host_pointer_for_registered_memory, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
SAME_ATTRIBUTE(host_register_supported, HOST_REGISTER_SUPPORTED);
SAME_ATTRIBUTE(pageable_memory_access_uses_host_page_tables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
SAME_ATTRIBUTE(virtual_memory_management_supported, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_ATTRIBUTE(host_numa_id, HOST_NUMA_ID);
SAME_ATTRIBUTE(host_numa_memory_management_supported, HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_ATTRIBUTE(host_memory_management_supported, HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(same(Advice::set_read_mostly, CU_MEM_ADVISE_SET_READ_MOSTLY));
static_assert(same(Advice::unset_read_mostly, CU_MEM_ADVISE_UNSET_READ_MOSTLY));
static_assert(same(managed_attached_global, CU_MEM_ATTACH_GLOBAL));
static_assert(same(stream_non_blocking, CU_STREAM_NON_BLOCKING) && same(event_disable_timing, CU_EVENT_DISABLE_TIMING));
static_assert(same(host_register_portable, CU_MEMHOSTREGISTER_PORTABLE));
static_assert(same(host_allocate_portable, CU_MEMHOSTALLOC_PORTABLE));
static_assert(same(granularity_recommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));

static_assert(sizeof(CounterConfiguration) == sizeof(CUpti_ActivityUnifiedMemoryCounterConfig));
SAME_FIELD(CounterConfiguration, scope, CUpti_ActivityUnifiedMemoryCounterConfig, scope);
SAME_FIELD(CounterConfiguration, kind, CUpti_ActivityUnifiedMemoryCounterConfig, kind);
SAME_FIELD(CounterConfiguration, device, CUpti_ActivityUnifiedMemoryCounterConfig, deviceId);
SAME_FIELD(CounterConfiguration, enable, CUpti_ActivityUnifiedMemoryCounterConfig, enable);
static_assert(sizeof(CounterRecord) == sizeof(CUpti_ActivityUnifiedMemoryCounter3));
SAME_FIELD(CounterRecord, activity_kind, CUpti_ActivityUnifiedMemoryCounter3, kind);
SAME_FIELD(CounterRecord, kind, CUpti_ActivityUnifiedMemoryCounter3, counterKind);
SAME_FIELD(CounterRecord, value, CUpti_ActivityUnifiedMemoryCounter3, value);
SAME_FIELD(CounterRecord, start, CUpti_ActivityUnifiedMemoryCounter3, start);
SAME_FIELD(CounterRecord, end, CUpti_ActivityUnifiedMemoryCounter3, end);
SAME_FIELD(CounterRecord, address, CUpti_ActivityUnifiedMemoryCounter3, address);
SAME_FIELD(CounterRecord, source, CUpti_ActivityUnifiedMemoryCounter3, srcId);
SAME_FIELD(CounterRecord, destination, CUpti_ActivityUnifiedMemoryCounter3, dstId);
SAME_FIELD(CounterRecord, stream, CUpti_ActivityUnifiedMemoryCounter3, streamId);
SAME_FIELD(CounterRecord, process, CUpti_ActivityUnifiedMemoryCounter3, processId);
SAME_FIELD(CounterRecord, flags, CUpti_ActivityUnifiedMemoryCounter3, flags);
SAME_FIELD(CounterRecord, processors, CUpti_ActivityUnifiedMemoryCounter3, processors);
static_assert(same(activity_managed_memory, CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER));
static_assert(same(activity_scope_all_devices, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES));
static_assert(same(activity_flush_forced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
static_assert(same(cupti_no_more_records, CUPTI_ERROR_MAX_LIMIT_REACHED));
static_assert(same(cupti_no_privileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES));
static_assert(same(cupti_other_subscriber, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED));
#define SAME_COUNTER(mine, theirs) \
  static_assert(same(CounterKind::mine, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_##theirs))
SAME_COUNTER(bytes_to_device, BYTES_TRANSFER_HTOD);
SAME_COUNTER(bytes_to_host, BYTES_TRANSFER_DTOH);
SAME_COUNTER(host_page_fault, CPU_PAGE_FAULT_COUNT);
SAME_COUNTER(device_page_fault, GPU_PAGE_FAULT);
static_assert(same(FaultAccess::read, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_READ));
static_assert(same(FaultAccess::write, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_WRITE));
static_assert(same(FaultAccess::atomic, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_ATOMIC));
static_assert(same(FaultAccess::prefetch, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_PREFETCH));

#define QUOTED(text) #text
#define EXPANDED(text) QUOTED(text)
#define CALL(member, header_name, exported_name, ...) \
  static_assert(same_signature(decltype(Calls::member){}, static_cast<decltype(&header_name)>(nullptr)));
#include "cuda/calls.def"
#include "cuda/managed_calls.def"
#undef CALL
#define CALL(member, header_name, exported_name, ...) \
  static_assert(same_signature(decltype(CuptiCalls::member){}, static_cast<decltype(&header_name)>(nullptr)));
#include "cuda/cupti_calls.def"
#undef CALL
using DeviceHandle = Nvml::DeviceHandle;
#define CALL(member, header_name, exported_name, ...) \
  static_assert(                                      \
      same_signature(static_cast<int (*)(__VA_ARGS__)>(nullptr), static_cast<decltype(&header_name)>(nullptr)));
#include "cuda/nvml_calls.def"
#undef CALL
static_assert(std::is_same_v<decltype(&nvmlErrorString), const char* (*)(nvmlReturn_t)>);
static_assert(sizeof(Nvml::Process) == sizeof(nvmlProcessInfo_t));
SAME_FIELD(Nvml::Process, pid, nvmlProcessInfo_t, pid);
SAME_FIELD(Nvml::Process, bytes, nvmlProcessInfo_t, usedGpuMemory);

TEST(CudaLayout, ProcessesAreListedByTheNameThatTheHeaderMapsItTo) {
  EXPECT_STREQ(EXPANDED(nvmlDeviceGetComputeRunningProcesses), "nvmlDeviceGetComputeRunningProcesses_v3");
}

// cuda.h maps cuMemFree to cuMemFree_v2, and so on: that is what the library exports.
TEST(CudaLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
  // Drivers before CUDA 12.8 export this one without a version; later ones export both.
  const std::string kept = "cuEventElapsedTime";
#define CALL(member, header_name, exported_name, ...) \
  EXPECT_TRUE(#exported_name == kept || std::string(#exported_name) == EXPANDED(header_name)) << #exported_name;
#include "cuda/calls.def"
#include "cuda/cupti_calls.def"
#include "cuda/managed_calls.def"
#include "cuda/nvml_calls.def"
#undef CALL
}

}  // namespace
}  // namespace vedette::cuda::layout_test

#else

TEST(CudaLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
  GTEST_SKIP() << "cuda.h is not installed beside libtorch";
}

#endif
