// examples/train on libtorch's CUDA device without a GPU: losses equal to the CPU's bit by bit, no race, the device's
// memory as the limit, and sentences where something is missing.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace vedette::testing {
namespace {

namespace fs = std::filesystem;

struct Training {
  int status = -1;
  nlohmann::json result;
  std::string output;
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

double available_gib() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::atof(line.c_str() + 13) / (1 << 20);
  }
  return 0;
}

class SimulatedTraining : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef SIMULATED_KERNELS
    GTEST_SKIP() << "libtorch_cuda.so or CUDA's headers are missing: install a libtorch for CUDA (scripts/setup.sh)";
#endif
    if (constexpr double wanted = 3; available_gib() < wanted)
      GTEST_SKIP() << "two trainings need " << wanted << " GiB of memory, " << available_gib() << " are available";
    folder_ = fs::path(::testing::TempDir()) / ("simulated_training_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // On the CPU, or on the simulated GPU without a guard.
  Training plain(const std::string& words, const std::string& device, const std::string& options = "") {
    return train("--plain " + words, device, options);
  }

  Training train(const std::string& words, const std::string& device, const std::string& options = "") {
    const std::string json = folder_ / "run.json", log = folder_ / "log";
    fs::remove(json);
    std::string command = "VEDETTE_BUILD=" VEDETTE_BUILD " SIMULATED_GPU='" + options + "' OMP_NUM_THREADS=2 ";
    if (device == "cuda") command += VEDETTE_SOURCE "/scripts/with_simulated_gpu ";
    command += VEDETTE_TRAIN " --device " + device + " " + words + " --json " + json + " >" + log + " 2>&1";
    const int status = std::system(command.c_str());
    return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .result = nlohmann::json::parse(read(json), nullptr, false),
            .output = read(log)};
  }

  void expect_equal_bits(const std::string& model) {
    const std::string words = "--small --steps 4 --model " + model;
    const Training cpu = plain(words, "cpu"), gpu = plain(words, "cuda");
    ASSERT_EQ(cpu.status, 0) << cpu.output;
    ASSERT_EQ(gpu.status, 0) << gpu.output;
    EXPECT_EQ(cpu.result["losses"], gpu.result["losses"]) << gpu.output;
    EXPECT_GT(gpu.result["peak_bytes"].get<double>(), 0.9 * cpu.result["peak_bytes"].get<double>())
        << "the model did not train in the device's memory";
  }

 private:
  fs::path folder_;
};

TEST_F(SimulatedTraining, MlpHasTheCpusBits) { expect_equal_bits("mlp"); }
TEST_F(SimulatedTraining, ResNetHasTheCpusBits) { expect_equal_bits("resnet18"); }
TEST_F(SimulatedTraining, GptHasTheCpusBits) { expect_equal_bits("gpt"); }
TEST_F(SimulatedTraining, BertHasTheCpusBits) { expect_equal_bits("bert"); }

// Under a guard storages leave for the host and come back elsewhere, by a plan; a race would end the process with
// status
// 70. Backward runs on a thread of autograd's.
class SimulatedGuard : public SimulatedTraining {
 protected:
  void expect_equal_bits_at(const std::string& model, std::initializer_list<int> percents,
                            const std::string& options = "") {
    const std::string words = "--small --steps 6 --model " + model;
    const Training whole = plain(words, "cuda");
    ASSERT_EQ(whole.status, 0) << whole.output;
    for (const int percent : percents) {
      const auto budget = static_cast<std::uint64_t>(whole.result["peak_bytes"].get<double>() * percent / 100);
      const Training inside = train(words + " --fast-memory " + std::to_string(budget), "cuda", options);
      ASSERT_EQ(inside.status, 0) << inside.output;
      EXPECT_EQ(inside.result["losses"], whole.result["losses"]) << percent;
      EXPECT_LE(inside.result["resident_max_bytes"], budget) << percent;
      EXPECT_GT(inside.result["bytes_out"], 0) << percent;
      EXPECT_EQ(inside.result["step_phase"].back(), "planned") << percent << inside.output;
    }
  }
};

TEST_F(SimulatedGuard, MlpHasThePlainRunsBits) { expect_equal_bits_at("mlp", {100, 50}); }
TEST_F(SimulatedGuard, ResNetHasThePlainRunsBits) { expect_equal_bits_at("resnet18", {100, 50, 30, 20}); }
TEST_F(SimulatedGuard, VggHasThePlainRunsBits) { expect_equal_bits_at("vgg16", {50, 30, 20}); }
TEST_F(SimulatedGuard, MobileNetHasThePlainRunsBits) { expect_equal_bits_at("mobilenetv2", {50, 30}); }
TEST_F(SimulatedGuard, LstmHasThePlainRunsBits) { expect_equal_bits_at("lstm", {50, 30, 20}); }
TEST_F(SimulatedGuard, GptHasThePlainRunsBits) { expect_equal_bits_at("gpt", {100, 50, 30}); }
TEST_F(SimulatedGuard, DcganHasThePlainRunsBits) { expect_equal_bits_at("dcgan", {50}); }
TEST_F(SimulatedGuard, GptHasThePlainRunsBitsOnASlowLink) {
  expect_equal_bits_at("gpt", {50}, "gbs=0.2 latency_us=100 one_engine=1 copies_wait=1 unmap_waits=1");
}
TEST_F(SimulatedGuard, AStepInBackwardHasTheBitsOfTheLoopAsItIs) {
  const std::string words = "--small --steps 6 --model gpt";
  const Training whole = plain(words, "cuda");
  const auto budget = static_cast<std::uint64_t>(whole.result["peak_bytes"].get<double>() / 2);
  const Training inside = train(words + " --step-in-backward --fast-memory " + std::to_string(budget), "cuda");
  ASSERT_EQ(inside.status, 0) << inside.output;
  EXPECT_EQ(inside.result["losses"], whole.result["losses"]);
}
TEST_F(SimulatedGuard, AnOperatorThatNeedsMoreThanTheBudgetEndsTheProcessWithASentence) {
  // Adam's addcdiv_ on the largest weight alone: three tensors of 784 KiB.
  const Training run = train("--small --steps 4 --model mlp --fast-memory 1800KiB", "cuda");
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.output, ::testing::HasSubstr("give a larger budget, or a smaller batch"));
}
TEST_F(SimulatedGuard, WithoutAGpuThereIsASentence) {
  const std::string log = ::testing::TempDir() + "guard_without_gpu";
  const int status =
      std::system((VEDETTE_TRAIN " --small --steps 1 --device cuda --fast-memory 1GiB >" + log + " 2>&1").c_str());
  EXPECT_NE(status, 0);
  EXPECT_THAT(read(log), ::testing::HasSubstr("train: "));
  EXPECT_THAT(read(log), ::testing::HasSubstr("train: a guard of GPU memory needs libtorch_cuda.so"));
}

TEST_F(SimulatedTraining, BitsDoNotDependOnTheLinkOrItsEngines) {
  const std::string words = "--small --steps 4 --model gpt";
  const Training fast = plain(words, "cuda");
  const Training slow = plain(words, "cuda", "gbs=0.2 latency_us=100 one_engine=1 copies_wait=1 unmap_waits=1");
  ASSERT_EQ(slow.status, 0) << slow.output;
  EXPECT_EQ(fast.result["losses"], slow.result["losses"]);
}

TEST_F(SimulatedTraining, TheDevicesMemoryIsTheLimit) {
  const Training run = plain("--steps 2 --small --model mlp", "cuda", "memory_mib=4");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, ::testing::HasSubstr("CUDA out of memory. Tried to allocate"));
}

TEST_F(SimulatedTraining, AnAllocationThatFailsOnceIsTriedAgainByLibtorch) {
  const std::string words = "--small --steps 2 --model mlp";
  const Training whole = plain(words, "cuda"), failing = plain(words, "cuda", "fail=cudaMalloc@1:2");
  ASSERT_EQ(failing.status, 0) << failing.output;
  EXPECT_EQ(whole.result["losses"], failing.result["losses"]);
}

TEST_F(SimulatedTraining, ACallThatFailsIsTheProgramsError) {
  const Training run = plain("--small --steps 2 --model mlp", "cuda", "fail=cudaMalloc@1:999");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, ::testing::HasSubstr("train: CUDA error: an error of the simulated GPU"));
}

TEST_F(SimulatedTraining, WithoutAGpuThereIsASentence) {
  const std::string log = ::testing::TempDir() + "without_gpu";
  const int status = std::system((VEDETTE_TRAIN " --plain --small --steps 1 --device cuda >" + log + " 2>&1").c_str());
  EXPECT_NE(status, 0);
  EXPECT_THAT(read(log), ::testing::HasSubstr("scripts/with_simulated_gpu"));
}

}  // namespace
}  // namespace vedette::testing
