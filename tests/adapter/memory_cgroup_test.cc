// The budget holds where the kernel counts all memory and kills a process that exceeds its limit. The limit is the
// budget, the overhead that README states, and libtorch's own memory, measured first with a model of a few bytes.
// Training under the guard lives there, with the losses of training without a limit. Plain libtorch is killed.
#include "support/memory_cgroup.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "vedette/session.h"

namespace vedette::memory_cgroup_test {
namespace {

namespace fs = std::filesystem;
using testing::MemoryCgroup;

struct Ended {
  int status = -1, signal = 0;
  nlohmann::json result;
};

class TrainingInAMemoryCgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    MemoryCgroup group("vedette-test");
    if (!group.made()) GTEST_SKIP() << group.why_not();
    std::string pattern = (fs::current_path() / "vedette-cgroup-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // examples/train in `group`, or in none. It begins there as a new program, so that everything it takes is charged
  // there.
  Ended train(const MemoryCgroup* group, std::vector<std::string> words) const {
    const std::string result = (folder_ / "result.json").string();
    fs::remove(result);
    words.insert(words.begin(), VEDETTE_TRAIN);
    words.insert(words.end(), {"--json", result});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(600);  // the watchdog
      if (::freopen((folder_ / "log").c_str(), "w", stdout) == nullptr || ::dup2(1, 2) < 0) ::_exit(97);
      if (group != nullptr && !group->enter()) ::_exit(99);
      ::execv(VEDETTE_TRAIN, arguments.data());
      ::_exit(98);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    Ended ended;
    if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
    std::ifstream stream(result);
    ended.result = nlohmann::json::parse(stream, nullptr, false);
    return ended;
  }
  std::string log() const {
    std::ifstream stream(folder_ / "log");
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  fs::path folder_;
};

TEST_F(TrainingInAMemoryCgroup, LivesUnderTheGuardWithEqualLossesAndIsKilledWithoutIt) {
  const std::vector<std::string> model{"--model", VEDETTE_MODEL, "--batch", "4", "--steps", "5"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), model.begin(), model.end());
    return more;
  };
  MemoryCgroup wide("vedette-wide");
  ASSERT_TRUE(wide.made() && wide.set_limit(4_GiB, false)) << wide.why_not();
  ASSERT_EQ(train(&wide, {"--plain", "--model", "mlp", "--small", "--steps", "2"}).status, 0) << log();
  const Bytes own = wide.peak();
  if (own.value == 0) GTEST_SKIP() << "this kernel does not tell the most that was charged (memory.peak, Linux 5.19)";
  const Ended plain = train(nullptr, with({"--plain"}));
  ASSERT_EQ(plain.status, 0) << log();
  const auto peak = plain.result.at("peak_bytes").get<std::uint64_t>();
  const Bytes budget{peak / 4};
  const Bytes limit = budget + session_overhead + own;
  MemoryCgroup group("vedette-test");
  ASSERT_TRUE(group.set_limit(limit, false)) << group.why_not();
  const Ended guarded = train(&group, with({"--fast-memory", std::to_string(budget.value), "--slow", "nvme:."}));
  std::printf("peak %.1f MiB, budget %.1f, the program's own %.1f, limit %.1f, charged at most %.1f\n",
              static_cast<double>(peak) / (1 << 20), static_cast<double>(budget.value) / (1 << 20),
              static_cast<double>(own.value) / (1 << 20), static_cast<double>(limit.value) / (1 << 20),
              static_cast<double>(group.peak().value) / (1 << 20));
  ASSERT_EQ(guarded.signal, 0) << "killed";
  ASSERT_EQ(guarded.status, 0) << log();
  EXPECT_EQ(guarded.result.at("losses"), plain.result.at("losses"));
  EXPECT_GT(guarded.result.at("bytes_in").get<std::uint64_t>(), 0u);
  EXPECT_EQ(group.kills(), 0u);
  const Ended killed = train(&group, with({"--plain"}));
  EXPECT_EQ(killed.signal, SIGKILL) << "status " << killed.status << ": " << log();
  EXPECT_GE(group.kills(), 1u);
}

}  // namespace
}  // namespace vedette::memory_cgroup_test
