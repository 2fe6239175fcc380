// A guard that records: by one option, or by the environment, with what is needed to make the recording again.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "profiler/recording.h"
#include "profiler/sqlite.h"
#include "vedette/torch.h"

namespace program {  // what lies in vedette is left out of stacks
namespace {

__attribute__((noinline)) torch::Tensor makes_a_batch() {
  torch::Tensor batch = torch::ones({1024, 64});
  batch[0][0] = 2;  // so that the call above is not the function's last
  return batch;
}

}  // namespace
}  // namespace program

namespace vedette::record_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string fresh(const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "_" + name);
  std::filesystem::remove(path);
  return path.string();
}

GuardOptions small_guard() { return {.fast_memory = 64_MiB, .slow = "host", .chunk = 64_KiB}; }

void train(Guard& guard, int steps) {
  auto model = torch::nn::Linear(64, 8);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  guard.watch(*model);
  guard.watch(optimizer);
  for (int i = 0; i < steps; ++i) {
    auto step = guard.step();
    optimizer.zero_grad();
    model->forward(torch::ones({4, 64})).square().sum().backward();
    optimizer.step();
  }
}

class FromEnvironment {  // VEDETTE_RECORD, while this lives
 public:
  explicit FromEnvironment(const std::string& path) { ::setenv("VEDETTE_RECORD", path.c_str(), 1); }
  ~FromEnvironment() { ::unsetenv("VEDETTE_RECORD"); }
  FromEnvironment(const FromEnvironment&) = delete;
  FromEnvironment& operator=(const FromEnvironment&) = delete;
};

TEST(RecordingGuard, RecordsItsStepsByOneOption) {
  const std::string path = fresh("option.vedette");
  {
    GuardOptions options = small_guard();
    options.record = path;
    Guard guard(std::move(options));
    train(guard, 4);
  }
  const Headline told = Recording::open(path).value().headline().value();
  EXPECT_EQ(told.steps, 4u);
  EXPECT_TRUE(told.complete);
  EXPECT_THAT(told.program, StartsWith("tests_adapter"));
  EXPECT_THAT(told.origin.command, HasSubstr("tests_adapter"));
  EXPECT_EQ(told.origin.libtorch, TORCH_VERSION);
  EXPECT_FALSE(told.origin.vedette.empty());
  EXPECT_GT(told.origin.memory, Bytes{0});
  std::filesystem::remove(path);
}

// Page accesses that are told after an op behind which its layer goes on: ticks were of ops.
std::int64_t seen_within_layers(const std::string& path) {
  Database database = Database::open(path, Database::Mode::read).value();
  Statement ask(database,
                "SELECT COUNT(*) FROM page_accesses a JOIN ops o USING(profile, op) JOIN ops after ON after.profile = "
                "a.profile AND after.op = a.op + 1 AND after.layer = o.layer");
  ask.ask();
  return ask.row() ? ask.integer(0) : -1;
}

TEST(RecordingGuard, LooksAtPagesAfterEachOp) {
  const std::string path = fresh("ops.vedette"), other = fresh("operands.vedette");
  for (const ProfileTicks ticks : {ProfileTicks::layers, ProfileTicks::operands}) {
    GuardOptions options = small_guard();
    options.record = ticks == ProfileTicks::layers ? path : other;
    options.profile = ticks;
    options.tracker = "mprotect";  // sees pages everywhere
    Guard guard(std::move(options));
    train(guard, 4);
  }
  EXPECT_GT(seen_within_layers(path), 0) << "the map counts";
  EXPECT_EQ(seen_within_layers(other), 0) << "no page was to be looked at";
  for (const std::string& file : {path, other}) std::filesystem::remove(file);
}

TEST(RecordingGuard, RecordsWhereTheEnvironmentAsksForIt) {
  const std::string path = fresh("environment.vedette"), option = fresh("named.vedette");
  {
    const FromEnvironment asked(path);
    Guard guard(small_guard());
    train(guard, 2);
  }
  EXPECT_EQ(Recording::open(path).value().headline().value().steps, 2u);
  std::filesystem::remove(path);
  {
    const FromEnvironment asked(path);
    GuardOptions options = small_guard();
    options.record = option;
    Guard guard(std::move(options));
    train(guard, 1);
  }
  EXPECT_TRUE(std::filesystem::exists(option)) << "what the program says counts";
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove(option);
}

// As user nobody, with these tests alone. True: they passed.
bool passes_as_nobody(const std::filesystem::path& program, const char* tests) {
  const std::string filter = std::string("--gtest_filter=RecordingGuard.") + tests;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned nobody = 65534;
    if (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0) ::_exit(125);
    ::execl(program.c_str(), program.c_str(), "--gtest_brief=1", filter.c_str(), nullptr);
    ::_exit(126);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Such a program has more rights than who starts it: the file would be written with them.
TEST(RecordingGuard, ASetuidProgramDoesNotRecordWhereTheEnvironmentSays) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes a program setuid";
  std::string folder = (std::filesystem::temp_directory_path() / "setuid-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  using std::filesystem::perms;
  std::filesystem::permissions(folder, perms::all & ~perms::group_write & ~perms::others_write);
  const auto program = std::filesystem::path(folder) / "tests_adapter";
  std::filesystem::copy_file("/proc/self/exe", program);
  constexpr const char *by_option = "RecordsItsStepsByOneOption",
                       *by_environment = "RecordsWhereTheEnvironmentAsksForIt";
  struct statvfs mounted {};
  ASSERT_EQ(::statvfs(folder.c_str(), &mounted), 0);
  const bool has_setuid = (mounted.f_flag & ST_NOSUID) == 0;
  constexpr perms of_a_program = perms::owner_all | perms::group_exec | perms::others_exec | perms::others_read;
  std::filesystem::permissions(program, of_a_program);
  const bool runs = passes_as_nobody(program, by_option);
  EXPECT_EQ(passes_as_nobody(program, by_environment), runs);
  std::filesystem::permissions(program, of_a_program | perms::set_uid);
  const bool runs_setuid = passes_as_nobody(program, by_option);
  if (has_setuid && runs_setuid) {
    EXPECT_FALSE(passes_as_nobody(program, by_environment));
  }
  std::filesystem::remove_all(folder);
  if (!has_setuid) GTEST_SKIP() << folder << " is on a file system without setuid";
  if (!runs || !runs_setuid) GTEST_SKIP() << "user nobody cannot run this program";
}

TEST(RecordingGuard, LeavesTheProgramsObserverAlone) {
  struct : Observer {
    int steps = 0;
    void step_began(std::uint64_t, Nanoseconds) override { ++steps; }
  } observer;
  std::string said;
  GuardOptions options = small_guard();
  options.observer = &observer;
  options.on_message = [&](std::string_view sentence) { said += sentence; };
  options.record = fresh("both.vedette");
  try {
    Guard guard(options);
    FAIL() << "two observers";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("record and observer are both given"));
  }
  const std::string path = options.record;
  options.record.clear();
  {
    const FromEnvironment asked(path);
    Guard guard(options);
    train(guard, 2);
  }
  EXPECT_EQ(observer.steps, 2);
  EXPECT_THAT(said, HasSubstr("VEDETTE_RECORD is not used"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Functions of this program that export nothing, and none of libtorch's between them.
TEST(RecordingGuard, HasTheStacksOfAllocationsWhereTheEnvironmentAsks) {
  for (const bool asked : {true, false}) {
    const std::string path = fresh("stacks.vedette");
    {
      const FromEnvironment recorded(path);
      if (asked) ::setenv("VEDETTE_RECORD_STACKS", "1", 1);
      Guard guard(small_guard());
      ::unsetenv("VEDETTE_RECORD_STACKS");
      auto model = torch::nn::Linear(64, 512);
      guard.watch(*model);
      for (int i = 0; i < 4; ++i) {
        auto step = guard.step();
        model->forward(program::makes_a_batch()).square().sum().backward();
      }
    }
    auto database = open_recording(path).value();
    const auto count = [&](const char* sql) {
      Statement ask(database, sql);
      ask.ask();
      return ask.row() ? ask.integer(0) : -1;
    };
    const auto known = count(
        "SELECT COUNT(*) FROM tensor_stacks JOIN stacks USING(stack) WHERE position = 0 AND frame LIKE "
        "'%makes_a_batch%'");
    EXPECT_EQ(known > 0, asked) << known;
    EXPECT_EQ(count("SELECT COUNT(*) FROM stacks WHERE frame LIKE 'at::%' OR frame LIKE 'vedette::adapter%' OR frame "
                    "LIKE 'c10::%'"),
              0);
    std::filesystem::remove(path);
  }
}

TEST(RecordingGuard, SaysWhereItCannotRecord) {
  GuardOptions options = small_guard();
  options.record = "/nowhere/run.vedette";
  try {
    Guard guard(std::move(options));
    FAIL() << "there is no such folder";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("/nowhere/run.vedette"));
  }
  Guard another(small_guard());  // nothing is left of the first
}

TEST(RecordingGuard, OfAForkedChildLeavesTheRecordingToItsParent) {
  const std::string path = fresh("forked.vedette");
  {
    GuardOptions options = small_guard();
    options.record = path;
    auto guard = std::make_unique<Guard>(std::move(options));
    train(*guard, 2);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      guard.reset();
      ::_exit(7);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
    train(*guard, 2);
  }
  const Headline told = Recording::open(path).value().headline().value();
  EXPECT_EQ(told.steps, 4u);
  EXPECT_TRUE(told.complete);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace vedette::record_test
