// Ways to step.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <map>

#include "foreign/programs.h"

namespace vedette::test::foreign {
namespace {

namespace F = nn::functional;
using Adam = torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

constexpr std::int64_t samples = 32, features = 192, classes = 10;

nn::Sequential network() {
  return nn::Sequential(nn::Linear(features, 2 * features), nn::BatchNorm1d(2 * features), nn::ReLU(),
                        nn::Linear(2 * features, features), nn::LayerNorm(nn::LayerNormOptions({features})), nn::Mish(),
                        nn::Linear(features, classes));
}

at::Tensor loss_of(nn::Sequential& net) {
  const at::Tensor images = torch::randn({samples, features}),
                   labels = torch::randint(classes, {samples}, torch::kLong);
  return F::cross_entropy(net->forward(images), labels, F::CrossEntropyFuncOptions().label_smoothing(0.1));
}

void copy_parameters(const nn::Sequential& from, const nn::Sequential& to) {
  const torch::NoGradGuard no_gradients;
  const auto source = from->named_parameters(), target = to->named_parameters();
  for (const auto& item : target) item.value().detach().copy_(source[item.key()]);
}

// Forward in bfloat16, parameters and their gradients in float32.
void bf16_autocast(Trial& run) {
  nn::Sequential net = network();
  Adam adam(net->parameters(), AdamOptions(1e-3));
  run.watch(*net);
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      const at::Tensor loss = loss_of(net);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss.to(torch::kFloat));
    });
  }
  run.keep(*net);
  run.keep(adam);
}

// A teacher that is the moving average of its student, and teaches it.
void mean_teacher(Trial& run) {
  nn::Sequential student = network(), teacher = network();
  copy_parameters(student, teacher);
  SGD sgd(student->parameters(), SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(1e-4));
  run.watch(*student, "student");
  run.watch(*teacher, "teacher");
  run.watch(sgd);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor images = torch::randn({samples, features});
      at::Tensor wanted;
      {
        const torch::NoGradGuard no_gradients;
        wanted = teacher->forward(images + 0.1 * torch::randn_like(images)).softmax(1);
      }
      const at::Tensor loss = loss_of(student) + F::mse_loss(student->forward(images).softmax(1), wanted);
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      const torch::NoGradGuard no_gradients;
      const auto from = student->parameters(), to = teacher->parameters();
      for (std::size_t p = 0; p < from.size(); ++p) to[p].mul_(0.9).add_(from[p], 0.1);
      run.keep(loss);
    });
  }
  run.keep(*student, "student.");
  run.keep(*teacher, "teacher.");
}

// Stochastic weight averaging: means of weights every other step, then statistics of the averaged network.
void weight_averaging(Trial& run) {
  nn::Sequential net = network(), average = network();
  copy_parameters(net, average);
  SGD sgd(net->parameters(), SGDOptions(0.1));
  run.watch(*net, "net");
  run.watch(*average, "average");
  run.watch(sgd);
  int averaged = 1;
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor loss = loss_of(net);
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      run.keep(loss);
      if (i % 2 == 0) return;
      const torch::NoGradGuard no_gradients;
      const auto from = net->parameters(), to = average->parameters();
      for (std::size_t p = 0; p < from.size(); ++p) to[p].add_((from[p] - to[p]) / (averaged + 1));
      ++averaged;
    });
  }
  run.within([&] {
    const torch::NoGradGuard no_gradients;
    for (int i = 0; i < 4; ++i) run.keep(loss_of(average));
  });
  run.keep(*average);
}

// Several evaluations of the loss a step, and a history of them.
void lbfgs(Trial& run) {
  nn::Sequential net(nn::Linear(features, features), nn::Tanh(), nn::Linear(features, 4));
  torch::optim::LBFGS optimizer(
      net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4).history_size(5).line_search_fn("strong_wolfe"));
  run.watch(*net);
  const at::Tensor inputs = torch::randn({samples, features}), wanted = torch::randn({samples, 4});
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const auto closure = [&] {
        optimizer.zero_grad();
        const at::Tensor loss = F::mse_loss(net->forward(inputs), wanted);
        loss.backward();
        return loss;
      };
      run.keep(optimizer.step(closure));
    });
  }
  run.keep(*net);
}

using Weights = std::vector<at::Tensor>;
at::Tensor with_weights(const Weights& w, const at::Tensor& x) {
  return F::linear(torch::relu(F::linear(torch::relu(F::linear(x, w[0], w[1])), w[2], w[3])), w[4], w[5]);
}

// Model-agnostic meta-learning: a task's steps are differentiated, second derivatives included.
void maml(Trial& run) {
  nn::Sequential net(nn::Linear(1, features), nn::ReLU(), nn::Linear(features, features), nn::ReLU(),
                     nn::Linear(features, 1));
  Adam adam(net->parameters(), AdamOptions(1e-3));
  run.watch(*net);
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      adam.zero_grad();
      at::Tensor total = torch::zeros({});
      for (int task = 0; task < 3; ++task) {
        const at::Tensor shift = torch::rand({1}) * 3, x = torch::randn({16, 1}), other = torch::randn({16, 1});
        Weights fast = net->parameters();
        for (int inner = 0; inner < 2; ++inner) {
          const at::Tensor loss = F::mse_loss(with_weights(fast, x), torch::sin(x + shift));
          const auto slopes = torch::autograd::grad({loss}, fast, {}, true, true);
          for (std::size_t p = 0; p < fast.size(); ++p) fast[p] = fast[p] - 0.01 * slopes[p];
        }
        total = total + F::mse_loss(with_weights(fast, other), torch::sin(other + shift));
      }
      total.backward();
      adam.step();
      run.keep(total);
    });
  }
  run.keep(*net);
  run.keep(adam);
}

// A large frozen layer with small ones of low rank beside it, which alone are trained, in two groups of their own
// rates.
void low_rank_adaptation(Trial& run) {
  struct Adapted : nn::Module {
    Adapted() {
      register_module("base", base);
      register_module("head", head);
      base->weight.set_requires_grad(false);
      base->bias.set_requires_grad(false);
      down = register_parameter("down", torch::randn({8, 512}) * 0.01);
      up = register_parameter("up", torch::zeros({512, 8}));
    }
    at::Tensor forward(const at::Tensor& x) {
      return head->forward(torch::gelu(base->forward(x) + F::linear(F::linear(x, down), up)));
    }
    nn::Linear base{512, 512}, head{512, classes};
    at::Tensor down, up;
  };
  Adapted model;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{model.down, model.up});
  groups.emplace_back(model.head->parameters(), std::make_unique<torch::optim::AdamWOptions>(1e-4));
  torch::optim::AdamW adam(groups, torch::optim::AdamWOptions(1e-2).amsgrad(true));
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor loss =
          F::cross_entropy(model.forward(torch::randn({64, 512})), torch::randint(classes, {64}, torch::kLong));
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

}  // namespace

std::vector<Program> optimizer_programs() {
  return {{"bf16_autocast", bf16_autocast},
          {"mean_teacher", mean_teacher},
          {"weight_averaging", weight_averaging},
          {"lbfgs", lbfgs},
          {"maml", maml},
          {"low_rank_adaptation", low_rank_adaptation}};
}

}  // namespace vedette::test::foreign
