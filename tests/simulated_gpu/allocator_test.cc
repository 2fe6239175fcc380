// What libtorch's CUDA allocator says of a guard's memory, and what of it is not the guard's. The cases run in a
// process that the launcher of the simulated GPU starts.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <vedette/gpu.h>
#include <vedette/torch.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "device.h"
#include "simulated_gpu/control.h"

namespace vedette::testing::allocator_test {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using namespace vedette::literals;

TEST(AllocatorOfAGuard, TellsTheTruthOnTheSimulatedGpu) {
#ifndef SIMULATED_KERNELS
  GTEST_SKIP() << "libtorch_cuda.so or CUDA's headers are missing: install a libtorch for CUDA (scripts/setup.sh)";
#endif
  const std::string command = "VEDETTE_BUILD=" VEDETTE_BUILD
                              " INSIDE_GPU=1 SIMULATED_GPU=context_mib=100 " VEDETTE_SOURCE
                              "/scripts/with_simulated_gpu " +
                              std::filesystem::read_symlink("/proc/self/exe").string() + " --gtest_filter='Inside.*'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

class Inside : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("INSIDE_GPU") == nullptr) GTEST_SKIP() << "a case of the test above";
    examples::prepare_device("cuda");
    if (native == nullptr) native = caching::get();
  }
  static inline caching::CUDAAllocator* native = nullptr;  // libtorch's own, from before the first guard
};

constexpr std::int64_t words = 1 << 20;
constexpr std::int64_t bytes = words * 4;

std::int64_t allocated() {
  return caching::getDeviceStats(0)
      .allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .current;
}

TEST_F(Inside, AGuardIsRefusedWhereTheProgramHasTakenItsAllocatorAway) {
  const GuardOptions options{.fast_memory = 16_MiB, .fast = "gpu:0"};
  { const Guard before{options}; }
  caching::CUDAAllocator* const ours = caching::get();
  caching::allocator.store(native);
  try {
    const Guard guard{options};
    ADD_FAILURE() << "a guard opened that no allocation comes to";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.cause, Cause::unsupported);
    EXPECT_NE(std::string(failure.what()).find("an allocation of GPU memory does not come to vedette"),
              std::string::npos)
        << failure.what();
  }
  caching::allocator.store(ours);
}

TEST_F(Inside, StatisticsCountWhatLiesInTheGuardsRange) {
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  Guard guard{{.fast_memory = 16_MiB, .fast = "gpu:0"}};
  const std::int64_t before = allocated();
  at::Tensor first = at::ones({words}, on_gpu), second = at::ones({words}, on_gpu);
  EXPECT_EQ(allocated() - before, 2 * bytes);
  first.reset();
  EXPECT_EQ(allocated() - before, bytes);
  const auto reserved =
      caching::getDeviceStats(0).reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  EXPECT_GE(reserved.current, static_cast<std::int64_t>((16_MiB).value));
  caching::emptyCache();
  EXPECT_TRUE(second.eq(1).all().cpu().item<bool>());
}

TEST_F(Inside, ASnapshotHasTheGuardsRangeAsASegment) {
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  Guard guard{{.fast_memory = 16_MiB, .fast = "gpu:0"}};
  const at::Tensor first = at::ones({words}, on_gpu), second = at::ones({words}, on_gpu);
  const auto segments = caching::snapshot().segments;
  ASSERT_FALSE(segments.empty());
  const auto& range = segments.back();
  EXPECT_EQ(range.total_size, (16_MiB).value);
  EXPECT_EQ(range.allocated_size, static_cast<std::size_t>(2 * bytes));
  std::size_t all = 0, used = 0;
  for (const auto& block : range.blocks) {
    all += block.size;
    used += block.allocated ? block.size : 0;
  }
  EXPECT_EQ(all, range.total_size);
  EXPECT_EQ(used, range.allocated_size);
  const auto first_address = reinterpret_cast<std::size_t>(first.const_data_ptr());
  EXPECT_GE(first_address, range.address);
  EXPECT_LT(first_address, range.address + range.total_size);
}

// Look-ups of the rows of every other piece make those two hot.
TEST_F(Inside, ASnapshotHasTheHotPiecesOfTablesAsSegments) {
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  constexpr std::int64_t width = 16, rows_of_piece = (2 << 20) / (width * 4), pieces = 8;
  Guard guard{{.fast_memory = 16_MiB, .fast = "gpu:0", .table_memory = 4_MiB}};
  const at::Tensor table = at::ones({pieces * rows_of_piece, width}, on_gpu);
  const auto numbers = at::cat({at::arange(64), at::arange(64) + 2 * rows_of_piece}).to(at::kCUDA);
  const auto before = caching::snapshot().segments.size();
  for (int s = 0; s < 3; ++s) {
    const auto step = guard.step();
    EXPECT_TRUE(at::embedding(table, numbers).eq(1).all().cpu().item<bool>());
  }
  ASSERT_EQ(guard.session().gpu()->tables().device_bytes, (4_MiB).value);
  const auto segments = caching::snapshot().segments;
  ASSERT_EQ(segments.size(), before + 2);
  const auto address = reinterpret_cast<std::size_t>(table.const_data_ptr());
  for (const std::size_t nth : {0u, 1u}) {
    const auto& segment = segments[before + nth];
    EXPECT_EQ(segment.address, address + nth * 2 * (2_MiB).value);
    EXPECT_EQ(segment.total_size, (2_MiB).value);
    EXPECT_EQ(segment.allocated_size, (2_MiB).value);
    ASSERT_EQ(segment.blocks.size(), 1u);
    EXPECT_TRUE(segment.blocks[0].allocated);
  }
  std::int64_t reserved = 0;
  for (const auto& segment : segments) reserved += static_cast<std::int64_t>(segment.total_size);
  constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  EXPECT_EQ(caching::getDeviceStats(0).reserved_bytes[all].current, reserved) << "as the statistics have it";
}

TEST_F(Inside, MemoryThatItsDeleterCannotFreeHasNoRawDeleter) {
  auto* const allocator = caching::get();
  {
    Guard guard{{.fast_memory = 16_MiB, .fast = "gpu:0"}};
    const c10::DataPtr memory = allocator->allocate(bytes);
    ASSERT_NE(memory.get(), memory.get_context());
    EXPECT_EQ(allocator->raw_deleter(), nullptr);
    std::size_t largest = 0;
    allocator->cacheInfo(0, &largest);
    EXPECT_EQ(largest, (16_MiB).value - bytes);
  }
  const c10::DataPtr memory = allocator->allocate(bytes);
  EXPECT_EQ(allocator->raw_deleter(), memory.get_deleter());
}

TEST_F(Inside, WhatAPoolTakesIsLibtorchsOwnMemory) {
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  Guard guard{{.fast_memory = 16_MiB, .fast = "gpu:0"}};
  const GpuMemory::Range range = guard.session().gpu()->memory();
  const auto is_inside = [&](const at::Tensor& tensor) {
    return reinterpret_cast<DeviceAddress>(tensor.const_data_ptr()) - range.address < range.bytes;
  };
  const std::int64_t before = allocated();
  bool takes = true;
  caching::get()->beginAllocateToPool(0, {0, 1}, [&](cudaStream_t) { return takes; });
  const at::Tensor first = at::ones({words}, on_gpu);
  takes = false;
  const at::Tensor second = at::ones({words}, on_gpu);
  caching::get()->endAllocateToPool(0, {0, 1});
  const at::Tensor third = at::ones({words}, on_gpu);
  EXPECT_FALSE(is_inside(first));
  EXPECT_TRUE(is_inside(second));
  EXPECT_TRUE(is_inside(third));
  EXPECT_EQ(allocated() - before, 3 * bytes);
  caching::get()->releasePool(0, {0, 1});
}

// The driver's own count of what the process took is the judge.
TEST_F(Inside, CountersHaveWhatTheProcessHoldsOnTheDevice) {
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  const auto driver = reinterpret_cast<simulated::Control* (*)()>(::dlsym(RTLD_DEFAULT, "simulated_gpu"))();
  caching::emptyCache();  // what earlier tests left would serve the large tensor
  Guard guard{{.fast_memory = 16_MiB, .fast = "gpu:0"}};
  at::Tensor product = at::ones({64, 64}, on_gpu).mm(at::ones({64, 64}, on_gpu));
  const GpuBytes before = guard.counters().gpu;
  EXPECT_EQ(before.context, 100_MiB);
  EXPECT_GT(before.workspaces, Bytes{});
  EXPECT_EQ(before.large, Bytes{});
  EXPECT_EQ(before.on_device, Bytes{driver->in_use()} + before.context);
  EXPECT_EQ(before.beside, before.on_device - 16_MiB);

  at::Tensor large = at::ones({5 * words}, on_gpu);  // 20 MiB
  GpuBytes with = guard.counters().gpu;
  EXPECT_EQ(with.large, Bytes{5 * bytes});
  EXPECT_EQ(with.on_device, Bytes{driver->in_use()} + with.context);
  EXPECT_GE(with.beside, before.beside + with.large);
  const Bytes most = with.beside;
  caching::get()->beginAllocateToPool(0, {0, 2}, [](cudaStream_t) { return true; });
  at::Tensor in_pool = at::ones({words}, on_gpu);
  caching::get()->endAllocateToPool(0, {0, 2});
  with = guard.counters().gpu;
  EXPECT_GE(with.pools, Bytes{bytes});
  EXPECT_EQ(with.on_device, Bytes{driver->in_use()} + with.context);

  in_pool.reset();
  large.reset();
  caching::get()->releasePool(0, {0, 2});
  caching::emptyCache();
  const GpuBytes after = guard.counters().gpu;
  EXPECT_EQ(after.large, Bytes{});
  EXPECT_EQ(after.pools, Bytes{});
  EXPECT_EQ(after.on_device, Bytes{driver->in_use()} + after.context);
  EXPECT_GE(after.most_beside, most) << "the most is of all moments";
  EXPECT_LT(after.beside, most);
}

}  // namespace
}  // namespace vedette::testing::allocator_test
