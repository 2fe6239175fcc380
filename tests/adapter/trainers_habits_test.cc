// What trainers of data parallel and of fine-tuned models bring: lists of parameters in one operator, fused optimizer
// steps, collectives, hooks that wait for gradients, weights in mapped files, and several ranks on a machine.
#include <ATen/MapAllocator.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "adapter/training.h"

namespace vedette::test::trainers_habits_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int64_t side = 256;  // 256 KiB a tensor
constexpr std::size_t parameters = 16;

GuardOptions tight(std::uint64_t budget) {
  return {.fast_memory = Bytes{budget}, .slow = "host", .chunk = small_chunk};
}

struct Lists {
  std::vector<at::Tensor> parameters, gradients, first, second, most, steps;
};

Lists make_lists() {
  torch::manual_seed(3);
  Lists lists;
  for (std::size_t i = 0; i < parameters; ++i) {
    lists.parameters.push_back(at::randn({side, side}));
    lists.gradients.push_back(at::randn({side, side}));
    lists.first.push_back(at::zeros({side, side}));
    lists.second.push_back(at::zeros({side, side}));
    lists.steps.push_back(at::zeros({}));
  }
  return lists;
}

void step_fused(Lists& lists) {
  at::_foreach_add_(lists.steps, 1);
  at::_fused_adam_(lists.parameters, lists.gradients, lists.first, lists.second, lists.most, lists.steps, 1e-2, 0.9,
                   0.99, 0.01, 1e-8, false, false, {}, {});
}

void step_by_lists(Lists& lists) { at::_foreach_add_(lists.parameters, lists.gradients, -1e-2); }

// As GradScaler's, with an infinite gradient among finite ones; the parameters stand for gradients.
void step_unscaling(Lists& lists) {
  lists.parameters[3].select(0, 0).fill_(INFINITY);
  at::Tensor found = at::zeros({1});
  at::_amp_foreach_non_finite_check_and_unscale_(lists.parameters, found, at::full({1}, 0.9));
  lists.first[0].add_(found);
}

std::string bytes_of_all(const Lists& lists) {
  std::string all;
  for (const auto* list : {&lists.parameters, &lists.first, &lists.second})
    for (const at::Tensor& tensor : *list) all += bytes_of(tensor);
  return all;
}

template <class Step>
std::string train_plain(Step step) {
  Lists lists = make_lists();
  for (int s = 0; s < 8; ++s) step(lists);
  return bytes_of_all(lists);
}

struct Ran {
  std::string bytes;
  std::size_t ops = 0;  // of the plan's step; 0: there is none
  Counters counters;
};

// All lists together take four times the budget.
template <class Step>
Ran train_guarded(Step step, std::uint64_t budget) {
  Guard guard(tight(budget));
  Lists lists = make_lists();
  for (int s = 0; s < 8; ++s) {
    const auto scope = guard.step();
    step(lists);
  }
  const auto plans = guard.session().planned_steps();
  return {.bytes = bytes_of_all(lists),
          .ops = plans.size() == 1 ? plans[0].program.ops.size() : 0,
          .counters = guard.counters()};
}

TEST(Lists, AFusedOptimizerStepGoesTensorByTensorWithTheSameBits) {
  const Ran ran = train_guarded(step_fused, 4 << 20);
  EXPECT_TRUE(ran.bytes == train_plain(step_fused));
  EXPECT_EQ(ran.ops, 2 * parameters);  // counts of steps, and parameters
  EXPECT_GT(ran.counters.bytes_in.value, 0u);
}

TEST(Lists, TheCheckOfAScalerGoesTensorByTensorWithTheSameBits) {
  const Ran ran = train_guarded(step_unscaling, 2 << 20);
  EXPECT_TRUE(ran.bytes == train_plain(step_unscaling));
  EXPECT_EQ(ran.ops, parameters + 4);  // what fills the infinite one, the number found, the scale, and the sum
  EXPECT_GT(ran.counters.bytes_in.value, 0u);
}

TEST(Lists, ForeachOperatorsAreTheOperatorsOfTheirTensors) {
  const Ran ran = train_guarded(step_by_lists, 2 << 20);
  EXPECT_TRUE(ran.bytes == train_plain(step_by_lists));
  EXPECT_EQ(ran.ops, parameters);
  EXPECT_GT(ran.counters.bytes_in.value, 0u);
}

TEST(Lists, TheFusedStepKeepsItsBitsWhenTheGuardIsGone) {
  const std::string plain = train_plain(step_fused);
  { Guard guard(tight(4 << 20)); }
  EXPECT_TRUE(plain == train_plain(step_fused));
}

class Done final : public c10d::Work {
 public:
  Done() { finish(); }
  bool wait(std::chrono::milliseconds) override { return true; }
};

class Alone final : public c10d::Backend {  // collectives that do nothing
 public:
  Alone() : c10d::Backend(0, 2) {}
  const std::string getBackendName() const override { return "alone"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>&, std::vector<at::Tensor>&,
                                           const c10d::AllgatherOptions&) override {
    return c10::make_intrusive<Done>();
  }
};

TEST(Collectives, WriteTheirTensorsWhateverTheirSchemasSay) {
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(/*rank=*/0, /*size=*/2);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, c10::make_intrusive<Alone>());
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  Guard guard(tight(2 << 20));
  std::vector<at::Tensor> gradients = {at::ones({side, side})}, inputs = {at::ones({side, side})};
  std::vector<std::vector<at::Tensor>> outputs = {{at::ones({side, side}), at::ones({side, side})}};
  std::vector<at::Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(at::ones({side, side}));  // so that there is something to plan
  for (int s = 0; s < 5; ++s) {
    const auto step = guard.step();
    group->allreduce(gradients)->wait();
    group->allgather(outputs, inputs)->wait();
    for (at::Tensor& other : others) other.add_(1);
  }
  const auto steps = guard.session().planned_steps();
  ASSERT_EQ(steps.size(), 1u);
  const auto written_by = [&](const std::string& name) {
    for (const Op& op : steps[0].program.ops)
      if (op.name.find(name) != op.name.npos) return op.writes.size();
    return std::size_t{0};
  };
  EXPECT_EQ(written_by("allreduce"), 1u);
  EXPECT_EQ(written_by("allgather"), 3u);
}

struct WaitsForAGradient final : torch::autograd::FunctionPostHook {  // as the Reducer's hook
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    return outputs;
  }
};

TEST(Hooks, AStepInBackwardBesideAReducerIsRefused) {
  torch::nn::Linear linear(4, 4);
  torch::optim::SGD optimizer(linear->parameters(), 0.1);
  const auto loss = [&] { return linear->forward(at::ones({2, 4})).sum(); };
  step_in_backward(optimizer, [&] { loss().backward(); });  // alone it works
  const auto accumulator = torch::autograd::impl::grad_accumulator(linear->weight);
  accumulator->add_post_hook(std::make_unique<WaitsForAGradient>());
  const std::string before = bytes_of(linear->weight);
  try {
    step_in_backward(optimizer, [&] { loss().backward(); });
    FAIL() << "stepped beside another hook";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("Reducer"));
  }
  EXPECT_EQ(bytes_of(linear->weight), before);
}

TEST(MappedFiles, WeightsOfAFileLeaveItWhenTheyAreWatched) {
  const auto path = std::filesystem::temp_directory_path() / ("vedette-weights-" + std::to_string(::getpid()));
  constexpr std::int64_t count = 64 * 64;
  {
    std::vector<float> weights(2 * count);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
    std::ofstream(path).write(reinterpret_cast<const char*>(weights.data()),
                              static_cast<std::streamsize>(weights.size() * sizeof(float)));
  }
  // One storage is the whole file, its tensors are parts, as safetensors has them.
  const at::Tensor file = at::from_file(path.string(), false, 2 * count, at::kFloat);
  torch::nn::Module model("model");
  const at::Tensor first = model.register_parameter("first", file.slice(0, count, 2 * count).view({64, 64}));
  const at::Tensor tied = model.register_parameter("tied", file.slice(0, count, 2 * count).view({64, 64}));
  std::vector<std::string> said;
  auto options = tight(4 << 20);
  options.on_message = [&](std::string_view sentence) { said.emplace_back(sentence); };
  Guard guard(options);
  guard.watch(model);
  EXPECT_TRUE(Session::owns(first.const_data_ptr()));
  EXPECT_EQ(first.const_data_ptr(), tied.const_data_ptr());
  EXPECT_EQ(first.storage().nbytes(), first.nbytes());
  EXPECT_EQ(first.flatten()[5].item<float>(), static_cast<float>(count + 5));
  {
    const torch::NoGradGuard no_gradients;
    first.zero_();
  }
  EXPECT_EQ(tied.sum().item<float>(), 0.0f);
  EXPECT_EQ(file[count + 5].item<float>(), static_cast<float>(count + 5));
  EXPECT_THAT(said, ::testing::Not(Contains(HasSubstr("did not allocate"))));
  std::filesystem::remove(path);
}

TEST(MappedFiles, AFileThatIsSharedStaysWhereItIs) {
  const auto path = std::filesystem::temp_directory_path() / ("vedette-shared-" + std::to_string(::getpid()));
  const at::Tensor file = at::from_file(path.string(), true, 64 * 64, at::kFloat);
  torch::nn::Linear linear(64, 64);
  linear->weight.set_data(file.view({64, 64}));
  std::vector<std::string> said;
  auto options = tight(4 << 20);
  options.on_message = [&](std::string_view sentence) { said.emplace_back(sentence); };
  Guard guard(options);
  guard.watch(*linear);
  EXPECT_FALSE(Session::owns(linear->weight.const_data_ptr()));
  EXPECT_THAT(said, Contains(HasSubstr("did not allocate")));
  std::filesystem::remove(path);
}

struct LocalRanks {  // as torchrun says it
  explicit LocalRanks(const char* text) { ::setenv("LOCAL_WORLD_SIZE", text, 1); }
  ~LocalRanks() { ::unsetenv("LOCAL_WORLD_SIZE"); }
};

TEST(Ranks, DivideAFractionOfTheMachine) {
  const Bytes alone = fraction(0.5);
  {
    const LocalRanks four("4");
    EXPECT_EQ(Bytes(fraction(0.5)), Bytes{alone.value / 4});
  }
  for (const char* wrong : {"", "0", "-1", "four", "3x", "99999999999"}) {
    const LocalRanks none(wrong);
    EXPECT_EQ(Bytes(fraction(0.5)), alone) << wrong;
  }
}

TEST(Ranks, AreToldOfTheirShareOfTheMemory) {
  const LocalRanks many("64");
  std::vector<std::string> said;
  const auto listen = [&](std::string_view sentence) { said.emplace_back(sentence); };
  { Guard guard({.fast_memory = fraction(0.01), .slow = "host", .chunk = small_chunk, .on_message = listen}); }
  EXPECT_THAT(said, Contains(HasSubstr("64 ranks of this machine (LOCAL_WORLD_SIZE)")));
  said.clear();
  { Guard guard({.fast_memory = 4_MiB, .slow = "host", .chunk = small_chunk, .on_message = listen}); }
  EXPECT_THAT(said, ::testing::Not(Contains(HasSubstr("ranks"))));
}

struct Links final : Observer {
  void opened(const Machine& machine, std::string_view, Bytes, Bytes) override {
    read_bytes_per_s = machine.links.at(0).bytes_per_s;
  }
  std::uint64_t read_bytes_per_s = 0;
};

TEST(Ranks, PlanWithTheirShareOfTheDisk) {
  const auto speed_for = [](std::uint32_t ranks) {
    const LocalRanks told(std::to_string(ranks).c_str());
    Links links;
    GuardOptions options = tight(4 << 20);
    options.slow = "nvme:" + std::filesystem::temp_directory_path().string();
    options.observer = &links;
    { const Guard guard(options); }
    return links.read_bytes_per_s;
  };
  // The disk's speed swings by a factor of four, and not by a hundred.
  EXPECT_GT(speed_for(2), 20 * speed_for(4000));
}

TEST(Steps, FitAnOptional) {
  Guard guard(tight(4 << 20));
  std::optional<Guard::Step> step;
  for (int s = 0; s < 3; ++s) {
    step.emplace(guard);
    (void)at::ones({side, side}).sum().item<float>();
    step.reset();
  }
  EXPECT_EQ(guard.counters().steps, 3u);
}

}  // namespace
}  // namespace vedette::test::trainers_habits_test
