// Jobs that lose a rank: they go on from their checkpoint and end with the bits of a job that lost none.
#include <gmock/gmock.h>

#include <csignal>

#include "distributed/job.h"

namespace vedette::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

int files_in(const std::string& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// As torchrun does: where a rank is lost all are ended, and the job begins again.
std::vector<nlohmann::json> train_and_lose(int victim, std::int64_t step, Training training) {
  training.before_step = [=](int rank, std::int64_t now) {
    if (rank == victim && now == step) ::raise(SIGKILL);
  };
  const std::vector<Rank> job = start_job(2, [&] { return train(training).dump(); });
  int status = 0;
  ::waitpid(job[static_cast<std::size_t>(victim)].process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  (void)end_of(job, SIGKILL);
  training.before_step = {};
  return parsed(end_of(start_job(
      2, [&] { return train(training).dump(); }, 1)));
}

TEST(Checkpoints, AJobThatLosesARankGoesOnWithTheSameBits) {
  for (const bool shard : {false, true}) {
    const Folder folder;
    Training training{.model = "resnet18", .parallel = {.shard_optimizer = shard}, .steps = 10};
    const auto whole = train_on(2, training);
    training.checkpoint = folder.path;
    training.budget = peak_of(2, {.model = "resnet18", .parallel = training.parallel}) / 4;
    const auto resumed = train_and_lose(/*victim=*/1, /*step=*/7, training);
    expect_same_end(resumed, whole);
    EXPECT_EQ(resumed[0]["first"], 6);
    EXPECT_EQ(files_in(folder.path), 2) << "a checkpoint takes the place of the one before";
  }
}

TEST(Checkpoints, OfAnotherNumberOfRanksAreRefused) {
  const Folder folder;
  (void)train_on(1, {.steps = 3, .checkpoint = folder.path});
  const auto told = run_job(2, [&] { return train({.steps = 3, .checkpoint = folder.path}).dump(); });
  for (const std::string& text : told) EXPECT_THAT(text, HasSubstr("is of 1 ranks and the job has 2"));
}

TEST(Checkpoints, WithAMissingPartAreRefused) {
  const Folder folder;
  (void)train_on(2, {.steps = 3, .checkpoint = folder.path});
  fs::remove(folder.path + "/step-3.rank-1-of-2");
  const auto told = run_job(2, [&] { return train({.steps = 3, .checkpoint = folder.path}).dump(); });
  for (const std::string& text : told) EXPECT_THAT(text, HasSubstr("part of the checkpoint of step 3 is missing"));
}

TEST(Checkpoints, OfAnotherModelAreRefused) {
  const Folder folder;
  (void)train_on(1, {.model = "resnet18", .steps = 3, .checkpoint = folder.path});
  const auto told = run_job(1, [&] { return train({.steps = 3, .checkpoint = folder.path}).dump(); });
  EXPECT_THAT(told[0], HasSubstr("the checkpoint is of another model"));
}

TEST(Checkpoints, APartThatWasNotRenamedIsTaken) {
  const Folder folder;
  const auto whole = train_on(2, {.steps = 5});
  (void)train_on(2, {.steps = 3, .checkpoint = folder.path});
  fs::rename(folder.path + "/step-3.rank-1-of-2", folder.path + "/step-3.rank-1-of-2.part");
  const auto resumed = train_on(2, {.steps = 5, .checkpoint = folder.path});
  expect_same_end(resumed, whole);
  EXPECT_EQ(resumed[1]["first"], 3);
}

}  // namespace
}  // namespace vedette::testing
