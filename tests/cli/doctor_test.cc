// `vedette doctor` as a user meets it: the program is run, its output read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/command.h"
#include "support/nobody.h"

namespace vedette::doctor_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using vedette::testing::Answer;
using vedette::testing::run;

class Doctor : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "vedette-doctor-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
    fs::permissions(directory_, fs::perms::all);
    // A copy, because another user may not reach the build folder.
    fs::copy_file(VEDETTE_CLI, directory_ / "vedette");
    fs::permissions(directory_ / "vedette", fs::perms::all);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string doctor(const std::string& options) const {
    return (directory_ / "vedette").string() + " doctor --slow " + directory_.string() + " " + options;
  }
  fs::path directory_;
};

TEST_F(Doctor, NamesAMechanismForMemoryTrackingAndTransfers) {
  const Answer answer = run(doctor("--no-disk --json"));
  ASSERT_EQ(answer.status, 0) << answer.text;
  const auto json = nlohmann::json::parse(answer.text);
  for (const char* use : {"memory", "tracking", "transfers"}) {
    EXPECT_TRUE(json.at("uses").at(use).at("mechanism").is_string()) << use;
  }
  EXPECT_GT(json.at("memory").at("bytes").get<std::uint64_t>(), 0u);
  for (const auto& missing : json.at("missing")) {
    EXPECT_FALSE(missing.at("unlocks").get<std::string>().empty());
    EXPECT_FALSE(missing.at("how").get<std::string>().empty());
  }
}

TEST_F(Doctor, FitsInATerminalAndSaysTheSameAsTheJson) {
  const Answer text = run(doctor("--no-disk"));
  ASSERT_EQ(text.status, 0) << text.text;
  std::istringstream lines(text.text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  const auto json = nlohmann::json::parse(run(doctor("--no-disk --json")).text);
  EXPECT_THAT(text.text, HasSubstr(json.at("kernel").get<std::string>()));
  EXPECT_THAT(text.text, HasSubstr(json.at("uses").at("memory").at("mechanism").get<std::string>()));
  EXPECT_EQ(json.at("missing").empty(), text.text.find("Nothing is missing") != std::string::npos);
}

TEST_F(Doctor, TellsAGpusMemoryItsCopiesAndItsPower) {
  const std::string simulated = "LD_LIBRARY_PATH=" SIMULATED_LIBRARIES " SIMULATED_GPU='memory_mib=512 gbs=1";
  const auto told = [&](const std::string& options) {
    const Answer answer = run(simulated + options + "' " + doctor("--no-disk --json"));
    EXPECT_EQ(answer.status, 0) << answer.text;
    return nlohmann::json::parse(answer.text).at("gpus").at(0);
  };
  const auto gpu = told("");
  EXPECT_EQ(gpu.at("name"), "simulated GPU");
  EXPECT_EQ(gpu.at("bytes"), std::uint64_t{512} << 20);
  EXPECT_EQ(gpu.at("free_bytes"), std::uint64_t{512} << 20);
  EXPECT_EQ(gpu.at("watts"), 100);
  for (const char* const way : {"in_bytes_per_s", "out_bytes_per_s"}) {
    EXPECT_LE(gpu.at(way).get<double>(), 1.05e9) << way;
    EXPECT_GT(gpu.at(way).get<double>(), 1e8) << way;
  }
  const auto one_engine = told(" one_engine=1");
  EXPECT_EQ(one_engine.at("one_bus"), true) << "one engine serves both directions: each halves beside the other";
  EXPECT_LE(one_engine.at("both_bytes_per_s").get<double>(), 1.05e9);
  const auto unpinned = told(" fail=cuMemHostRegister_v2@1:801 fail=cuMemHostAlloc@1:2");
  EXPECT_THAT(unpinned.at("why_no_link").get<std::string>(), HasSubstr("pinning"));
  const Answer text = run(simulated + "' " + doctor("--no-disk"));
  EXPECT_THAT(text.text, HasSubstr("fast = \"gpu:0\""));
  EXPECT_THAT(text.text, Not(HasSubstr("trains on the CPU")));
}

TEST_F(Doctor, SaysWhyThereIsNoGpu) {
  const Answer answer = run(doctor("--no-disk --json"));
  ASSERT_EQ(answer.status, 0) << answer.text;
  const auto json = nlohmann::json::parse(answer.text);
  EXPECT_EQ(json.at("gpus").empty(), json.contains("why_no_gpu"));
}

TEST_F(Doctor, MeasuresTheDiskAndLeavesNothingThere) {
  const fs::path machine = directory_ / "machine.json";
  const Answer answer = run(doctor("--json --machine " + machine.string()));
  ASSERT_EQ(answer.status, 0) << answer.text;
  const auto told = nlohmann::json::parse(answer.text);
  const auto disk = told.at("slow_directory");
  ASSERT_TRUE(disk.contains("write_bytes_per_s")) << disk;
  EXPECT_GT(disk.at("write_bytes_per_s").get<std::uint64_t>(), 0u);
  EXPECT_GT(disk.at("read_bytes_per_s").get<std::uint64_t>(), 0u);
  EXPECT_GT(disk.at("both_bytes_per_s").get<std::uint64_t>(), 0u);
  EXPECT_TRUE(disk.at("one_bus").is_boolean());
  EXPECT_THAT(disk.at("reads_in_flight").get<int>(), ::testing::AnyOf(2, 4, 6));
  EXPECT_GT(told.at("fault_ns").get<std::int64_t>(), 0);
  EXPECT_LE(told.at("interference_percent").get<int>(), 100);
  const auto written = nlohmann::json::parse(std::ifstream(machine));
  EXPECT_EQ(written.at("fault_ns"), told.at("fault_ns"));
  EXPECT_EQ(written.at("interference_percent"), told.at("interference_percent"));
  EXPECT_EQ(written.at("host_memory").at("tier"), "dram");
  EXPECT_EQ(written.at("host_memory").at("bytes_per_s"), told.at("memory").at("bytes_per_s"));
  EXPECT_GT(told.at("memory").at("bytes_per_s").get<std::uint64_t>(), 500'000'000u);
  const auto links = written.at("links");
  EXPECT_EQ(links.at(0).at("latency_ns"), disk.at("latency_ns"));
  EXPECT_EQ(links.at(0).contains("bus"), disk.at("one_bus").get<bool>());
  EXPECT_GT(links.at(0).at("bytes_per_s"), 0u);
  EXPECT_LE(links.at(0).at("bytes_per_s"), disk.at("read_bytes_per_s"));
  EXPECT_GT(links.at(1).at("bytes_per_s"), 0u);
  EXPECT_LE(links.at(1).at("bytes_per_s"), disk.at("write_bytes_per_s"));
  fs::remove(machine);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1)
      << "only the program itself";
}

TEST_F(Doctor, MeasuresByTransfersOfTheChunkThatSessionsWillHave) {
  const fs::path machine = directory_ / "machine.json";
  const Answer answer = run(doctor("--json --chunk 64KiB --machine " + machine.string()));
  ASSERT_EQ(answer.status, 0) << answer.text;
  EXPECT_EQ(nlohmann::json::parse(answer.text).at("slow_directory").at("chunk_bytes"), 64 << 10);
  const auto told = nlohmann::json::parse(std::ifstream(machine));
  EXPECT_EQ(told.at("granule_bytes"), 64 << 10);
  EXPECT_GT(told.at("remap_ns"), 0);
  const Answer refused = run(doctor("--chunk 100000 2>&1 >/dev/null"));
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.text, "vedette: --chunk is a power of two between 16KiB and 64MiB\n");
}

TEST_F(Doctor, SaysInOneSentenceWhyItCannotUseADirectory) {
  const Answer answer = run(VEDETTE_CLI " doctor --no-disk --slow /nonexistent 2>&1 >/dev/null");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.text, HasSubstr("No such file or directory"));
  EXPECT_EQ(std::count(answer.text.begin(), answer.text.end(), '\n'), 1) << answer.text;
}

TEST_F(Doctor, WorksWithoutPrivilegesAndWithLittleLockedMemory) {
  if (!vedette::testing::nobody_finds_files()) GTEST_SKIP() << vedette::testing::no_files_for_nobody;
  std::string as_nobody = "prlimit --memlock=65536:65536 ";
  if (::geteuid() == 0) as_nobody += "setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all ";
  const Answer answer = run(as_nobody + doctor("--no-disk --json"));
  ASSERT_EQ(answer.status, 0) << answer.text;
  const auto json = nlohmann::json::parse(answer.text);
  EXPECT_EQ(json.at("locked_memory").at("limit_bytes"), 65536);
  EXPECT_FALSE(json.at("registered_buffers").at("works").get<bool>());
}

// What doctor measures of the disk is what plans are made for and replayed on: memory over this directory's disk.
TEST_F(Doctor, GivesTheLaboratoryThisMachine) {
  std::ofstream(directory_ / "step.json")
      << R"({"format":"vedette-trace-1","name":"two","source":"test","device":"none","notes":[],
"tensors":[{"id":0,"name":"w","bytes":4000000,"kind":"weight","persistent":true},{"id":1,"name":"x","bytes":4000000,"kind":"weight","persistent":true}],
"ops":[{"id":0,"name":"first","layer":null,"phase":"forward","ns":5,"reads":[0],"writes":[0],"workspace_bytes":0},
{"id":1,"name":"second","layer":null,"phase":"forward","ns":6,"reads":[1],"writes":[1],"workspace_bytes":0}]})";
  const std::string replay = (directory_ / "vedette").string() + " replay " + (directory_ / "step.json").string() +
                             " --machine this-machine --fast 5000000 --slow ";
  const Answer answer = run(replay + directory_.string() + " 2>&1");
  if (answer.status != 0 && answer.text.find("No space left") != std::string::npos)
    GTEST_SKIP() << "256 MiB in " << fs::temp_directory_path() << " are missing";
  ASSERT_EQ(answer.status, 0) << answer.text;
  EXPECT_THAT(answer.text, ::testing::AllOf(HasSubstr("link           disk to dram: busy"),
                                            HasSubstr("link           dram to disk: busy"), HasSubstr(" MiB in, "),
                                            ::testing::Not(HasSubstr("disk to dram: busy 0.0 %"))));
  const Answer nowhere = run(replay + "/nowhere/at/all 2>&1");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.text, ::testing::AllOf(::testing::StartsWith("vedette: "), HasSubstr("/nowhere/at/all")));
  EXPECT_EQ(std::count(nowhere.text.begin(), nowhere.text.end(), '\n'), 1) << nowhere.text;
}

}  // namespace
}  // namespace vedette::doctor_test
