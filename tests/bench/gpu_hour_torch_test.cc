// bench/gpu_hour on the simulated GPU: its groups run, and a decoder in places that are re-pointed has the losses and
// the parameters of plain libtorch at every share. The simulated GPU ends a process with status 70 for an access that
// nothing orders, which is then a refused row.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpu_probe/report.h"
#include "machine.h"

namespace vedette::gpu::gpu_hour_torch_test {
namespace {

#ifdef SIMULATED_KERNELS
TEST(GpuHourOnTheSimulatedGpu, TrainsBitForBitInsideEveryShareOfItsPeak) {
  const auto folder = std::filesystem::temp_directory_path() / ("gpu_hour_torch_test-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  ::setenv("VEDETTE_BUILD", VEDETTE_BUILD, 1);
  const int status = bench::run_child({WITH_SIMULATED_GPU, GPU_HOUR, "--quick", "--json", folder / "hour.json",
                                       "--only", "move,announce,outside_gpt2,train_gpt2"},
                                      folder / "said", 250)
                         .status;
  const Json rows = Json::parse(std::ifstream(folder / "hour.json"))["rows"];
  std::filesystem::remove_all(folder);
  EXPECT_EQ(status, 0);
  int equal = 0, moved = 0;
  for (const Json& row : rows) {
    const std::string quantity = row["quantity"];
    if (quantity.ends_with("_energy")) continue;  // there is no NVML
    ASSERT_FALSE(row.contains("refused")) << row;
    if (quantity.ends_with("s_equal")) {
      EXPECT_EQ(row["value"], true) << row;
      ++equal;
    }
    if (quantity == "a_step" && row["setting"]["percent_of_peak"] < 100) {
      EXPECT_GT(row["value"]["in"], 0) << row;
      ++moved;
    }
  }
  EXPECT_EQ(equal, 8);  // plain libtorch against itself, and three shares: losses and parameters
  EXPECT_EQ(moved, 2);
}
#else
TEST(GpuHourOnTheSimulatedGpu, NeedsAWheelForCuda) { GTEST_SKIP() << "libtorch_cuda.so or CUDA's headers are missing"; }
#endif

}  // namespace
}  // namespace vedette::gpu::gpu_hour_torch_test
