// What may come between the ops of a step while tensors of GPU memory are dropped at every opportunity: dropout,
// gradients of gradients, other sequences of ops, exceptions, evaluations, other streams, held tensors.
// Numbers are those of the run without a guard, and no access is a race.
#include <ATen/ATen.h>
#include <ATen/ops/native_dropout.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <thread>

#include "simulated_gpu/torch_device.h"
#include "support/torch_threads.h"
#include "support/whole_run.h"
#include "vedette/torch.h"

namespace vedette::testing::recompute_surprises_test {
namespace {

const c10::Device device(at::kCUDA, 0);

// Convolutions with batch normalisation (running statistics), ReLU in place, dropout, and a residual sum.
struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 4; ++i) {
      const std::string n = std::to_string(i);
      convolutions.push_back(
          register_module("conv" + n, torch::nn::Conv2d(torch::nn::Conv2dOptions(i == 0 ? 3 : 16, 16, 3).padding(1))));
      norms.push_back(register_module("norm" + n, torch::nn::BatchNorm2d(16)));
    }
    out = register_module("out", torch::nn::Linear(16, 10));
  }
  at::Tensor forward(at::Tensor x) {
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      at::Tensor y = norms[i](convolutions[i](x));
      y = torch::relu_(y);
      y = i % 2 == 0 || !is_training() ? at::dropout(y, 0.2, is_training())
                                       : std::get<0>(at::native_dropout(y, 0.2, true));  // takes no generator
      x = i == 0 ? y : x + y;
      if (between) between(x);
    }
    return out(x.mean({2, 3}));
  }
  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::BatchNorm2d> norms;
  torch::nn::Linear out{nullptr};
  std::function<void(const at::Tensor&)> between;
};

using Body = std::function<at::Tensor(Net&, const at::Tensor&, const at::Tensor&, std::int64_t)>;

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().cpu().contiguous();
  return {static_cast<const char*>(here.const_data_ptr()), here.nbytes()};
}

std::vector<std::string> train(Guard* guard, const Body& body) {  // losses, parameters, statistics, draws
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  if (guard != nullptr) guard->watch(*net), guard->watch(optimizer);
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < 7; ++i) {
    const auto one = [&] {
      optimizer.zero_grad();
      const at::Tensor x = torch::randn({8, 3, 16, 16}).to(device),
                       target = torch::randint(10, {8}, at::kLong).to(device);
      const at::Tensor loss = body(*net, x, target, i);
      optimizer.step();
      all.push_back(bytes_of(loss));
    };
    if (guard == nullptr) {
      one();
    } else {
      const auto step = guard->step();
      one();
    }
  }
  for (const auto& each : net->named_parameters()) all.push_back(bytes_of(each.value()));
  for (const auto& each : net->named_buffers()) all.push_back(bytes_of(each.value()));
  for (const c10::Device& of : {device, c10::Device(at::kCPU)})  // the next draws tell the generators' states
    all.push_back(
        bytes_of(torch::randint(std::numeric_limits<std::int64_t>::max(), {1}, at::dtype(at::kLong).device(of))));
  return all;
}

class GpuRecompute : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20});
    control().forget_races();
    compute_with_given_threads();
    impl.emplace(at::kCUDA);
  }
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(control().races(), std::vector<std::string>());
    }
  }

  // `guarded`: the body under the guard, where it does more than the plain one.
  void expect_same(const Body& body, const std::function<Body(Guard&)>& guarded = {}) {
    static_cast<void>(at::zeros({1}, device));  // now the device's allocator is there
    auto* const allocator = c10::getDeviceAllocator(at::kCUDA);
    allocator->resetPeakStats(0);
    const std::vector<std::string> plain = train(nullptr, body);
    const auto peak = static_cast<std::uint64_t>(allocator->getDeviceStats(0).allocated_bytes[0].peak);
    for (const std::uint64_t percent : {100u, 50u}) {
      if (!whole_run() && percent == 100) continue;
      SCOPED_TRACE(std::to_string(percent) + " %");
      const Bytes budget{peak * percent / 100};
      Guard guard{{.fast_memory = budget,
                   .fast = "gpu:0",
                   .slow = "host",
                   .on_message = [](auto sentence) { ADD_FAILURE() << sentence; },
                   .recompute = Recompute::always}};
      const std::vector<std::string> inside = train(&guard, guarded ? guarded(guard) : body);
      ASSERT_EQ(inside.size(), plain.size());
      for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(inside[i] == plain[i]) << "value " << i;
      const Counters counters = guard.counters();
      EXPECT_GT(counters.ops_recomputed, 0u);
      EXPECT_LE(counters.resident_max_bytes.value, budget.value);
      std::printf("%lu %%: %lu ops ran again, %.1f MiB recomputed; in %.1f MiB, out %.1f MiB\n",
                  static_cast<unsigned long>(percent), static_cast<unsigned long>(counters.ops_recomputed),
                  static_cast<double>(counters.bytes_recomputed.value) / 1048576,
                  static_cast<double>(counters.bytes_in.value) / 1048576,
                  static_cast<double>(counters.bytes_out.value) / 1048576);
      for (const PlannedStep& step : guard.session().planned_steps()) count(step.trace);
    }
  }
  void count(const Trace& trace) {
    for (const Op& op : trace.ops)
      if (op.runs_again.value_or(false)) ++run_again[op.name];
  }

  std::optional<c10::impl::VirtualGuardImpl> impl;  // of a device that is loaded
  std::map<std::string, int> run_again;             // how many ops of a name can
};

at::Tensor forward_and_backward(Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t) {
  at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
  loss.backward();
  return loss;
}

TEST_F(GpuRecompute, OfABatchNormDropoutAndReluInPlaceGivesTheSameBits) {
  expect_same(forward_and_backward);
  for (const char* const name : {"aten::native_batch_norm", "aten::relu_", "aten::native_dropout", "aten::bernoulli_"})
    EXPECT_GT(run_again[name], 0) << name;
}

TEST_F(GpuRecompute, OfAccumulatedGradientsGivesTheSameBits) {
  expect_same([](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    at::Tensor loss = forward_and_backward(net, x, target, i);
    return loss + forward_and_backward(net, x.flip(3), target, i).detach();
  });
}

TEST_F(GpuRecompute, OfADoubleBackwardGivesTheSameBits) {
  expect_same([](Net& net, at::Tensor x, const at::Tensor& target, std::int64_t) {
    x.requires_grad_(true);
    const at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
    const at::Tensor slope = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
    at::Tensor all = loss + slope.pow(2).sum();
    all.backward();
    return all;
  });
}

TEST_F(GpuRecompute, OfStepsThatChangeGivesTheSameBits) {
  expect_same([](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    if (i < 5) return forward_and_backward(net, x, target, i);
    return forward_and_backward(net, x.slice(2, 0, 8).contiguous(), target, i);  // another sequence of ops
  });
}

TEST_F(GpuRecompute, AroundAnEvaluationGivesTheSameBits) {
  expect_same([](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
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

TEST_F(GpuRecompute, AroundAnExceptionGivesTheSameBits) {
  expect_same([](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    at::Tensor kept;
    try {
      kept = net.forward(x);
      if (i % 3 == 2) kept.view({7, 7});  // no such shape
    } catch (const c10::Error&) {
    }
    return forward_and_backward(net, x, target, i);
  });
}

// An activation that is likely to be dropped by then is read on another stream, by an operator that is announced there.
TEST_F(GpuRecompute, ReadByAnotherStreamGivesTheSameBits) {
  const c10::Stream other = impl->getNewStream(device);
  const auto read_there = [&](const at::Tensor& tensor) {
    c10::Event before(at::kCUDA), after(at::kCUDA);
    before.record(impl->getStream(device));
    before.block(other);
    at::Tensor read;
    {
      const c10::StreamGuard there(other);
      const at::NoGradGuard no_graph;
      read = tensor * 2;
      after.record(other);
    }
    after.block(impl->getStream(device));
    return read.sum();
  };
  expect_same([&](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    std::vector<at::Tensor> seen;
    net.between = [&](const at::Tensor& each) { seen.push_back(each.detach()); };
    at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
    net.between = {};
    at::Tensor sum = at::zeros({}, device);
    for (const at::Tensor& each : seen) sum = sum + read_there(each) * 1e-6;
    seen.clear();
    loss.backward();
    return loss.detach() + sum + static_cast<double>(i);
  });
}

// What the program holds is made first, and has an address.
TEST_F(GpuRecompute, HeldByTheProgramGivesTheSameBits) {
  const Body body = [](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t i) {
    return forward_and_backward(net, x, target, i);
  };
  expect_same(body, [&](Guard& guard) -> Body {
    return [&guard](Net& net, const at::Tensor& x, const at::Tensor& target, std::int64_t) {
      std::vector<at::Tensor> seen;
      net.between = [&](const at::Tensor& each) { seen.push_back(each.detach()); };
      at::Tensor loss = torch::cross_entropy_loss(net.forward(x), target);
      net.between = {};
      for (const at::Tensor& each : seen) {
        const auto held = guard.resident(each);
        EXPECT_NE(each.const_data_ptr(), nullptr);
      }
      seen.clear();
      loss.backward();
      return loss;
    };
  });
}

}  // namespace
}  // namespace vedette::testing::recompute_surprises_test
