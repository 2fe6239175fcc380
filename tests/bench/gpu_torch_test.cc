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

TEST_F(TorchProbeTest, WithoutADriverTheDevicesPartIsRefused) {
  const Json rows = run("resnet50,gpt2,resnet50_range,gpt2_range", {"--libcuda", "libno-driver-here.so.1"});
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) EXPECT_EQ(row["refused"], "no driver (libno-driver-here.so.1)");
  EXPECT_EQ(status_, 0);
}

}  // namespace
}  // namespace vedette::gpu::gpu_torch_test
