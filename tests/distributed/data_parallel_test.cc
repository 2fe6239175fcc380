// Data parallel training of two ranks: the bits of the same job without guards, and of its definition.
#include <gmock/gmock.h>
#include <grp.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <limits>

#include "distributed/job.h"
#include "support/nobody.h"
#include "support/whole_run.h"

namespace vedette::testing::data_parallel_test {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string model;
  bool shard = false, amp = false;
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.model + (info.param.shard ? "_sharded" : "") + (info.param.amp ? "_in_mixed_precision" : "");
}

class EqualBits : public ::testing::TestWithParam<Case> {};

TEST_P(EqualBits, AtAllHalfAndAQuarterOfTheMemory) {
  Training training{
      .model = GetParam().model, .parallel = {.shard_optimizer = GetParam().shard}, .amp = GetParam().amp};
  const auto plain = train_on(2, training);
  EXPECT_EQ(plain[0]["parameters"], plain[1]["parameters"]);
  EXPECT_NE(plain[0]["losses"], plain[1]["losses"]) << "ranks train on different batches";
  const std::uint64_t peak = peak_of(2, training);
  for (const std::uint64_t percent : {100, 50, 25}) {
    if (!whole_run() && percent == 50) continue;
    training.budget = peak * percent / 100;
    const auto guarded = train_on(2, training);
    expect_same(guarded, plain);
    EXPECT_EQ(guarded[0]["phase"], "planned");
    std::printf("%s, %d %% of %.1f MiB: moved %s, faults %s\n", GetParam().model.c_str(), static_cast<int>(percent),
                static_cast<double>(peak) / 1048576, guarded[0]["moved"].dump().c_str(),
                guarded[0]["faults"].dump().c_str());
    if (percent == 25) {
      EXPECT_GT(guarded[0]["moved"].back(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DataParallel, EqualBits,
                         ::testing::Values(Case{"mlp"}, Case{"mlp", true}, Case{"resnet18"}, Case{"resnet18", true},
                                           Case{"resnet18", false, true}),
                         name_of);

TEST(DataParallel, HasTheSameBitsWithAnyLag) {
  const auto wanted = train_on(2, {.parallel = {.lag = 2}});
  for (const std::uint32_t lag : {0u, 1u, 50u}) expect_same(train_on(2, {.parallel = {.lag = lag}}), wanted);
}

TEST(DataParallel, OfAShardedOptimizerTrainsTheSameParametersWithHalfOfTheState) {
  const auto whole = train_on(2, {}), sharded = train_on(2, {.parallel = {.shard_optimizer = true}});
  std::uint64_t bytes = 0;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(sharded[rank]["parameters"], whole[rank]["parameters"]);
    EXPECT_EQ(sharded[rank]["losses"], whole[rank]["losses"]);
    EXPECT_LT(sharded[rank]["optimizer_bytes"].get<double>(), 0.8 * whole[rank]["optimizer_bytes"].get<double>());
    bytes += sharded[rank]["optimizer_bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(bytes, whole[0]["optimizer_bytes"]) << "both ranks have the state once, together";
}

// Two layers of their own, for what tests do by hand.
struct Net {
  torch::nn::Linear first{nullptr}, second{nullptr};
  std::unique_ptr<torch::optim::Adam> adam;
  Net() {
    torch::manual_seed(3);
    first = torch::nn::Linear(48, 48);
    second = torch::nn::Linear(48, 8);
    std::vector<at::Tensor> all = first->parameters();
    for (const at::Tensor& parameter : second->parameters()) all.push_back(parameter);
    adam = std::make_unique<torch::optim::Adam>(all, torch::optim::AdamOptions(1e-2));
  }
  at::Tensor loss(int batch, bool through_first = true) {
    torch::manual_seed(1000 + static_cast<std::uint64_t>(batch));
    const at::Tensor x = at::randn({16, 48});
    return torch::nn::functional::mse_loss(second(through_first ? first(x).relu() : x), at::randn({16, 8}));
  }
  std::vector<at::Tensor> parameters() { return adam->param_groups()[0].params(); }
  nlohmann::json digest() {
    nlohmann::json bytes = nlohmann::json::array();
    for (const at::Tensor& parameter : parameters()) {
      const auto* const words = static_cast<const std::uint32_t*>(parameter.const_data_ptr());
      bytes.push_back(std::vector<std::uint32_t>(words, words + parameter.numel()));
    }
    return bytes;
  }
};

constexpr int steps_by_hand = 4;

// Each gradient stays, as the one that step() would have used.
TEST(DataParallel, ReducesForAStepThatComesLater) {
  const auto digest_of = [](bool reduces) {
    return parsed(run_job(2, [=] {
      Ranks ranks;
      Net net;
      DataParallel parallel(ranks, *net.adam);
      for (int step = 0; step < steps_by_hand; ++step) {
        const at::Tensor loss = net.loss(2 * step + ranks.rank());
        const auto backward = [&] { loss.backward(); };
        if (!reduces) {
          parallel.step(backward);
          continue;
        }
        parallel.reduce(backward);
        net.adam->step();
        net.adam->zero_grad();
      }
      return net.digest().dump();
    }));
  };
  EXPECT_EQ(digest_of(true), digest_of(false));
}

TEST(DataParallel, OfAShardedOptimizerDoesNotReduceAlone) {
  const auto told = run_job(2, [] {
    Ranks ranks;
    Net net;
    DataParallel parallel(ranks, *net.adam, {.shard_optimizer = true});
    parallel.reduce([&] { net.loss(0).backward(); });
    return std::string("it was not refused");
  });
  for (const std::string& text : told) EXPECT_THAT(text, HasSubstr("leave shard_optimizer out"));
}

// An infinite gradient of one rank leaves the step out on all of them, and halves the scale of all.
TEST(DataParallel, ALossThatOverflowsOnOneRankLeavesTheStepOutOnAll) {
  const auto told = parsed(run_job(2, [] {
    Ranks ranks;
    Net net;
    DataParallel parallel(ranks, *net.adam);
    examples::GradScaler scaler(at::kCPU, {.scale = 1024});
    const auto before = net.digest();
    at::Tensor loss = net.loss(ranks.rank());
    if (ranks.rank() == 1) loss = loss * std::numeric_limits<float>::infinity();
    parallel.reduce([&] { scaler.scale(loss).backward(); });
    const bool stepped = scaler.step(*net.adam);
    scaler.update();
    return nlohmann::json{{"stepped", stepped}, {"same", net.digest() == before}, {"scale", scaler.value()}}.dump();
  }));
  for (const auto& rank : told) EXPECT_EQ(rank, (nlohmann::json{{"stepped", false}, {"same", true}, {"scale", 512.0}}));
}

TEST(DataParallel, AloneStepsInBackward) {
  // A job of one, in a child as the others are.
  const auto alone = train_on(1, {});
  const auto by_hand = parsed(run_job(1, [] {
    const auto model = examples::make_model("mlp", {.small = true, .seed = 7, .script = {}});
    torch::manual_seed(100);
    model->use([](torch::optim::Optimizer& optimizer, const std::function<void()>& backward) {
      step_in_backward(optimizer, backward);
    });
    std::vector<std::uint32_t> losses;
    for (std::int64_t step = 0; step < 10; ++step)
      losses.push_back(std::bit_cast<std::uint32_t>(model->train_step(step)));
    return nlohmann::json{{"losses", losses}, {"state", examples::digests(*model)}}.dump();
  }));
  expect_same(alone, by_hand);
}

TEST(DataParallel, IsTheMeanOfTheRanksAccumulatedGradients) {
  const auto together = parsed(run_job(2, [] {
    Ranks ranks;
    Net net;
    DataParallel parallel(ranks, *net.adam);
    for (int step = 0; step < steps_by_hand; ++step) {
      const int batch = 4 * step + 2 * ranks.rank();
      net.loss(batch).backward();
      const at::Tensor last = net.loss(batch + 1);
      parallel.step([&] { last.backward(); });
    }
    return net.digest().dump();
  }));
  const auto alone = parsed(run_job(1, [] {
    Net net;
    for (int step = 0; step < steps_by_hand; ++step) {
      std::vector<at::Tensor> sum;
      for (int rank = 0; rank < 2; ++rank) {
        net.adam->zero_grad();
        for (int part = 0; part < 2; ++part) net.loss(4 * step + 2 * rank + part).backward();
        const auto parameters = net.parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const at::Tensor half = parameters[i].grad() / 2;
          rank == 0 ? sum.push_back(half) : (void)sum[i].add_(half);
        }
      }
      const auto parameters = net.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) at::Tensor(parameters[i]).mutable_grad() = sum[i];
      net.adam->step();
    }
    return net.digest().dump();
  }));
  EXPECT_EQ(together[0], alone[0]);
  EXPECT_EQ(together[1], alone[0]);
}

TEST(DataParallel, TakesAGradientThatARankLacksForZeros) {
  const auto both = parsed(run_job(2, [] {
    Ranks ranks;
    Net net;
    DataParallel parallel(ranks, *net.adam);
    for (int step = 0; step < steps_by_hand; ++step) {
      const at::Tensor loss = net.loss(2 * step + ranks.rank(), step == 0 || ranks.rank() == 0);
      parallel.step([&] { loss.backward(); });
    }
    return net.digest().dump();
  }));
  EXPECT_EQ(both[0], both[1]);
}

TEST(DataParallel, RefusesAGradientThatNoFirstPassGave) {
  const auto told = run_job(2, [] {
    Ranks ranks;
    Net net;
    DataParallel parallel(ranks, *net.adam);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = net.loss(2 * step + ranks.rank(), step > 0);
      parallel.step([&] { loss.backward(); });
    }
    return std::string("accepted");
  });
  for (const std::string& text : told) EXPECT_THAT(text, HasSubstr("let the first step reach all parameters"));
}

TEST(Ranks, AreOneWithoutTorchrun) {
  const Ranks ranks;
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_EQ(ranks.rank(), 0);
}

TEST(Ranks, RefuseAnEnvironmentThatIsNotTorchruns) {
  for (const auto& [rank, size, address] :
       {std::array{"0", "two", "127.0.0.1"}, std::array{"2", "2", "127.0.0.1"}, std::array{"0", "2", ""}}) {
    ::setenv("RANK", rank, 1);
    ::setenv("WORLD_SIZE", size, 1);
    ::setenv("MASTER_ADDR", address, 1);
    EXPECT_THROW(
        {
          try {
            Ranks ranks;
          } catch (const Failure& refused) {
            EXPECT_THAT(refused.what(), HasSubstr("torchrun"));
            throw;
          }
        },
        Failure);
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) ::unsetenv(name);
}

// Where system calls into memory that is away fail, what gloo sends has to be pinned.
TEST(DataParallel, TrainsWithTheSameBitsAsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become nobody";
  if (!nobody_finds_files()) GTEST_SKIP() << no_files_for_nobody;
  for (const bool shard : {false, true}) {
    Training training{.parallel = {.shard_optimizer = shard}};
    const auto plain = train_on(2, training);
    training.budget = peak_of(2, training) / 4;
    const auto guarded = parsed(run_job(2, [&] {
      constexpr int nobody = 65534;
      if (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0) std::abort();
      return train(training).dump();
    }));
    expect_same(guarded, plain);
  }
}

}  // namespace
}  // namespace vedette::testing::data_parallel_test
