// Are our declarations of CUDA's driver those of the real header? Compared where the header is installed: sizes,
// offsets, numbers, signatures and exported names, at compile time.
#include <gtest/gtest.h>

#ifdef VEDETTE_CUDA_HEADERS
#include <cuda.h>

#include <cstddef>
#include <string>

#include "cuda/driver.h"
#include "support/same_signature.h"

namespace vedette::cuda {
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

static_assert(same(success, CUDA_SUCCESS) && same(error_invalid_value, CUDA_ERROR_INVALID_VALUE));
static_assert(same(error_out_of_memory, CUDA_ERROR_OUT_OF_MEMORY) && same(error_no_device, CUDA_ERROR_NO_DEVICE));
static_assert(same(error_invalid_device, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(error_invalid_context, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(error_invalid_handle, CUDA_ERROR_INVALID_HANDLE) && same(error_not_ready, CUDA_ERROR_NOT_READY));
static_assert(same(error_already_registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(same(error_not_registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
static_assert(same(error_not_supported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(LocationType::device, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(LocationType::host, CU_MEM_LOCATION_TYPE_HOST));
static_assert(same(LocationType::host_numa, CU_MEM_LOCATION_TYPE_HOST_NUMA));
static_assert(same(AccessDescription{}.flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(same(AllocationProperties{}.type, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(Attribute::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(Attribute::async_engine_count, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT));
static_assert(same(Attribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(Attribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(Attribute::virtual_memory_management_supported,
                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(Attribute::host_numa_id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID));
static_assert(same(Attribute::host_numa_memory_management_supported,
                   CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(stream_non_blocking, CU_STREAM_NON_BLOCKING) && same(event_disable_timing, CU_EVENT_DISABLE_TIMING));
static_assert(same(host_register_portable, CU_MEMHOSTREGISTER_PORTABLE));
static_assert(same(host_allocate_portable, CU_MEMHOSTALLOC_PORTABLE));
static_assert(same(granularity_recommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));

#define QUOTED(text) #text
#define EXPANDED(text) QUOTED(text)
#define CALL(member, header_name, exported_name, ...) \
  static_assert(same_signature(decltype(Calls::member){}, static_cast<decltype(&header_name)>(nullptr)));
#include "cuda/calls.def"
#undef CALL

// cuda.h maps cuMemFree to cuMemFree_v2, and so on: that is what the library exports.
TEST(CudaLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
  // Drivers before CUDA 12.8 export this one without a version; later ones export both.
  const std::string kept = "cuEventElapsedTime";
#define CALL(member, header_name, exported_name, ...) \
  EXPECT_TRUE(#exported_name == kept || std::string(#exported_name) == EXPANDED(header_name)) << #exported_name;
#include "cuda/calls.def"
#undef CALL
}

}  // namespace
}  // namespace vedette::cuda

#else

TEST(CudaLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
  GTEST_SKIP() << "cuda.h is not installed beside libtorch";
}

#endif
