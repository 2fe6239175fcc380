// PyTorch's own Reducer in C++ under a guard: its buckets are held while gloo's threads read them, where system calls
// into memory that is away fail. The bits are those of the same job without guards.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <grp.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "distributed/job.h"
#include "support/nobody.h"

namespace vedette::testing::reducer_test {
namespace {

constexpr std::int64_t bucket_bytes = std::int64_t{16} << 10;  // several buckets of a small model

std::unique_ptr<c10d::Reducer> reducer_of(const Ranks& ranks, const std::vector<at::Tensor>& parameters) {
  const std::vector<bool> sparse(parameters.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<std::size_t>(bucket_bytes), static_cast<std::size_t>(bucket_bytes)}, sparse));
  std::reverse(buckets.begin(), buckets.end());
  constexpr bool no = false;
  return std::make_unique<c10d::Reducer>(
      parameters, std::move(buckets), ranks.group(), sparse, bucket_bytes, /*find_unused_parameters=*/no,
      /*gradient_as_bucket_view=*/no, std::unordered_map<std::size_t, std::string>{}, bucket_bytes,
      /*skip_all_reduce_unused_params=*/no, /*use_python_reducer=*/no, std::vector<std::int64_t>{});
}

// One rank's training with a Reducer. `budget`: bytes, 0: no guard.
std::string train_by_reducer(std::uint64_t budget, const std::string& policy) {
  Ranks ranks;
  std::unique_ptr<Guard> guard;
  if (budget > 0)
    guard.reset(new Guard({.fast_memory = Bytes{budget},
                           .slow = "host",
                           .policy = policy,
                           .chunk = chunk_of_a_training,
                           .on_message = [](auto) {}}));
  const auto model = examples::make_model("mlp", {.small = true, .seed = 7, .script = {}});
  ranks.broadcast(model->module());
  torch::manual_seed(100 + static_cast<std::uint64_t>(ranks.rank()));
  if (guard) guard->watch(model->module());
  if (guard) guard->watch(model->optimizer());
  const auto reducer = reducer_of(ranks, model->module().parameters());
  model->use([&](torch::optim::Optimizer& optimizer, const std::function<void()>& backward) {
    optimizer.zero_grad();
    reducer->prepare_for_backward({});
    backward();
    optimizer.step();
  });
  nlohmann::json told;
  std::vector<std::uint32_t> losses;
  std::vector<std::uint64_t> faults;
  for (std::int64_t step = 0; step < 10; ++step) {
    const std::uint64_t before = guard ? guard->counters().faults : 0;
    std::optional<Guard::Step> scope;
    if (guard) scope.emplace(*guard);
    reducer->prepare_for_forward();
    losses.push_back(std::bit_cast<std::uint32_t>(model->train_step(step * ranks.size() + ranks.rank())));
    scope.reset();
    faults.push_back((guard ? guard->counters().faults : 0) - before);
  }
  told["losses"] = losses;
  told["state"] = examples::digests(*model);
  if (!guard) return told.dump();
  told["faults"] = faults;
  told["phase"] = guard->session().phase();
  told["peak"] = guard->counters().peak_bytes.value;
  told["mechanism"] = guard->session().mechanism();
  return told.dump();
}

void become_nobody() {
  constexpr int nobody = 65534;
  if (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0) std::abort();
}

void expect_equal_bits(bool as_nobody) {
  const auto plain = parsed(run_job(2, [] { return train_by_reducer(0, "vedette"); }));
  EXPECT_NE(plain[0]["losses"], plain[1]["losses"]) << "ranks train on different batches";
  const auto ample = parsed(run_job(2, [] { return train_by_reducer(std::uint64_t{1} << 30, "on-demand"); }));
  const auto peak = ample[0]["peak"].get<std::uint64_t>();
  for (const std::uint64_t percent : {50, 25}) {
    const auto guarded = parsed(run_job(2, [&] {
      if (as_nobody) become_nobody();
      return train_by_reducer(peak * percent / 100, "vedette");
    }));
    expect_same(guarded, plain);
    EXPECT_EQ(guarded[0]["phase"], "planned");
    EXPECT_EQ(guarded[0]["mechanism"].get<std::string>().starts_with("userfaultfd, "), !as_nobody);
    std::printf("%d %% of %.1f MiB: faults %s\n", static_cast<int>(percent), static_cast<double>(peak) / 1048576,
                guarded[0]["faults"].dump().c_str());
  }
}

TEST(Reducer, HasEqualBits) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user has no userfaultfd for system calls: see AsNobody";
  expect_equal_bits(false);
}

TEST(Reducer, HasEqualBitsAsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become nobody";
  if (!nobody_finds_files()) GTEST_SKIP() << no_files_for_nobody;
  expect_equal_bits(true);
}

}  // namespace
}  // namespace vedette::testing::reducer_test
