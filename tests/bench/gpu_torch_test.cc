// bench/gpu_probe_torch where no driver is: its models train on the processor, operators tick, and what needs the
// device says why not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpu_probe/report.h"
#include "machine.h"

namespace vedette::gpu::gpu_torch_test {
namespace {

class TorchProbeTest : public ::testing::Test {
 protected:
  TorchProbeTest() {
    std::string path = (std::filesystem::temp_directory_path() / "gpu_torch_test-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~TorchProbeTest() override { std::filesystem::remove_all(folder_); }

  Json run(const std::string& group, std::vector<std::string> words = {}) {
    const std::string json = folder_ / "probe.json";
    words.insert(words.begin(), {GPU_PROBE_TORCH, "--only", group, "--json", json, "--quick", "--cell-limit", "200"});
    status_ = bench::run_child(words, folder_ / "said", 250).status;
    return Json::parse(std::ifstream(json))["rows"];
  }

  std::filesystem::path folder_;
  int status_ = -1;
};

TEST_F(TorchProbeTest, TheModelsTrainOnTheProcessorAndTheirOperatorsTick) {
  double first = 0;
  int cells = 0;
  for (const Json& row : run("processor")) {
    ASSERT_FALSE(row.contains("refused")) << row;
    if (row["quantity"] == "first_loss") first = row["value"], ++cells;
    if (row["quantity"] == "last_loss") {
      EXPECT_LT(row["value"].get<double>(), first) << row;
    }
    if (row["quantity"] == "ticks_a_step") {
      EXPECT_EQ(row["value"] > 50, row["setting"]["each_operator"] == "tick") << row;
    }
  }
  EXPECT_EQ(cells, 4);
  EXPECT_EQ(status_, 0);
}

#ifdef SIMULATED_KERNELS
TEST_F(TorchProbeTest, BytesBesideTheAllocatorAreCounted) {
  ::setenv("VEDETTE_BUILD", VEDETTE_BUILD, 1);
  const std::string json = folder_ / "outside.json";
  const int status =
      bench::run_child({WITH_SIMULATED_GPU, GPU_PROBE_TORCH, "--quick", "--json", json, "--only", "outside_gpt2"},
                       folder_ / "said", 250)
          .status;
  EXPECT_EQ(status, 0);
  int facts = 0;
  const Json rows = Json::parse(std::ifstream(json))["rows"];
  for (const Json& row : rows) {
    ASSERT_FALSE(row.contains("refused")) << row;
    facts += row.contains("value") ? 1 : 0;
  }
  EXPECT_EQ(facts, 5);
}
#endif

TEST_F(TorchProbeTest, WithoutADriverTheDevicesPartIsRefused) {
  const Json rows =
      run("resnet50,gpt2,resnet50_range,gpt2_range,outside_gpt2", {"--libcuda", "libno-driver-here.so.1"});
  ASSERT_EQ(rows.size(), 5u);
  for (const Json& row : rows) EXPECT_EQ(row["refused"], "no driver (libno-driver-here.so.1)");
  EXPECT_EQ(status_, 0);
}

}  // namespace
}  // namespace vedette::gpu::gpu_torch_test
