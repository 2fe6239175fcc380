// A guard whose session rests hears no operator. Steps that then need more than fast memory has end with the bits of
// the plain run, and operators are heard again.
#include <gtest/gtest.h>

#include "adapter/torch/gloo_works.h"
#include "adapter/training.h"

namespace vedette::test::rest_test {
namespace {

constexpr std::int64_t few = 2, many = 12, until = 40, steps = 60;

std::int64_t samples(std::int64_t step) { return step < until ? few : many; }

std::unique_ptr<examples::Model> model_of(const char* name) {
  return examples::make_model(name, {.batch = many, .small = true, .seed = 7, .script = {}});
}

class GuardAtRest : public ::testing::TestWithParam<const char*> {};

TEST_P(GuardAtRest, HasThePlainRunsBitsWhenStepsGrow) {
  Outcome plain, guarded;
  std::uint64_t peak_of_few = 0;
  {
    examples::forget_peak();
    const auto model = model_of(GetParam());
    for (std::int64_t i = 0; i < steps; ++i) {
      if (i == until) peak_of_few = examples::counted_peak_bytes();
      plain.losses.push_back(std::bit_cast<std::uint32_t>(model->train_step(i, samples(i))));
    }
    keep_tensors(*model, plain);
  }
  const auto model = model_of(GetParam());
  Guard guard{{.fast_memory = Bytes{peak_of_few + 64 * small_chunk.value}, .slow = "host", .chunk = small_chunk}};
  if (!adapter::serves_system_calls(guard.session()))
    GTEST_SKIP() << "system calls fail here on memory that is away, so that all operators are heard";
  guard.watch(model->module());
  for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard.watch(*optimizer);
  std::uint64_t ops = 0, heard = 0;  // of the last step; of steps with many samples
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::uint64_t before = guard.counters().ops;
    {
      const auto step = guard.step();
      guarded.losses.push_back(std::bit_cast<std::uint32_t>(model->train_step(i, samples(i))));
    }
    ops = guard.counters().ops - before;
    if (i + 1 == until) {
      EXPECT_EQ(ops, 0u) << "the session does not rest";
    }
    if (i >= until) heard += ops;
  }
  EXPECT_GT(heard, 0u);
  EXPECT_GT(guard.counters().bytes_out.value, 0u) << "memory was never tight";
  EXPECT_EQ(guard.counters().steps, static_cast<std::uint64_t>(steps));
  keep_tensors(*model, guarded);
  EXPECT_EQ(guarded, plain);
}

INSTANTIATE_TEST_SUITE_P(Models, GuardAtRest, ::testing::Values("resnet18", "bert"),
                         [](const auto& the) { return std::string(the.param); });

}  // namespace
}  // namespace vedette::test::rest_test
