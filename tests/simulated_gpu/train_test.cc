// examples/train on libtorch's CUDA device without a GPU: losses equal to the CPU's bit by bit, no race, the device's
// memory as the limit, and sentences where something is missing.
#include "profiler/recording.h"
#include "simulated_gpu/training_process.h"
#include "support/whole_run.h"

namespace vedette::testing::train_test {
namespace {

TEST_F(SimulatedTraining, MlpHasTheCpusBits) { expect_equal_bits("mlp"); }
TEST_F(SimulatedTraining, ResNetHasTheCpusBits) { expect_equal_bits("resnet18"); }
TEST_F(SimulatedTraining, GptHasTheCpusBits) { expect_equal_bits("gpt"); }
TEST_F(SimulatedTraining, BertHasTheCpusBits) { expect_equal_bits("bert"); }

TEST_F(SimulatedGuard, MlpHasThePlainRunsBits) { expect_equal_bits_at("mlp", {100, 50}); }
TEST_F(SimulatedGuard, ResNetHasThePlainRunsBits) { expect_equal_bits_at("resnet18", {50, 20}); }
TEST_F(SimulatedGuard, GptHasThePlainRunsBits) { expect_equal_bits_at("gpt", {50, 30}); }
TEST_F(SimulatedGuard, DcganHasThePlainRunsBits) { expect_equal_bits_at("dcgan", {50}); }
TEST_F(SimulatedGuard, GptHasThePlainRunsBitsOnASlowLink) {
  expect_equal_bits_at("gpt", {50}, "gbs=0.2 latency_us=100 one_engine=1 copies_wait=1 unmap_waits=1");
}
TEST_F(SimulatedGuard, GptHasThePlainRunsBitsOverPinnedMemoryAndADisk) {
  const std::string words = "--small --steps 6 --model gpt";
  const Training whole = plain(words, "cuda");
  const auto budget = static_cast<std::uint64_t>(whole.result["peak_bytes"].get<double>() / 2);
  const Training inside = train(
      words + " --slow host:1MiB+nvme:" + ::testing::TempDir() + " --fast-memory " + std::to_string(budget), "cuda");
  ASSERT_EQ(inside.status, 0) << inside.output;
  EXPECT_EQ(inside.result["losses"], whole.result["losses"]);
  EXPECT_GT(inside.result["bytes_out"], 0);
  EXPECT_THAT(inside.result["mechanism"].get<std::string>(), ::testing::HasSubstr("a thread for the disk"));
}
TEST_F(SimulatedGuard, AStepInBackwardHasTheBitsOfTheLoopAsItIs) {
  const std::string words = "--small --steps 6 --model gpt";
  const Training whole = plain(words, "cuda");
  const auto budget = static_cast<std::uint64_t>(whole.result["peak_bytes"].get<double>() / 2);
  const Training inside = train(words + " --step-in-backward --fast-memory " + std::to_string(budget), "cuda");
  ASSERT_EQ(inside.status, 0) << inside.output;
  expect_equal(inside, whole, "with steps in backward");
}
// By the stand-in for NVML, whose GPU takes 100 W.
TEST_F(SimulatedGuard, ARecordingHasTheEnergyOfItsSteps) {
  const std::string path = ::testing::TempDir() + "simulated_energy.vedette", words = "--small --steps 6 --model mlp ";
  const Training gpu = train(words + "--fast-memory 8MiB --record " + path, "cuda");
  ASSERT_EQ(gpu.status, 0) << gpu.output;
  auto recording = Recording::open(path).value();
  const EnergyTotal energy = recording.energy().value();
  EXPECT_EQ(energy.steps, 6u);
  EXPECT_EQ(energy.device, "gpu:0");
  Statement ask(recording.database(), "SELECT SUM(millijoules) * 1000000 / SUM(watched_ns) FROM step_energy");
  ask.ask();
  ASSERT_TRUE(ask.row());
  EXPECT_NEAR(static_cast<double>(ask.integer(0)), 100, 5) << "watts";
  const Training cpu = train(words + "--fast-memory 16MiB --slow host --record " + path, "cpu");
  ASSERT_EQ(cpu.status, 0) << cpu.output;
  EXPECT_EQ(Recording::open(path).value().energy().value().steps, 0u);
  std::filesystem::remove(path);
}
TEST_F(SimulatedGuard, MixedPrecisionHasThePlainRunsBits) {
  for (const char* const model : {"gpt", "dcgan"}) {
    const std::string words = std::string("--small --steps 10 --amp --model ") + model;
    const Training whole = plain(words, "cuda");
    ASSERT_EQ(whole.status, 0) << whole.output;
    EXPECT_EQ(whole.result["amp"], true);
    EXPECT_EQ(whole.result["loss_scale"], 65536);
    EXPECT_NE(plain(std::string("--small --steps 10 --model ") + model, "cuda").result["losses"],
              whole.result["losses"])
        << "nothing ran in bf16";
    for (const int percent : {50, 35}) {
      if (!whole_run() && (percent == 50) != (model == std::string_view("gpt"))) continue;
      const auto budget = static_cast<std::uint64_t>(whole.result["peak_bytes"].get<double>() * percent / 100);
      const Training inside = train(words + " --fast-memory " + std::to_string(budget), "cuda");
      ASSERT_EQ(inside.status, 0) << inside.output;
      expect_equal(inside, whole, model);
      EXPECT_EQ(inside.result["step_phase"].back(), "planned");
      EXPECT_GT(inside.result["bytes_out"], 0);
    }
  }
}
// As on a GPU, where two runs have equal bits only if they ask for them. The script sets a workspace for cuBLAS.
TEST_F(SimulatedTraining, AComparisonAsksForSumsOfOneOrder) {
  const std::string words = "--small --steps 4 --model mlp";
  const Training one = plain(words, "cuda", "sums_vary=1"), other = plain(words, "cuda", "sums_vary=1");
  EXPECT_NE(one.result["state"], other.result["state"]) << "nothing asks for it";
  const Training both = train(words + " --compare --fast-memory 8MiB", "cuda", "sums_vary=1");
  ASSERT_EQ(both.status, 0) << both.output;
  EXPECT_EQ(both.result["losses_equal"], true);
  EXPECT_THAT(both.output, ::testing::HasSubstr("both runs: deterministic algorithms"));
}
TEST_F(SimulatedGuard, ATablesHotRowsHaveMemoryOfTheirOwn) {
  const std::string words = "--small --steps 6 --model recommender";
  const Training whole = plain(words, "cuda");
  const Training inside = train(words + " --fast-memory 8MiB --table-memory 2MiB", "cuda");
  ASSERT_EQ(inside.status, 0) << inside.output;
  expect_equal(inside, whole, "with hot rows");
}
TEST_F(SimulatedTraining, AnotherSeedHasAnotherState) {
  const std::string words = "--small --steps 2 --model resnet18";
  const Training one = plain(words, "cuda"), other = plain(words + " --seed 2", "cuda");
  for (const auto& [name, digest] : one.result["state"].items()) {
    const bool same = name.ends_with("num_batches_tracked") || name.ends_with(".step");  // counts
    EXPECT_EQ(other.result["state"].value(name, "") == digest, same) << name;
  }
}
TEST_F(SimulatedGuard, AnOperatorThatNeedsMoreThanTheBudgetRunsWithMemoryBesideIt) {
  // Adam's addcdiv_ on the largest weight alone: three tensors of 784 KiB.
  const std::string words = "--small --steps 4 --model mlp";
  const Training run = train(words + " --fast-memory 1800KiB", "cuda");
  ASSERT_EQ(run.status, 0) << run.output;
  expect_equal(run, plain(words, "cuda"), "1800 KiB");
  EXPECT_THAT(run.output, ::testing::HasSubstr("beside the budget"));
}
// All of the GPU's memory is managed memory then, also in the steps by a plan.
TEST_F(SimulatedGuard, TrainsToTheSameBitsWhereCuptiSeesPages) {
  expect_equal_bits_at("mlp", {100, 50}, "", "--tracker cupti");
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
  expect_equal(slow, fast, "a slow link");
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
}  // namespace vedette::testing::train_test
