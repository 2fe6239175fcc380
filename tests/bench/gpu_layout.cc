// Are the declarations that the probe has beside src/cuda's those of the real headers? tests/cuda/layout.cc compares
// the others. Compared where headers are installed (they come with the wheels nvidia-cuda-runtime, -cupti, -crt and
// nvidia-nvml-dev, beside libtorch): sizes, offsets, numbers, signatures and exported names.
#include <gtest/gtest.h>

#ifdef GPU_PROBE_CUDA_HEADERS
#include <cuda.h>
#include <nvml.h>

#include "gpu_probe/driver.h"
#include "gpu_probe/nvml.h"
#include "support/same_signature.h"

namespace vedette::gpu::gpu_layout_test {
namespace {

using testing::same;
using testing::same_signature;

static_assert(same(stream_wait_value_at_least, CU_STREAM_WAIT_VALUE_GEQ));
static_assert(same(host_allocate_mapped, CU_MEMHOSTALLOC_DEVICEMAP));
static_assert(same(host_register_mapped, CU_MEMHOSTREGISTER_DEVICEMAP));
static_assert(same(granularity_minimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
static_assert(same(success, NVML_SUCCESS));

template <class... Mine, class Theirs>
constexpr bool same_call(const Call<Mine...>*, Theirs theirs) {
  return same_signature(static_cast<int (*)(Mine...)>(nullptr), theirs);
}

#define CALL(member, header_name, exported_name, ...) \
  static_assert(                                      \
      same_call(static_cast<const decltype(Driver::member)*>(nullptr), static_cast<decltype(&header_name)>(nullptr)));
#include "gpu_probe/calls.def"
#undef CALL
static_assert(same_call(static_cast<const decltype(Nvml::driver_version)*>(nullptr),
                        static_cast<decltype(&nvmlSystemGetDriverVersion)>(nullptr)));

#define QUOTED(text) #text
#define EXPANDED(text) QUOTED(text)

// cuda.h maps cuMemAlloc to cuMemAlloc_v2, and so on: that is what the library exports.
TEST(GpuLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
#define CALL(member, header_name, exported_name, ...) EXPECT_STREQ(#exported_name, EXPANDED(header_name));
#include "gpu_probe/calls.def"
#undef CALL
}

}  // namespace
}  // namespace vedette::gpu::gpu_layout_test

#else

TEST(GpuLayout, FunctionsAreAskedForByTheNamesThatTheHeaderMapsThemTo) {
  GTEST_SKIP() << "cuda.h and nvml.h are not installed beside libtorch";
}

#endif
