// Are the probe's own declarations of CUDA's interfaces those of the real headers? Compared where headers are installed
// (they come with the wheels nvidia-cuda-runtime, -cupti, -crt and nvidia-nvml-dev, beside libtorch): sizes, offsets,
// numbers and the types of functions, at compile time.
#include <gtest/gtest.h>

#ifdef GPU_PROBE_CUDA_HEADERS
#include <cuda.h>
#include <cupti.h>
#include <nvml.h>

#include <cstddef>
#include <type_traits>

#include "gpu_probe/activity.h"
#include "gpu_probe/driver.h"
#include "gpu_probe/nvml.h"
#include "support/same_signature.h"

namespace vedette::gpu {
namespace {

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
static_assert(sizeof(CopyAttributes) == sizeof(CUmemcpyAttributes));
SAME_FIELD(CopyAttributes, source_access_order, CUmemcpyAttributes, srcAccessOrder);
SAME_FIELD(CopyAttributes, source_hint, CUmemcpyAttributes, srcLocHint);
SAME_FIELD(CopyAttributes, destination_hint, CUmemcpyAttributes, dstLocHint);
SAME_FIELD(CopyAttributes, flags, CUmemcpyAttributes, flags);
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(Handle) == sizeof(CUmemGenericAllocationHandle));

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

using testing::same;

static_assert(same(success, CUDA_SUCCESS) && same(error_invalid_value, CUDA_ERROR_INVALID_VALUE));
static_assert(same(error_out_of_memory, CUDA_ERROR_OUT_OF_MEMORY) && same(error_not_ready, CUDA_ERROR_NOT_READY));
static_assert(same(LocationType::device, CU_MEM_LOCATION_TYPE_DEVICE) &&
              same(LocationType::host, CU_MEM_LOCATION_TYPE_HOST));
static_assert(same(LocationType::host_numa, CU_MEM_LOCATION_TYPE_HOST_NUMA));
static_assert(same(AccessDescription{}.flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(same(AllocationProperties{}.type, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(CopyAttributes{}.source_access_order, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM));
static_assert(same(CopyAttributes{}.flags, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE));
static_assert(same(stream_non_blocking, CU_STREAM_NON_BLOCKING) &&
              same(stream_wait_value_at_least, CU_STREAM_WAIT_VALUE_GEQ));
static_assert(same(host_alloc_portable, CU_MEMHOSTALLOC_PORTABLE) &&
              same(host_alloc_mapped, CU_MEMHOSTALLOC_DEVICEMAP));
static_assert(same(host_register_portable, CU_MEMHOSTREGISTER_PORTABLE));
static_assert(same(host_register_mapped, CU_MEMHOSTREGISTER_DEVICEMAP) && same(attach_global, CU_MEM_ATTACH_GLOBAL));
static_assert(same(granularity_minimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
static_assert(same(granularity_recommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
static_assert(same(Attribute::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(Attribute::l2_cache_size, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(same(Attribute::async_engine_count, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT));
static_assert(same(Attribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(Attribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(Attribute::managed_memory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY));
static_assert(same(Attribute::pageable_memory_access, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS));
static_assert(same(Attribute::concurrent_managed_access, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS));
static_assert(same(Attribute::can_use_host_pointer_for_registered_memory,
                   CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM));
static_assert(same(Attribute::host_register_supported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED));
static_assert(same(Attribute::pageable_memory_access_uses_host_page_tables,
                   CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES));
static_assert(same(Attribute::virtual_memory_management_supported,
                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(Attribute::host_numa_id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID));
static_assert(same(Attribute::host_numa_virtual_memory_management_supported,
                   CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(Attribute::host_virtual_memory_management_supported,
                   CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(activity_unified_memory_counter, CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER));
static_assert(same(activity_scope_all_devices, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES));
static_assert(same(activity_flush_forced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
static_assert(same(activity_no_more_records, CUPTI_ERROR_MAX_LIMIT_REACHED));
static_assert(same(CounterKind::bytes_to_device, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD));
static_assert(same(CounterKind::bytes_to_host, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH));
static_assert(same(CounterKind::host_page_fault, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_CPU_PAGE_FAULT_COUNT));
static_assert(same(CounterKind::device_page_fault, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT));
static_assert(same(FaultAccess::read, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_READ));
static_assert(same(FaultAccess::write, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_WRITE));
static_assert(same(FaultAccess::atomic, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_ATOMIC));
static_assert(same(FaultAccess::prefetch, CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_PREFETCH));

template <class... Mine, class Result, class... Theirs>
constexpr bool same_signature(const Call<Mine...>*, Result (*theirs)(Theirs...)) {
  return testing::same_signature(static_cast<int (*)(Mine...)>(nullptr), theirs);
}

#define SAME_CALL_OF(Mine, member, theirs) \
  static_assert(                           \
      same_signature(static_cast<const decltype(Mine::member)*>(nullptr), static_cast<decltype(&theirs)>(nullptr)))
SAME_CALL_OF(Nvml, init, nvmlInit);
SAME_CALL_OF(Nvml, driver_version, nvmlSystemGetDriverVersion);
SAME_CALL_OF(Nvml, device, nvmlDeviceGetHandleByPciBusId);
SAME_CALL_OF(Nvml, energy_mj, nvmlDeviceGetTotalEnergyConsumption);
SAME_CALL_OF(Nvml, power_mw, nvmlDeviceGetPowerUsage);
static_assert(std::is_same_v<decltype(&nvmlErrorString), const char* (*)(nvmlReturn_t)> &&
              sizeof(nvmlReturn_t) == sizeof(int));
static_assert(same(success, NVML_SUCCESS));

#define SAME_CALL(member, theirs) SAME_CALL_OF(Driver, member, theirs)
SAME_CALL(init, cuInit);
SAME_CALL(driver_version, cuDriverGetVersion);
SAME_CALL(device_count, cuDeviceGetCount);
SAME_CALL(device, cuDeviceGet);
SAME_CALL(device_name, cuDeviceGetName);
SAME_CALL(device_pci_bus_id, cuDeviceGetPCIBusId);
SAME_CALL(attribute, cuDeviceGetAttribute);
SAME_CALL(retain_context, cuDevicePrimaryCtxRetain);
SAME_CALL(release_context, cuDevicePrimaryCtxRelease);
SAME_CALL(set_context, cuCtxSetCurrent);
SAME_CALL(memory_info, cuMemGetInfo);
SAME_CALL(reserve, cuMemAddressReserve);
SAME_CALL(free_range, cuMemAddressFree);
SAME_CALL(create, cuMemCreate);
SAME_CALL(release, cuMemRelease);
SAME_CALL(map, cuMemMap);
SAME_CALL(unmap, cuMemUnmap);
SAME_CALL(set_access, cuMemSetAccess);
SAME_CALL(granularity, cuMemGetAllocationGranularity);
SAME_CALL(allocate, cuMemAlloc);
SAME_CALL(free, cuMemFree);
SAME_CALL(host_allocate, cuMemHostAlloc);
SAME_CALL(host_free, cuMemFreeHost);
SAME_CALL(device_pointer, cuMemHostGetDevicePointer);
SAME_CALL(host_register, cuMemHostRegister);
SAME_CALL(host_unregister, cuMemHostUnregister);
SAME_CALL(allocate_managed, cuMemAllocManaged);
SAME_CALL(prefetch, cuMemPrefetchAsync);
SAME_CALL(copy, cuMemcpyAsync);
SAME_CALL(copy_batch, cuMemcpyBatchAsync);
SAME_CALL(stream_create, cuStreamCreate);
SAME_CALL(stream_destroy, cuStreamDestroy);
SAME_CALL(stream_synchronize, cuStreamSynchronize);
SAME_CALL(stream_wait_event, cuStreamWaitEvent);
SAME_CALL(stream_wait_value, cuStreamWaitValue32);
SAME_CALL(event_create, cuEventCreate);
SAME_CALL(event_destroy, cuEventDestroy);
SAME_CALL(event_record, cuEventRecord);
SAME_CALL(event_query, cuEventQuery);
SAME_CALL(event_synchronize, cuEventSynchronize);
SAME_CALL(event_elapsed_ms, cuEventElapsedTime);
SAME_CALL(module_load, cuModuleLoadData);
SAME_CALL(module_unload, cuModuleUnload);
SAME_CALL(module_function, cuModuleGetFunction);
SAME_CALL(launch, cuLaunchKernel);

TEST(GpuLayout, DeclarationsAreThoseOfTheInstalledHeaders) {
  SUCCEED() << "cuda.h " << CUDA_VERSION << ", compared at compile time";
}

#define QUOTED(text) #text
#define EXPANDED(text) QUOTED(text)
#define EXPECT_NAME(member, function) EXPECT_STREQ(driver.member.name(), EXPANDED(function))

// cuda.h maps cuMemFree to cuMemFree_v2, and so on: that is what the library exports.
TEST(GpuLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
  const Driver driver(GPU_FAKE_DRIVER);
  EXPECT_NAME(release_context, cuDevicePrimaryCtxRelease);
  EXPECT_NAME(memory_info, cuMemGetInfo);
  EXPECT_NAME(reserve, cuMemAddressReserve);
  EXPECT_NAME(create, cuMemCreate);
  EXPECT_NAME(map, cuMemMap);
  EXPECT_NAME(unmap, cuMemUnmap);
  EXPECT_NAME(set_access, cuMemSetAccess);
  EXPECT_NAME(allocate, cuMemAlloc);
  EXPECT_NAME(free, cuMemFree);
  EXPECT_NAME(host_allocate, cuMemHostAlloc);
  EXPECT_NAME(host_free, cuMemFreeHost);
  EXPECT_NAME(device_pointer, cuMemHostGetDevicePointer);
  EXPECT_NAME(host_register, cuMemHostRegister);
  EXPECT_NAME(host_unregister, cuMemHostUnregister);
  EXPECT_NAME(allocate_managed, cuMemAllocManaged);
  EXPECT_NAME(prefetch, cuMemPrefetchAsync);
  EXPECT_NAME(copy, cuMemcpyAsync);
  EXPECT_NAME(copy_batch, cuMemcpyBatchAsync);
  EXPECT_NAME(stream_destroy, cuStreamDestroy);
  EXPECT_NAME(stream_wait_value, cuStreamWaitValue32);
  EXPECT_NAME(event_destroy, cuEventDestroy);
  EXPECT_NAME(launch, cuLaunchKernel);
  const Nvml nvml(GPU_FAKE_DRIVER);
  EXPECT_STREQ(nvml.init.name(), EXPANDED(nvmlInit));
  EXPECT_STREQ(nvml.device.name(), EXPANDED(nvmlDeviceGetHandleByPciBusId));
}

}  // namespace
}  // namespace vedette::gpu

#else

TEST(GpuLayout, DeclarationsAreThoseOfTheInstalledHeaders) {
  GTEST_SKIP() << "cuda.h and cupti.h are not installed beside libtorch";
}

#endif
