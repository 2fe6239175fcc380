// bench/gpu_probe on the simulated GPU. Every point gets its rows. A call that fails, hangs or kills the process costs
// its own rows alone. The driver's faults are noticed, and nothing is left behind or misused.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "gpu_probe/library.h"
#include "gpu_probe/range_allocator.h"
#include "gpu_probe/report.h"
#include "machine.h"

namespace vedette::gpu::gpu_probe_test {
namespace {

class ProbeTest : public ::testing::Test {
 protected:
  ProbeTest() {
    std::string path = (std::filesystem::temp_directory_path() / "gpu_probe_test-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~ProbeTest() override {
    ::unsetenv("SIMULATED_GPU");
    std::filesystem::remove_all(folder_);
  }

  // The rows of a quick run of `group` on the simulated GPU, with these words of its options.
  Json probe(const std::string& group, const std::string& options = "", std::vector<std::string> words = {}) {
    ::setenv("SIMULATED_GPU", ("leaks=1 " + options).c_str(), 1);
    return run(
        {"--only", group, "--libcuda", SIMULATED_DRIVER, "--libnvml", SIMULATED_NVML, "--libcupti", SIMULATED_CUPTI},
        words);
  }

  Json run(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
    const std::string json = folder_ / "probe.json";
    // Limits that end what hangs, and nothing that a busy machine is slow at.
    words.insert(words.begin(), {GPU_PROBE, "--quick", "--no-disk", "--json", json});
    words.insert(words.end(), more.begin(), more.end());
    if (std::find(words.begin(), words.end(), "--cell-limit") == words.end())
      words.insert(words.end(), {"--cell-limit", "200"});
    status_ = bench::run_child(words, folder_ / "said", 250).status;
    const Json document = Json::parse(std::ifstream(json));
    groups_ = document["groups"];
    return document["rows"];
  }

  // The simulated GPU ends a process for a misuse, a race, or memory that is left behind: another one goes on.
  void expect_nothing_left_behind() const {
    for (const Json& group : groups_) EXPECT_EQ(group["processes"], 1) << group;
  }

  std::string text_of(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / file).rdbuf();
    return text.str();
  }

  // Rows of this name and quantity whose setting has these values.
  static std::vector<Json> rows(const Json& all, const std::string& name, const std::string& quantity,
                                const Json& setting = {}) {
    std::vector<Json> found;
    for (const Json& row : all) {
      bool fits = row["name"] == name && row["quantity"] == quantity;
      for (const auto& [key, value] : setting.items())
        fits = fits && row["setting"].contains(key) && row["setting"][key] == value;
      if (fits) found.push_back(row);
    }
    return found;
  }

  static std::string refusals(const Json& all) {
    std::string text;
    for (const Json& row : all) {
      if (row.contains("refused")) text += row.dump() + "\n";
    }
    return text;
  }

  std::filesystem::path folder_;
  Json groups_;
  int status_ = -1;
};

TEST_F(ProbeTest, WithoutADriverItSaysSoAndMeasuresTheMachine) {
  const Json all = run({"--libcuda", "libno-driver-here.so.1"});
  EXPECT_EQ(status_, 0);
  EXPECT_NE(text_of("said").find("no driver (libno-driver-here.so.1)"), std::string::npos);
  EXPECT_TRUE(rows(all, "machine", "kernel").at(0).contains("value"));
  for (const char* group : {"device", "chunks", "remap_waited", "remap_queued", "host_frames", "copies",
                            "copies_by_node", "pinned", "registered", "managed", "fault_records", "energy"}) {
    const auto found = rows(all, group, "all");
    ASSERT_EQ(found.size(), 1u) << group;
    EXPECT_EQ(found[0]["refused"], "no driver (libno-driver-here.so.1)");
  }
}

TEST_F(ProbeTest, ADriverWithoutADeviceIsRefused) {
  EXPECT_EQ(rows(probe("device", "devices=0"), "device", "all").at(0)["refused"], "a driver, but no device");
}

TEST_F(ProbeTest, EveryPointOfTheGpuGetsItsRows) {
  const Json all =
      probe("device,chunks,remap_waited,host_frames,copies_by_node,pinned,registered,managed,fault_records,energy", "",
            {"--busy-ms", "100000"});
  EXPECT_EQ(status_, 0);
  EXPECT_EQ(refusals(all), "");
  for (const char* quantity : {"create", "map", "set_access", "unmap", "release"}) {
    EXPECT_EQ(rows(all, "chunk", quantity).size(), 8u);
    EXPECT_EQ(rows(all, "chunk", quantity).at(0)["n"], 3);
  }
  EXPECT_EQ(rows(all, "frame", "read", {{"location", "host"}}).size(), 1u);
  EXPECT_EQ(rows(all, "frame", "processor_reads", {{"location", "host"}}).at(0)["value"], "what the kernel wrote");
  for (const char* const quantity : {"to_and_from_the_host_s", "from_one_to_the_other", "over_both"})
    for (const bool shared : {false, true})
      EXPECT_EQ(rows(all, "frames_of_two_kinds", quantity, {{"location", "host"}, {"processor_has_access", shared}})
                    .at(0)["value"],
                "right")
          << quantity;
  EXPECT_EQ(rows(all, "registered", "same_address", {{"memory", "memfd"}, {"piece_mib", 2}}).at(0)["value"], true);
  EXPECT_EQ(rows(all, "copy_by_node", "rate", {{"direction", "both"}, {"mib", 2}, {"node", 0}}).size(), 1u);
  EXPECT_EQ(rows(all, "pinned_memory", "allocate", {{"piece_mib", 2}}).at(0)["n"], 3);
  EXPECT_EQ(rows(all, "fault", "one_by_one").size(), 1u);
  EXPECT_EQ(rows(all, "fault_records", "carries_address").at(0)["value"], true);
  EXPECT_EQ(rows(all, "fault_records", "carries_access").at(0)["value"], true);
  EXPECT_EQ(rows(all, "pageable_memory", "means").at(0)["value"], "neither HMM nor ATS");
  EXPECT_GE(rows(all, "energy", "step", {{"device", "busy"}}).at(0)["median"], 1);
  expect_nothing_left_behind();
}

TEST_F(ProbeTest, CopiesAreMeasuredEachWayAndBothAtOnceSingleAndBatched) {
  const Json all = probe("copies");
  EXPECT_EQ(refusals(all), "");
  EXPECT_EQ(rows(all, "copy", "rate").size(), 36u);  // 2 sizes, 3 directions, 3 ways, idle and busy
  EXPECT_EQ(rows(all, "copy", "rate", {{"direction", "both"}, {"how", "batch"}, {"device", "busy"}}).size(), 2u);
  expect_nothing_left_behind();
}

TEST_F(ProbeTest, AnOlderDriverHasNoBatchedCopyAndTheOtherCopiesGoOn) {
  const Json all = probe("copies", "batched_copies=0");
  for (const Json& row : rows(all, "copy", "rate", {{"how", "batch"}})) {
    EXPECT_EQ(row["refused"], "not in this library (cuMemcpyBatchAsync_v2)");
  }
  for (const Json& row : rows(all, "copy", "rate", {{"how", "queued"}})) EXPECT_TRUE(row.contains("median"));
}

TEST_F(ProbeTest, ACallThatTakesLongerShowsInItsOwnRow) {
  const Json all = probe("chunks", "slow=cuMemMap@*:30000", {"--busy-ms", "100000"});
  for (const Json& row : rows(all, "chunk", "map")) EXPECT_GE(row["p10"], 30000);
}

TEST_F(ProbeTest, ACallThatWaitsForTheDeviceIsTold) {
  const Json waiting = probe("chunks", "unmap_waits=1", {"--busy-ms", "25"});
  for (const Json& row : rows(waiting, "chunk", "waited")) EXPECT_EQ(row["value"]["unmap"], row["value"]["of"]);
  const Json not_waiting = probe("chunks", "", {"--busy-ms", "100000"});
  for (const Json& row : rows(not_waiting, "chunk", "waited")) EXPECT_EQ(row["value"]["unmap"], 0);
  EXPECT_EQ(rows(not_waiting, "chunk", "waited").size(), 4u);
}

TEST_F(ProbeTest, ARefusedFrameCostsItsOwnRows) {
  const Json all = probe("host_frames", "fail=cuMemCreate/host@*:801");
  for (const Json& row : rows(all, "frame", "read", {{"location", "host"}})) {
    EXPECT_EQ(row["refused"], "CUDA_ERROR_NOT_SUPPORTED (cuMemCreate)");
  }
  EXPECT_EQ(rows(all, "frame", "processor_reads", {{"location", "host"}}).at(0)["refused"],
            "CUDA_ERROR_NOT_SUPPORTED (cuMemCreate)");
  EXPECT_TRUE(rows(all, "frame", "read", {{"location", "host_numa:0"}}).at(0).contains("median"));
  EXPECT_TRUE(rows(all, "pinned", "read").at(0).contains("median"));
  expect_nothing_left_behind();
}

// The first cell's chunk is unmapped by another call then: a range with mappings cannot be given back.
TEST_F(ProbeTest, AnUnmapThatIsRefusedLeavesNothingMapped) {
  const Json all = probe("chunks", "fail=cuMemUnmap@1:1");
  const auto unmaps = rows(all, "chunk", "unmap"), maps = rows(all, "chunk", "map");
  ASSERT_EQ(unmaps.size(), 8u);
  EXPECT_EQ(unmaps[0]["refused"], "CUDA_ERROR_INVALID_VALUE (cuMemUnmap)");
  EXPECT_EQ(maps[0]["n"], 1);
  for (std::size_t i = 1; i < unmaps.size(); ++i) EXPECT_EQ(unmaps[i]["n"], 3) << unmaps[i];
  expect_nothing_left_behind();
}

TEST_F(ProbeTest, ACallThatHangsCostsItsOwnRowsAndTheOthersGoOn) {
  const Json all = probe("energy", "hang=nvmlSystemGetDriverVersion@*", {"--cell-limit", "15"});
  EXPECT_EQ(rows(all, "driver", "all").at(0)["refused"], "timeout (15 s)");
  EXPECT_EQ(rows(all, "power", "power").at(0)["median"], 100000);
  EXPECT_TRUE(rows(all, "driver", "version").empty());
}

TEST_F(ProbeTest, ACallThatKillsTheProcessCostsItsOwnRows) {
  const Json all = probe("host_frames", "crash=cuMemCreate/host_numa@*");
  for (const Json& row : rows(all, "frame", "all")) EXPECT_EQ(row["refused"], "signal 9");
  EXPECT_TRUE(rows(all, "frame", "read", {{"location", "device"}}).at(0).contains("median"));
  EXPECT_TRUE(rows(all, "pinned", "read").at(0).contains("median"));
}

TEST_F(ProbeTest, ADriverThatDiesAtOnceIsToldOnceAGroup) {
  const Json all = probe("chunks,energy", "crash=cuInit@*");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["refused"], "signal 9");
  EXPECT_EQ(all[1]["name"], "energy");
}

// A chunk goes away on purpose while a kernel that uses it is queued.
TEST_F(ProbeTest, ARemapBetweenTwoKernelsIsRightOrToldToBeWrong) {
  const auto outcomes = [&](const std::string& options) {
    const Json all = probe("remap_waited,remap_queued", "races=0 " + options);
    std::vector<Json> found;
    for (const Json& row : rows(all, "remap_between", "outcomes"))
      found.push_back(row.contains("value") ? row["value"] : row["refused"]);
    return found;
  };
  for (const Json& each : outcomes("")) EXPECT_EQ(each["right"], 3) << each;
  for (const Json& each : outcomes("stale_maps=1")) EXPECT_EQ(each["wrong_bytes"], 3) << each;
}

// The word that kernel 2 waits for is set by another thread then, or this would never end.
TEST_F(ProbeTest, AnUnmapThatWaitsForAQueuedKernelIsToldAndEnds) {
  const Json all = probe("remap_queued", "races=0 unmap_waits=1");
  EXPECT_EQ(rows(all, "remap_between", "outcomes").at(0)["value"]["waited_for_the_device"], 3);
  EXPECT_GE(rows(all, "remap_between", "exchange").at(0)["p10"], 1'500'000);
}

TEST_F(ProbeTest, NeverMoreManagedMemoryThanIsFree) {
  const Json all = probe("managed,fault_records", "memory_mib=8 crash=cuMemAllocManaged@*");
  const char* const why = "less than four times as much device memory is free";
  EXPECT_EQ(rows(all, "fault", "one_by_one").at(0)["refused"], why);
  EXPECT_EQ(rows(all, "fault_records", "carries_address").at(0)["refused"], why);
}

TEST_F(ProbeTest, FaultRecordsWithoutAccessTypeAreTold) {
  const Json all = probe("fault_records", "fault_access=0");
  EXPECT_EQ(rows(all, "fault_records", "carries_address").at(0)["value"], true);
  EXPECT_EQ(rows(all, "fault_records", "carries_access").at(0)["value"], false);
}

TEST_F(ProbeTest, AnotherProfilersHoldOnCuptiAndLostRecordsAreTold) {
  const auto refusal = [&](const std::string& options) -> std::string {
    return rows(probe("fault_records", options), "fault_records", "carries_address").at(0)["refused"];
  };
  EXPECT_THAT(refusal("fail=cuptiActivityEnable@*:39"),
              ::testing::HasSubstr("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (cuptiActivityEnable); another"));
  EXPECT_THAT(refusal("fault_records=1"), ::testing::HasSubstr("CUPTI lost"));
}

TEST_F(ProbeTest, HmmAndAtsAreToldApart) {
  EXPECT_EQ(rows(probe("managed", "pageable=1"), "pageable_memory", "means").at(0)["value"], "HMM");
  EXPECT_EQ(rows(probe("managed", "pageable=1 page_tables=1"), "pageable_memory", "means").at(0)["value"], "ATS");
}

TEST_F(ProbeTest, UnreadableEnergyIsToldAndThePowerStillRead) {
  const Json all = probe("energy", "fail=nvmlDeviceGetTotalEnergyConsumption@*:3");
  for (const Json& row : rows(all, "energy", "step")) {
    EXPECT_EQ(row["refused"], "NVML error 3, Not Supported (nvmlDeviceGetTotalEnergyConsumption)");
  }
  EXPECT_EQ(rows(all, "power", "power").at(0)["median"], 100000);
}

// In this process.
TEST(RangeAllocator, GivesWholeChunksOfTheRangeAndReusesHoles) {
  const Gpu gpu(SIMULATED_DRIVER);
  RangeAllocator allocator(gpu, 32 * mebibyte);
  auto* const first = static_cast<std::uint32_t*>(allocator.allocate(3 * mebibyte));
  auto* const second = static_cast<std::uint32_t*>(allocator.allocate(1));
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(allocator.holds(reinterpret_cast<Address>(first)) && allocator.holds(reinterpret_cast<Address>(second)));
  EXPECT_EQ(second, first + mebibyte);  // 4 MiB on: the first has two chunks
  const Stream stream(gpu);             // a kernel writes there: mapped, with access
  launch(gpu, gpu.kernels.write, {}, stream, reinterpret_cast<Address>(first), std::uint64_t{6 * mebibyte / 16},
         std::uint32_t{7});
  stream.wait();
  allocator.free(first);
  EXPECT_EQ(allocator.allocate(2 * mebibyte), first);
  EXPECT_EQ(allocator.counts().bytes, 4 * mebibyte);
  EXPECT_EQ(allocator.counts().most_bytes, 6 * mebibyte);
  EXPECT_EQ(allocator.allocate(64 * mebibyte), nullptr);
  EXPECT_EQ(allocator.last_refusal(), "the range is full");
}

TEST(RangeAllocator, ServesOtherThreadsAndCountsThem) {
  const Gpu gpu(SIMULATED_DRIVER);
  RangeAllocator allocator(gpu, 32 * mebibyte);
  std::thread([&] { allocator.free(allocator.allocate(mebibyte)); }).join();
  EXPECT_EQ(allocator.counts().by_other_threads, 1u);
  EXPECT_EQ(allocator.counts().bytes, 0u);
  EXPECT_EQ(allocator.last_refusal(), "");
}

TEST(Spread, IsLinearBetweenNeighbours) {
  EXPECT_EQ(spread({}), Spread{});
  EXPECT_EQ(spread({7}), (Spread{.median = 7, .p10 = 7, .p90 = 7, .n = 1}));
  EXPECT_EQ(spread({10, 0}), (Spread{.median = 5, .p10 = 1, .p90 = 9, .n = 2}));
}

TEST(Table, HasAHeadingForEachPointAndALineForEachRow) {
  Recorder recorder(Recorder::Options{});
  recorder.measure(1, "chunk", {{"chunk_mib", 2}}, {{"map", "us"}, {"unmap", "us"}}, [](Cell& cell) {
    for (const double us : {1.0, 2.0, 3.0}) cell.sample("map", us);
    throw Refused("CUDA_ERROR_UNKNOWN (cuMemUnmap)");
  });
  const std::string text = table(recorder.rows());
  EXPECT_NE(text.find("point 1"), text.npos);
  EXPECT_NE(text.find("2 us "), text.npos);
  EXPECT_NE(text.find("refused: CUDA_ERROR_UNKNOWN (cuMemUnmap)"), text.npos);
}

}  // namespace
}  // namespace vedette::gpu::gpu_probe_test
