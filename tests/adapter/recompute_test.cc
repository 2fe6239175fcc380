// Training with every tensor dropped at every opportunity, and recomputed, gives the bits of training without a guard:
// losses, parameters, statistics, state of optimizers and of the generator.
#include <gtest/gtest.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/torch.h>

#include <limits>
#include <map>

#include "adapter/exported.h"
#include "adapter/training.h"
#include "support/torch_threads.h"
#include "support/whole_run.h"

namespace vedette::test::recompute_test {
namespace {

constexpr std::int64_t steps = 6;

GuardOptions dropping(std::uint64_t budget) {
  return {.fast_memory = Bytes{budget}, .slow = "host", .chunk = small_chunk, .recompute = Recompute::always};
}

// The next draw tells the generator's state.
std::int64_t next_draw() {
  return torch::randint(std::numeric_limits<std::int64_t>::max(), {1}, at::kLong).item<std::int64_t>();
}

void tell(const char* name, std::uint64_t percent, const Counters& counters) {
  std::printf("%s %lu %%: %lu ops again, %.1f MiB recomputed in %.1f ms; in %.1f MiB, out %.1f MiB, faults %lu\n", name,
              static_cast<unsigned long>(percent), static_cast<unsigned long>(counters.ops_recomputed),
              static_cast<double>(counters.bytes_recomputed.value) / 1048576,
              static_cast<double>(counters.recompute_ns) / 1e6, static_cast<double>(counters.bytes_in.value) / 1048576,
              static_cast<double>(counters.bytes_out.value) / 1048576, static_cast<unsigned long>(counters.faults));
}

struct Tried {
  std::uint32_t right = 0, all = 0;
};

// Of the step that ran last: how many of an operator's calls can run again.
std::map<std::string, Tried> tried(const Session& session) {
  std::map<std::string, Tried> by_name;
  for (const PlannedStep& step : session.planned_steps())
    for (const Op& op : step.trace.ops) {
      Tried& of = by_name[op.name];
      ++of.all;
      of.right += op.runs_again.value_or(false) ? 1 : 0;
    }
  return by_name;
}

// At a quarter of the memory some are too large to be tried.
void expect_usual_operators(const std::map<std::string, Tried>& by_name) {
  for (const char* name :
       {"aten::native_batch_norm", "aten::native_batch_norm_backward", "aten::native_layer_norm", "aten::bmm",
        "aten::gelu", "aten::relu_", "aten::masked_fill", "aten::bernoulli_", "aten::_softmax"})
    if (const auto found = by_name.find(name); found != by_name.end()) {
      EXPECT_GT(found->second.right * 2, found->second.all) << name;
    }
  for (const char* name : {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"})
    if (const auto found = by_name.find(name); found != by_name.end()) {
      EXPECT_EQ(found->second.right, 0u) << name;
    }
}

void expect_equal_bits(const std::string& name) {
  testing::compute_with_given_threads();
  const Plain plain = train_plain(name, steps);
  const std::int64_t drawn = next_draw();
  for (const std::uint64_t percent : {50U, 25U, 20U}) {
    if (!testing::whole_run() && percent == 25) continue;
    SCOPED_TRACE(std::to_string(percent) + " %");
    Outcome outcome;
    auto model = small(name);
    Guard guard{dropping(plain.peak_bytes * percent / 100)};
    guard.watch(model->module());
    for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard.watch(*optimizer);
    train(*model, 0, steps, outcome, &guard);
    keep_tensors(*model, outcome);  // the generator's state, too
    EXPECT_EQ(next_draw(), drawn);
    EXPECT_EQ(outcome.losses, plain.outcome.losses);
    for (const auto& [tensor, bytes] : plain.outcome.tensors)
      EXPECT_TRUE(outcome.tensors.at(tensor) == bytes) << tensor;
    tell(name.c_str(), percent, guard.counters());
    EXPECT_GT(guard.counters().ops_recomputed, 0u) << "nothing was recomputed";
    if (percent == 50) expect_usual_operators(tried(guard.session()));
  }
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, TrainsToTheSameBits) { expect_equal_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         ::testing::Values("mlp", "resnet18", "mobilenetv2", "vgg16", "dcgan", "lstm", "gpt", "bert",
                                           "recommender"),
                         [](const auto& the) { return std::string(the.param); });

class EveryExport : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryExport, TrainsToTheSameBits) {
  const Exported exported = export_model(GetParam());
  if (!exported.missing.empty()) GTEST_SKIP() << exported.missing;
  ASSERT_FALSE(exported.file.empty()) << "it was not exported";
  expect_equal_bits(exported.file);
}

INSTANTIATE_TEST_SUITE_P(Torchvision, EveryExport, ::testing::ValuesIn(exported_models),
                         [](const auto& the) { return std::string(the.param); });

// Convolutions with batch normalisation (running statistics), ReLU in place, dropout, and a residual sum.
struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 4; ++i) {
      const std::string n = std::to_string(i);
      convolutions.push_back(
          register_module("conv" + n, torch::nn::Conv2d(torch::nn::Conv2dOptions(i == 0 ? 3 : 32, 32, 3).padding(1))));
      norms.push_back(register_module("norm" + n, torch::nn::BatchNorm2d(32)));
    }
    out = register_module("out", torch::nn::Linear(32, 10));
  }
  at::Tensor forward(at::Tensor x) {
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      at::Tensor y = norms[i](convolutions[i](x));
      y = torch::relu_(y);
      y = torch::nn::functional::dropout(y, torch::nn::functional::DropoutFuncOptions().p(0.2).training(is_training()));
      x = i == 0 ? y : x + y;
    }
    return out(x.mean({2, 3}));
  }
  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::BatchNorm2d> norms;
  torch::nn::Linear out{nullptr};
};

struct Trained {
  std::vector<std::string> bytes;  // of losses, parameters, statistics
  std::int64_t drawn = 0;
  bool operator==(const Trained&) const = default;
};

using Body = std::function<at::Tensor(Net&, const at::Tensor&, const at::Tensor&, std::int64_t)>;

Trained train_net(Guard* guard, const Body& body) {
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  if (guard != nullptr) guard->watch(*net), guard->watch(optimizer);
  Trained trained;
  for (std::int64_t i = 0; i < 7; ++i) {
    const auto one = [&] {
      optimizer.zero_grad();
      const at::Tensor x = torch::randn({8, 3, 20, 20}), target = torch::randint(10, {8}, at::kLong);
      const at::Tensor loss = body(*net, x, target, i);
      optimizer.step();
      trained.bytes.push_back(bytes_of(loss.detach().contiguous()));
    };
    if (guard == nullptr) {
      one();
    } else {
      const auto step = guard->step();
      one();
    }
  }
  for (const auto& each : net->named_parameters()) trained.bytes.push_back(bytes_of(each.value()));
  for (const auto& each : net->named_buffers()) trained.bytes.push_back(bytes_of(each.value()));
  trained.drawn = next_draw();
  return trained;
}

// At every budget in a whole run, else at two of them.
void expect_same(const char* name, const Body& body) {
  testing::compute_with_given_threads();
  examples::forget_peak();
  const Trained plain = train_net(nullptr, body);
  const std::uint64_t peak = examples::counted_peak_bytes();
  for (const std::uint64_t percent : {100U, 50U, 25U, 20U}) {
    if (!testing::whole_run() && percent != 50 && percent != 20) continue;
    SCOPED_TRACE(std::to_string(percent) + " %");
    Guard guard{dropping(peak * percent / 100)};
    EXPECT_EQ(train_net(&guard, body), plain);
    tell(name, percent, guard.counters());
    EXPECT_GT(guard.counters().ops_recomputed, 0u) << "nothing was recomputed";
  }
}

at::Tensor forward_and_backward(Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t) {
  at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
  loss.backward();
  return loss;
}

TEST(Recompute, OfABatchNormDropoutAndReluInPlaceGivesTheSameBits) { expect_same("net", forward_and_backward); }

TEST(Recompute, OfAccumulatedGradientsGivesTheSameBits) {
  expect_same("accumulated", [](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    at::Tensor loss = forward_and_backward(net, x, target, i);
    return loss + forward_and_backward(net, x.flip(3), target, i).detach();
  });
}

TEST(Recompute, OfADoubleBackwardGivesTheSameBits) {
  expect_same("double", [](Net& net, at::Tensor x, const at::Tensor& target, std::int64_t) {
    x.requires_grad_(true);
    const at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
    const at::Tensor slope = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
    at::Tensor all = loss + slope.pow(2).sum();
    all.backward();
    return all;
  });
}

// The forward pass runs twice, the first time without a graph.
TEST(Recompute, OfACheckpointByHandGivesTheSameBits) {
  expect_same("checkpoint", [](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    {
      const at::NoGradGuard no_graph;
      net.forward(x);
    }
    return forward_and_backward(net, x, target, i);
  });
}

TEST(Recompute, OfStepsThatChangeGivesTheSameBits) {
  expect_same("changing", [](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    if (i < 5) return forward_and_backward(net, x, target, i);
    return forward_and_backward(net, x.slice(2, 0, 10).contiguous(), target, i);  // another sequence of ops
  });
}

TEST(Recompute, AroundAnEvaluationGivesTheSameBits) {
  expect_same("evaluation", [](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
    if (i % 3 == 2) {
      net.eval();
      const at::NoGradGuard no_graph;
      net.forward(x);
      net.train();
    }
    loss.backward();
    return loss;
  });
}

TEST(Recompute, AroundAnExceptionGivesTheSameBits) {
  expect_same("exception", [](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    at::Tensor kept;
    try {
      kept = net.forward(x);
      if (i % 3 == 2) kept.view({7, 7});  // no such shape
    } catch (const c10::Error&) {
    }
    return forward_and_backward(net, x, target, i);
  });
}

}  // namespace
}  // namespace vedette::test::recompute_test
