// Jobs that lose a rank: they go on from their checkpoint and end with the bits of a job that lost none.
#include <gmock/gmock.h>

#include <csignal>

#include "distributed/job.h"

namespace vedette::testing::checkpoints_test {
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

TEST(Checkpoints, InMixedPrecisionHaveTheScaleOfTheGradients) {
  const Folder folder;
  Training training{.model = "mlp", .steps = 7, .amp = true};
  const auto whole = train_on(2, training);
  training.checkpoint = folder.path;
  const auto resumed = train_and_lose(/*victim=*/0, /*step=*/5, training);
  expect_same_end(resumed, whole);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(resumed[rank]["first"], 3);
    EXPECT_EQ(resumed[rank]["scale"], whole[rank]["scale"]);
  }
}

// A scale that grows with every second step: the checkpoint of step 3 has half of the way to the next.
TEST(Checkpoints, HaveOtherTensorsThatTheyWereGiven) {
  const Folder folder;
  const auto told = parsed(run_job(1, [&] {
    Ranks ranks;
    Checkpoints checkpoints(ranks, folder.path);
    std::vector<std::string> scales;
    for (const bool resumes : {false, true}) {
      const auto model = examples::make_model("mlp", {.small = true, .seed = 7, .script = {}});
      examples::GradScaler scaler(at::kCPU, {.scale = 8, .growth_interval = 2});
      const std::int64_t first =
          resumes ? checkpoints.load(model->module(), model->optimizer(), scaler.state()).value() : 0;
      std::string each;
      for (std::int64_t step = first; step < 6; ++step) {
        model->optimizer().zero_grad();
        scaler.scale(model->loss(step, 4)).backward();
        scaler.step(model->optimizer());
        scaler.update();
        if (step + 1 > 3) each += std::to_string(scaler.value()) + " ";
        if (!resumes && step + 1 == 3) checkpoints.save(model->module(), model->optimizer(), 3, scaler.state());
      }
      scales.push_back(each);
    }
    return nlohmann::json(scales).dump();
  }));
  EXPECT_EQ(told[0][0], "32.000000 32.000000 64.000000 ");
  EXPECT_EQ(told[0][1], told[0][0]);
}

TEST(Checkpoints, WithoutTheTensorsThatAreWantedAreRefused) {
  const Folder folder;
  (void)train_on(1, {.steps = 3, .checkpoint = folder.path});
  const auto told = run_job(1, [&] { return train({.steps = 3, .amp = true, .checkpoint = folder.path}).dump(); });
  EXPECT_THAT(told[0], HasSubstr("the checkpoint is of another model or training"));
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
}  // namespace vedette::testing::checkpoints_test
