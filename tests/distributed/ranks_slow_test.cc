// Four ranks at every budget, and a job that loses one rank after another at any moment.
#include <gmock/gmock.h>

#include <csignal>
#include <random>

#include "distributed/job.h"

namespace vedette::testing::ranks_slow_test {
namespace {

namespace fs = std::filesystem;

TEST(FourRanks, HaveEqualBitsAtEveryBudget) {
  const Folder folder;
  for (const bool shard : {false, true}) {
    for (const char* model : {"mlp", "resnet18", "gpt-small"}) {
      Training training{.model = model, .parallel = {.shard_optimizer = shard}, .slow = "nvme:" + folder.path};
      const auto plain = train_on(4, training);
      for (const auto& rank : plain) EXPECT_EQ(rank["parameters"], plain[0]["parameters"]);
      const std::uint64_t peak = peak_of(4, training);
      for (const std::uint64_t percent : {100, 50, 25}) {
        training.budget = peak * percent / 100;
        const auto guarded = train_on(4, training);
        expect_same(guarded, plain);
        EXPECT_EQ(guarded[0]["phase"], "planned");
      }
    }
  }
}

TEST(Jobs, LoseTwentyRanksAtRandomStepsAndEndWithTheSameBits) {
  std::mt19937 random(1);
  const Folder folder, slow;
  Training training{.model = "mlp", .parallel = {.shard_optimizer = true}, .steps = 60};
  const auto whole = train_on(2, training);
  training.budget = peak_of(2, {.parallel = training.parallel}) / 4;
  training.checkpoint = folder.path;
  training.slow = "nvme:" + slow.path;
  constexpr int kills = 20;
  for (int start = 0; start < kills; ++start) {
    const int victim = static_cast<int>(random() % 2), after = static_cast<int>(random() % 6);  // steps of this start
    training.before_step = [victim, after, taken = 0](int rank, std::int64_t) mutable {
      if (rank == victim && taken++ == after) ::raise(SIGKILL);
    };
    const std::vector<Rank> job = start_job(
        2, [&] { return train(training).dump(); }, start);
    int status = 0;
    ::waitpid(job[static_cast<std::size_t>(victim)].process, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << start;
    (void)end_of(job, SIGKILL);
  }
  training.before_step = {};
  const auto ended = parsed(end_of(start_job(
      2, [&] { return train(training).dump(); }, kills)));
  std::printf("the last start went on from step %d\n", ended[0]["first"].get<int>());
  EXPECT_GT(ended[0]["first"], 0);
  expect_same_end(ended, whole);
  EXPECT_TRUE(fs::is_empty(slow.path));
  for (const auto& entry : fs::directory_iterator(folder.path))
    EXPECT_THAT(entry.path().filename().string(), ::testing::HasSubstr("step-60.rank-"));
}

}  // namespace
}  // namespace vedette::testing::ranks_slow_test
