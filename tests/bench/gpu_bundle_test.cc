// The folder that bench/gpu_hour/bundle.sh fills, unpacked elsewhere. It brings every library that a bare machine lacks
// and fits into what can be carried there. Its calls `tier` and `table` run to their ends on the simulated GPU.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace vedette::gpu_bundle_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Bundle : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
#ifdef SIMULATED_KERNELS
    folder() = fs::path(::testing::TempDir()) / ("gpu_bundle_test-" + std::to_string(::getpid()));
    fs::create_directories(folder() / "there");
    // Carried as one file, and not unpacked where it was made.
    ASSERT_EQ(run("BUILT=1 " VEDETTE_SOURCE "/bench/gpu_hour/bundle.sh " + (folder() / "here").string() +
                  " " VEDETTE_BUILD " && tar cz -C " + (folder() / "here").string() + " . >" +
                  (folder() / "bundle.tgz").string() + " && tar xz -C " + (folder() / "there").string() + " <" +
                  (folder() / "bundle.tgz").string()),
              0)
        << text_of(folder() / "said");
    fs::remove_all(folder() / "here");
#endif
  }
  static void TearDownTestSuite() {
    if (!folder().empty()) fs::remove_all(folder());
  }
  void SetUp() override {
#ifndef SIMULATED_KERNELS
    GTEST_SKIP() << "libtorch_cuda.so or CUDA's headers are missing: install a libtorch for CUDA (scripts/setup.sh)";
#endif
  }

  static fs::path& folder() {
    static fs::path path;
    return path;
  }
  static int run(const std::string& command) {
    const int status = std::system(("{ " + command + "; } >>" + (folder() / "said").string() + " 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static fs::path out() { return folder() / "out"; }
  // A call of hour.sh: the programs' own lines, by name, with their status.
  static std::map<std::string, int> hour(const std::string& what) {
    const fs::path said = folder() / ("said_" + what);
    EXPECT_EQ(run("cd / && WORDS=--quick UNDER=" VEDETTE_SOURCE
                  "/scripts/with_simulated_gpu VEDETTE_BUILD=" VEDETTE_BUILD " OMP_NUM_THREADS=2 " +
                  (folder() / "there/hour.sh").string() + " " + out().string() + " " + what + " >" + said.string()),
              0);
    std::map<std::string, int> statuses;
    const std::regex line("(.*): status ([0-9]+)(, [0-9]+ s)?");
    std::ifstream file(said);
    std::smatch found;
    for (std::string each; std::getline(file, each);)
      if (std::regex_match(each, found, line)) statuses[found[1]] = std::stoi(found[2]);
    return statuses;
  }
};

TEST_F(Bundle, BringsWhatABareMachineLacksInWhatCanBeCarried) {
  const fs::path there = folder() / "there";
  EXPECT_LT(fs::file_size(folder() / "bundle.tgz"), std::uintmax_t{40} << 20) << "64 MiB travel, the tree included";
  const std::regex everywhere(
      "(linux-vdso|/lib64/ld-linux|ld-linux|lib(c|m|dl|pthread|rt|util|gcc_s|stdc\\+\\+))[.-].*|"
      "lib(torch|c10|cuda|cudart|cupti|gomp|cu[a-zA-Z]*|nv[a-zA-Z_]*|nccl|cusparseLt)[._-].*");
  for (const char* const name : {"train", "gpu_table", "place_cost", "vedette", "gpu_probe", "gpu_probe_torch",
                                 "libvedette_torch_cuda.so", "libgpu_table_managed.so"}) {
    ASSERT_TRUE(fs::exists(there / name)) << name;
    ASSERT_EQ(run("ldd " + (there / name).string() + " >" + (folder() / "needs").string()), 0) << name;
    std::ifstream needs(folder() / "needs");
    for (std::string line; std::getline(needs, line);) {
      std::istringstream words(line);
      std::string library;
      words >> library;
      const bool brought = fs::exists(there / "lib" / library) || fs::exists(there / library);
      EXPECT_TRUE(brought || std::regex_match(library, everywhere)) << name << " needs " << library;
    }
  }
}

TEST_F(Bundle, TheTierTrainsBitForBitAtEveryShare) {
  const auto statuses = hour("tier");
  const std::string said = text_of(out() / "tier.txt");
  EXPECT_EQ(statuses.size(), 13u) << said;
  for (const auto& [name, status] : statuses) EXPECT_EQ(status, 0) << name << "\n" << said;
  std::ifstream results(out() / "tier.jsonl");
  int compared = 0;
  for (std::string line; std::getline(results, line); ++compared) {
    const Json row = Json::parse(line);
    EXPECT_EQ(row["result"]["losses_equal"], true) << line;
    EXPECT_EQ(row["result"]["first_difference"], "") << line;
    EXPECT_GT(row["result"]["step_joules_guarded"], 0) << line;
  }
  EXPECT_EQ(compared, 12);
  EXPECT_FALSE(fs::exists(out() / "part.json"));
}

TEST_F(Bundle, TheTableIsWrittenAfterEachCellAndGoesOnWhereItStopped) {
  ::setenv("TABLE", "--only plain --only save_on_cpu", 1);
  EXPECT_EQ(hour("table")["gpu_table"], 0) << text_of(out() / "table.txt");
  const Json first = Json::parse(text_of(out() / "gpu_table.json"));
  ASSERT_EQ(first["cells"].size(), 2u);
  ::setenv("TABLE", "--only plain --only save_on_cpu --only checkpoint", 1);
  EXPECT_EQ(hour("table")["gpu_table"], 0) << text_of(out() / "table.txt");
  const Json second = Json::parse(text_of(out() / "gpu_table.json"));
  ASSERT_EQ(second["cells"].size(), 3u);
  EXPECT_EQ(second["cells"][0], first["cells"][0]) << "the plain cell ran again";
  EXPECT_EQ(second["cells"][1], first["cells"][1]);
  EXPECT_EQ(second["cells"][2]["cell"], "checkpoint");
}

TEST_F(Bundle, OffloadOfFsdp2IsACell) {
  fs::remove(out() / "gpu_table.json");
  ::setenv("TABLE", "--only plain --only fsdp2_offload", 1);
  ::setenv("VEDETTE_PYTHON", TORCH_PYTHON, 1);
  EXPECT_EQ(hour("table")["gpu_table"], 0) << text_of(out() / "table.txt");
  ::unsetenv("VEDETTE_PYTHON");
  const Json told = Json::parse(text_of(out() / "gpu_table.json"));
  ASSERT_GE(told["cells"].size(), 2u);
  const Json &plain = told["cells"][0], &offload = told["cells"][1];
  EXPECT_EQ(offload["way"], "fsdp2_offload");
  EXPECT_EQ(offload["losses"].size(), plain["losses"].size());
  EXPECT_GT(offload["peak_bytes"], 0);
  EXPECT_LT(offload["peak_bytes"], plain["peak_bytes"]) << "the moments of Adam lie on the host";
}

TEST_F(Bundle, ManagedMemoryHasTheBudgetsOfTheGuard) {
  fs::remove(out() / "gpu_table.json");
  ::setenv("TABLE", "--only plain --only managed", 1);
  EXPECT_EQ(hour("table")["gpu_table"], 0) << text_of(out() / "table.txt");
  const Json told = Json::parse(text_of(out() / "gpu_table.json"));
  EXPECT_EQ(told["rehearsal"], true);
  ASSERT_EQ(told["cells"].size(), 4u);
  const Json& plain = told["cells"][0];
  std::uint64_t least = ~std::uint64_t{0};
  for (std::size_t i = 1; i < 4; ++i) {
    const Json& cell = told["cells"][i];
    EXPECT_EQ(cell["way"], "managed");
    EXPECT_LT(cell["budget"], least);
    least = cell["budget"];
    // A plain cell has as many steps: the first ones warm up.
    EXPECT_EQ(cell["losses"], plain["losses"]) << cell["cell"];
    EXPECT_EQ(cell["peak_bytes"], plain["peak_bytes"]) << "not all tensors were libtorch's";
    EXPECT_GE(cell["segment_bytes"], plain["peak_bytes"]) << "not all tensors are in managed memory";
    EXPECT_GT(cell["prefetches"], 0);
    EXPECT_EQ(cell["prefetches_refused"], 0);
    constexpr std::uint64_t device = std::uint64_t{1} << 30, block = 2 << 20;
    EXPECT_LE(cell["held_back_bytes"].get<std::uint64_t>() + least, device);
    EXPECT_GT(cell["held_back_bytes"].get<std::uint64_t>() + least, device - 2 * block)
        << "more than the budget is free";
  }
}

TEST_F(Bundle, ADeviceWithoutManagedMemoryHasASentenceInTheTable) {
  fs::remove(out() / "gpu_table.json");
  ::setenv("TABLE", "--only managed", 1);
  ::setenv("SIMULATED_GPU", "managed=0", 1);
  EXPECT_EQ(hour("table")["gpu_table"], 1);
  ::unsetenv("SIMULATED_GPU");
  EXPECT_THAT(text_of(out() / "table.txt"),
              ::testing::HasSubstr("this device has no managed memory that it takes page by page"));
}

TEST_F(Bundle, BudgetsAreMeasuredByAGuardWhereThePlainRunDoesNotFit) {
  fs::remove(out() / "gpu_table.json");
  ::setenv("TABLE", "--only plain --only guard,", 1);
  ::setenv("SIMULATED_GPU", "memory_mib=34", 1);
  EXPECT_EQ(hour("table")["gpu_table"], 1) << "the plain cell has no figures";
  ::unsetenv("SIMULATED_GPU");
  const std::string said = text_of(out() / "table.txt");
  EXPECT_THAT(said, ::testing::HasSubstr("the plain cell has no peak (CUDA out of memory"));
  std::vector<std::string> cells;
  const Json told = Json::parse(text_of(out() / "gpu_table.json"));
  for (const Json& cell : told["cells"]) cells.push_back(cell["cell"]);
  EXPECT_THAT(cells, ::testing::IsSupersetOf({"guard, all memory", "guard, 50 %"})) << said;
}

}  // namespace
}  // namespace vedette::gpu_bundle_test
