// examples/train as a process, plain or under a guard, on the CPU or on the simulated GPU, and what is compared of two.
#pragma once
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace vedette::testing {

struct Training {
  int status = -1;
  nlohmann::json result;
  std::string output;
};

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline double available_gib() {
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
    folder_ = std::filesystem::path(::testing::TempDir()) / ("simulated_training_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // On the CPU, or on the simulated GPU without a guard.
  Training plain(const std::string& words, const std::string& device, const std::string& options = "") {
    return train("--plain " + words, device, options);
  }

  Training train(const std::string& words, const std::string& device, const std::string& options = "") {
    const std::string json = folder_ / "run.json", log = folder_ / "log";
    std::filesystem::remove(json);
    std::string command = "VEDETTE_BUILD=" VEDETTE_BUILD " SIMULATED_GPU='" + options + "' ";
    if (device == "cuda") command += VEDETTE_SOURCE "/scripts/with_simulated_gpu ";
    command += VEDETTE_TRAIN " --threads " + threads() + " --device " + device + " " + words + " --state --json " +
               json + " >" + log + " 2>&1";
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
    expect_equal(gpu, cpu, "the CPU's");
    EXPECT_GT(gpu.result["peak_bytes"].get<double>(), 0.9 * cpu.result["peak_bytes"].get<double>())
        << "the model did not train in the device's memory";
  }

  // Losses, parameters, buffers, optimizer state and generators, bit by bit.
  static void expect_equal(const Training& run, const Training& whole, const std::string& what) {
    EXPECT_EQ(run.result["losses"], whole.result["losses"]) << what;
    ASSERT_GT(whole.result["state"].size(), 2u);
    for (const auto& [name, digest] : whole.result["state"].items())
      EXPECT_EQ(run.result["state"].value(name, ""), digest) << what << ": " << name;
  }

 private:
  // As many as ctest gives the test.
  static std::string threads() {
    const char* const given = std::getenv("OMP_NUM_THREADS");
    return given == nullptr ? "2" : given;
  }
  std::filesystem::path folder_;
};

// Under a guard storages leave for the host and come back elsewhere, by a plan; a race would end the process with
// status 70. Backward runs on a thread of autograd's.
class SimulatedGuard : public SimulatedTraining {
 protected:
  // The largest op leaves too little beside its operands, which the run before has told.
  void expect_too_small(const Training& run, const std::string& model, int percent, std::uint64_t budget) const {
    const auto at = run.output.find("give a larger budget");
    ASSERT_NE(at, std::string::npos) << run.output;
    EXPECT_LT(budget, needs_ + needs_ / 4) << "its largest op fits:\n" << run.output;
    std::printf("%s at %d %% (%lu bytes) does not fit: its largest op needs %lu bytes\n", model.c_str(), percent,
                static_cast<unsigned long>(budget), static_cast<unsigned long>(needs_));
  }
  // `options`: of the device; `more`: words for the run under the guard.
  void expect_equal_bits_at(const std::string& model, std::initializer_list<int> percents,
                            const std::string& options = "", const std::string& more = "") {
    const std::string words = "--small --steps 6 --model " + model;
    const Training whole = plain(words, "cuda");
    ASSERT_EQ(whole.status, 0) << whole.output;
    for (const int percent : percents) {
      const auto budget = static_cast<std::uint64_t>(whole.result["peak_bytes"].get<double>() * percent / 100);
      const Training inside = train(words + " --fast-memory " + std::to_string(budget) + " " + more, "cuda", options);
      if (inside.status != 0 && percent < 100) {
        expect_too_small(inside, model, percent, budget);
        continue;
      }
      ASSERT_EQ(inside.status, 0) << inside.output;
      needs_ = inside.result["smallest_budget"].get<std::uint64_t>();
      expect_equal(inside, whole, std::to_string(percent) + " %");
      EXPECT_LE(inside.result["resident_max_bytes"], budget) << percent;
      if (more.empty() && percent < 100) {
        EXPECT_GT(inside.result["bytes_out"], 0) << percent;
      }
      std::uint64_t again = 0;
      for (const auto& of_step : inside.result["step_ops_recomputed"]) again += of_step.get<std::uint64_t>();
      EXPECT_EQ(again > 0, more == "--recompute-all") << percent;
      if (again > 0)
        std::printf("%s at %d %%: %lu ops ran again\n", model.c_str(), percent, static_cast<unsigned long>(again));
      EXPECT_EQ(inside.result["step_phase"].back(), "planned") << percent << inside.output;
    }
  }

 private:
  std::uint64_t needs_ = 0;  // of the largest op
};

}  // namespace vedette::testing
