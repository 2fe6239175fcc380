// `vedette races` on programs with the bugs of public reports (races/, each says which): their unordered pair is told
// with the lines of both accesses, whatever the timing, and their repaired forms are silent.
//
// The lines that have to be told are marked in the programs: "unordered: first" and "unordered: then".
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/command.h"
#include "support/whole_run.h"

namespace vedette::testing::races_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path sources = VEDETTE_SOURCE "/tests/simulated_gpu/races";
const std::string python = "'" TORCH_PYTHON "' ";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Both outputs. The environment's words for the device are `device`.
Answer races(const std::string& words, const std::string& device = "") {
  return run("SIMULATED_GPU='" + device + "' timeout 100 '" VEDETTE_CLI "' races " + words + " 2>&1");
}

struct Program {
  const char* name;  // of its source
  const char *first, *then;
};

void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

const Program programs[] = {{"overwritten_tensor.py", "backward", "aten::copy_"},
                            {"reload_beside_copy_out.cc", "copy", "copy"},
                            {"state_before_step.py", "aten::lerp_", "aten::copy_"},
                            {"reload_buffer.py", "aten::add_", "aten::copy_"},
                            {"live_activation.py", "aten::copy_", "aten::threshold_backward"},
                            {"early_event.py", "aten::mm", "aten::copy_"}};

std::string command(const Program& program) {
  const fs::path source = sources / program.name;
  return source.extension() == ".py" ? python + source.string() : RELOAD_BESIDE_COPY_OUT;
}

// "name.py:12", of the line with the mark.
std::string marked(const Program& program, const std::string& mark) {
  std::istringstream lines(read(sources / program.name));
  std::size_t number = 1;
  for (std::string line; std::getline(lines, line); ++number)
    if (line.ends_with("unordered: " + mark)) return std::string(program.name) + ":" + std::to_string(number);
  return "there is no line marked " + mark;
}

// One of the told pairs has both lines, in their order, each under its operation.
bool is_told(const Program& program, const std::string& text) {
  const std::string first = marked(program, "first"), then = marked(program, "then");
  for (std::size_t at = text.find("\n   first "); at != text.npos; at = text.find("\n   first ", at + 1)) {
    const std::size_t middle = text.find("\n   then ", at), end = std::min(text.find("\n\n", middle), text.size());
    const std::string one = text.substr(at, middle - at), other = text.substr(middle, end - middle);
    if (one.find(first) != one.npos && one.find(program.first) != one.npos && other.find(then) != other.npos &&
        other.find(program.then) != other.npos)
      return true;
  }
  return false;
}

class Races : public ::testing::TestWithParam<Program> {};
INSTANTIATE_TEST_SUITE_P(Of, Races, ::testing::ValuesIn(programs),
                         [](const auto& program) { return fs::path(program.param.name).stem().string(); });

TEST_P(Races, ThePairIsToldWithBothLinesWhateverTheTiming) {
  for (const char* const device : {"one_engine=1 copies_wait=1 latency_us=20000", ""}) {
    if (*device == '\0' && !whole_run()) continue;
    const Answer answer = races("-- " + command(GetParam()), device);
    EXPECT_EQ(answer.status, 70) << answer.text;
    EXPECT_TRUE(is_told(GetParam(), answer.text)) << answer.text;
    EXPECT_THAT(answer.text, AllOf(HasSubstr(" bytes, from byte "), HasSubstr("\ncovered: ")));
  }
}

TEST_P(Races, TheRepairedProgramIsSilent) {
  const Answer answer = races("-- " + command(GetParam()) + " --repaired");
  EXPECT_EQ(answer.status, 0) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("nothing unordered was found"), Not(HasSubstr("covered: 0 operators"))));
}

std::string script(const std::string& text) { return "-- " + python + "-c '" + text + "'"; }

TEST(RacesOf, TheProgramsOwnStatusAndOutputAreKept) {
  const Answer answer =
      races(script("import torch, sys; print(\"three\"); torch.ones(3, device=\"cuda\"); sys.exit(3)"));
  EXPECT_EQ(answer.status, 3) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("three\n"), HasSubstr("covered: 1 operator of 1 kind, 0 copies")));
}

// The host waits for an operator's first call to learn the shapes of its results: on a GPU it does not.
TEST(RacesOf, AnOperatorsFirstCallOrdersNothing) {
  const Answer answer =
      races(script("import torch; s = torch.cuda.Stream(); a = torch.ones(9, device=\"cuda\") * 2\n"
                   "with torch.cuda.stream(s): a + 1"));
  EXPECT_EQ(answer.status, 70) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("aten::mul on stream 0"), HasSubstr("aten::add on stream 1")));
}

TEST(RacesOf, AnOperatorThatWaitsForItsDataOrders) {
  const Answer answer =
      races(script("import torch; s = torch.cuda.Stream(); a = torch.ones(9, device=\"cuda\"); a.nonzero()\n"
                   "with torch.cuda.stream(s): a + 1"));
  EXPECT_EQ(answer.status, 0) << "nonzero() waits on a GPU, too: " << answer.text;
}

// A guard of GPU memory at half of the peak: it copies on streams of its own beside the training's.
TEST(RacesOf, VedettesOwnGuardIsSilent) {
  const Answer answer = races("-- '" VEDETTE_TRAIN "' --device cuda --model gpt --small --fast-memory 50% --steps 6");
  EXPECT_EQ(answer.status, 0) << answer.text;
  EXPECT_THAT(answer.text, AllOf(HasSubstr("6/6"), HasSubstr("nothing unordered was found"),
                                 ::testing::ContainsRegex("on [2-9] streams, [0-9]+ waits of a stream")));
}

TEST(RacesOf, ThePairsAreInTheJsonFileToo) {
  const fs::path file = fs::temp_directory_path() / ("races-" + std::to_string(::getpid()) + ".json");
  const Answer answer = races("--json " + file.string() + " -- " + command(programs[3]));
  const auto told = nlohmann::json::parse(read(file));
  fs::remove(file);
  EXPECT_EQ(told["status"], 70);
  ASSERT_EQ(told["races"].size(), 1u) << "the loop makes the pair twice";
  EXPECT_EQ(told["races"][0]["second"]["access"], "write");
  EXPECT_THAT(told["races"][0]["first"]["stack"][0].get<std::string>(), HasSubstr(marked(programs[3], "first")));
  EXPECT_EQ(told["covered"]["operators"]["aten::add_"], 3);
  EXPECT_EQ(told["covered"]["copies"], 3);
}

// Nothing was looked at: that is no success.
TEST(RacesOf, AProgramWithoutCudaIsToldSo) {
  const Answer answer = races("-- /bin/true");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.text, HasSubstr("the program made no call of CUDA, so that nothing was looked at"));
}

TEST(RacesOf, ATorchWithoutCudaIsToldSo) {
  // No device is asked for, and the process holds libtorch_cpu.so: a build without CUDA holds nothing else.
  const Answer answer = races("-- env LD_LIBRARY_PATH=" TORCH_LIBRARIES " '" WITHOUT_CUDA "'");
  EXPECT_EQ(answer.status, 1) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("the program's torch has no CUDA part"));
}

TEST(RacesOf, AProgramThatIsNotThereIsToldSo) {
  EXPECT_THAT(races("-- no-such-program").text,
              HasSubstr("there is no program 'no-such-program' in the folders of PATH"));
  EXPECT_THAT(races("-- ./no/such").text, HasSubstr("there is no program ./no/such"));
  EXPECT_THAT(races("-- " + (sources / "early_event.py").string()).text, HasSubstr("write -- python "));
  EXPECT_THAT(races("").text, HasSubstr("name a program: vedette races -- python train.py"));
  EXPECT_THAT(races("--memry 3 -- /bin/true").text, HasSubstr("there is no option '--memry'"));
  EXPECT_THAT(races("--memory much -- /bin/true").text, HasSubstr("is no size from 2MiB to 48GiB"));
}

class Copied : public ::testing::Test {
 protected:
  Copied() : folder_(fs::temp_directory_path() / ("races-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_ / "bin");
  }
  ~Copied() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  fs::path folder_;
};

TEST_F(Copied, ARuntimeInsideOrOfAnotherVersionIsToldBeforeTheStart) {
  write("inside", "\177ELF libcuda.so.1 cudaErrorInvalidValue");
  write("another", "\177ELF libcudart.so.12");
  EXPECT_THAT(races("-- " + (folder_ / "inside").string()).text, HasSubstr("link it with nvcc -cudart shared"));
  EXPECT_THAT(races("-- " + (folder_ / "another").string()).text,
              AllOf(HasSubstr("is linked to libcudart.so.12, and the simulated GPU has libcudart.so.13")));
}

TEST_F(Copied, ItRunsFromWhereItIsInstalledAndSaysWhereTheDeviceShouldBe) {
  fs::copy_file(VEDETTE_CLI, folder_ / "bin/vedette");
  const std::string words = (folder_ / "bin/vedette").string() + " races -- " + command(programs[1]) + " 2>&1";
  EXPECT_THAT(run(words).text, AllOf(HasSubstr("there is no simulated GPU in " + folder_.string()),
                                     HasSubstr("--component simulated_gpu")));
  const Answer installed =
      run("cmake --install '" VEDETTE_BUILD "' --component simulated_gpu --prefix " + folder_.string());
  ASSERT_EQ(installed.status, 0) << installed.text;
  const Answer answer = run(words);
  EXPECT_EQ(answer.status, 70) << answer.text;
}

}  // namespace
}  // namespace vedette::testing::races_test
