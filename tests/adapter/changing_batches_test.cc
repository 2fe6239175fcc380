// A guard with ample memory over batches of ever new sizes. Beside its budget the process holds what libtorch holds for
// so many shapes, compiled kernels above all, and at most the overhead that a session promises.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>

#include "adapter/training.h"

namespace vedette::test::changing_batches_test {
namespace {

constexpr std::int64_t sizes = 12, steps = 2 * sizes;

// Between steps, when no frame changes its kind: what is read in one moment is of one moment.
std::uint64_t resident_bytes() {
  std::uint64_t sum = 0, kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if ((word == "RssAnon:" || word == "RssShmem:") && status >> kib) sum += kib << 10;
  return sum;
}

std::int64_t samples(std::int64_t step) { return 1 + step * 5 % sizes; }

TEST(ChangingBatches, LeaveTheSessionWithinItsOverhead) {
  constexpr Bytes budget = 64_MiB;
  const examples::ModelOptions as_large_as{.batch = sizes, .small = true, .seed = 7, .script = {}};
  {
    const auto plain = examples::make_model("resnet18", as_large_as);  // libtorch makes its kernels here, once
    for (std::int64_t i = 0; i < sizes; ++i) plain->train_step(i, samples(i));
  }
  ::malloc_trim(0);
  const std::uint64_t before = resident_bytes();
  ASSERT_GT(before, 0u) << "/proc/self/status cannot be read";
  Guard guard{{.fast_memory = budget, .slow = "nvme:.", .chunk = small_chunk}};
  const auto model = examples::make_model("resnet18", as_large_as);
  guard.watch(model->module());
  for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard.watch(*optimizer);
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < steps; ++i) {
    {
      const auto step = guard.step();
      model->train_step(i, samples(i));
    }
    most = std::max(most, static_cast<std::int64_t>(resident_bytes()) - static_cast<std::int64_t>(before));
  }
  const double beyond = static_cast<double>(most - static_cast<std::int64_t>(budget.value)) / (1 << 20);
  std::printf("at most %.1f MiB beyond the budget\n", beyond);
  EXPECT_LE(guard.counters().peak_bytes.value, budget.value) << "this is about what is beside it";
  EXPECT_LE(most, static_cast<std::int64_t>((budget + session_overhead).value));
}

}  // namespace
}  // namespace vedette::test::changing_batches_test
