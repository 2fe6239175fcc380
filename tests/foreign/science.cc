// Sparse, complex, differential equations, compiled, quantized, agents.
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/fft.h>
#include <torch/jit.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "foreign/programs.h"

namespace vedette::test::foreign {
namespace {

namespace F = nn::functional;
using Adam = torch::optim::Adam;
using torch::optim::AdamOptions;

// A graph convolution over a sparse matrix of neighbours.
void sparse_graph(Trial& run) {
  constexpr std::int64_t nodes = 1024, edges = 6000, width = 64;
  nn::Linear first(width, width), second(width, 7);
  nn::Module model("graph");
  model.register_module("first", first);
  model.register_module("second", second);
  Adam adam(model.parameters(), AdamOptions(1e-2));
  run.watch(model);
  run.watch(adam);
  const at::Tensor neighbours =
      torch::sparse_coo_tensor(torch::randint(nodes, {2, edges}, torch::kLong), torch::rand({edges}), {nodes, nodes})
          .coalesce();
  const at::Tensor features = torch::randn({nodes, width}), labels = torch::randint(7, {nodes}, torch::kLong);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor hidden = torch::relu(torch::mm(neighbours, first->forward(features)));
      const at::Tensor scores = torch::mm(neighbours, second->forward(torch::dropout(hidden, 0.3, true)));
      const at::Tensor loss = F::nll_loss(scores.log_softmax(1), labels);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

// Layers that multiply in the Fourier domain by complex weights.
void fourier_operator(Trial& run) {
  static constexpr std::int64_t channels = 16, points = 128, modes = 24;
  struct Model : nn::Module {
    Model() {
      register_module("lift", lift);
      register_module("project", project);
      for (int l = 0; l < 3; ++l)
        weights.push_back(register_parameter("weight" + std::to_string(l),
                                             torch::randn({channels, channels, modes}, torch::kComplexFloat) * 0.05));
    }
    at::Tensor forward(const at::Tensor& input) {
      at::Tensor x = lift->forward(input).transpose(1, 2);
      for (const at::Tensor& weight : weights) {
        const at::Tensor spectrum = torch::fft::rfft(x);
        const at::Tensor low = torch::einsum("bim,iom->bom", {spectrum.slice(2, 0, modes), weight});
        x = torch::gelu(x + torch::fft::irfft(F::pad(low, F::PadFuncOptions({0, points / 2 + 1 - modes})), points));
      }
      return project->forward(x.transpose(1, 2)).squeeze(-1);
    }
    nn::Linear lift{2, channels}, project{channels, 1};
    std::vector<at::Tensor> weights;
  };
  Model model;
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  run.watch(model);
  run.watch(sgd);
  const at::Tensor grid = torch::linspace(0, 1, points).expand({16, points});
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor field = torch::randn({16, points}).cumsum(1) / 10;
      const at::Tensor loss = F::mse_loss(model.forward(torch::stack({field, grid}, -1)), field.roll(1, 1));
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      run.keep(loss);
    });
  }
  for (const auto& item : model.named_parameters())
    run.keep(item.key(), item.value().is_complex() ? torch::view_as_real(item.value()) : item.value());
}

// A neural differential equation; how many steps its solver takes depends on the numbers.
void adaptive_solver(Trial& run) {
  constexpr std::int64_t width = 128;
  nn::Sequential field(nn::Linear(width, width), nn::Tanh(), nn::Linear(width, width));
  Adam adam(field->parameters(), AdamOptions(3e-3));
  run.watch(*field);
  run.watch(adam);
  const at::Tensor begin = torch::randn({64, width}), end = torch::randn({64, width});
  int taken = 0;
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      at::Tensor x = begin;
      double t = 0, h = 0.3;
      while (t < 1) {
        h = std::min(h, 1 - t);
        const at::Tensor k1 = field->forward(x), k2 = field->forward(x + h * k1);
        const double error = (0.5 * h * (k2 - k1)).detach().abs().max().item<double>();
        if (error > 0.05 && h > 0.05) {
          h *= 0.5;
          continue;
        }
        x = x + 0.5 * h * (k1 + k2);
        t += h;
        h *= error < 0.01 ? 1.5 : 1.0;
        ++taken;
      }
      const at::Tensor loss = F::mse_loss(x, end);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep("taken", torch::full({1}, taken, torch::kLong));
  run.keep(*field);
}

// A function that TorchScript compiles, profiles in its first calls and may fuse.
void compiled_function(Trial& run) {
  const auto unit = torch::jit::compile(R"(
def cell(x, h, w, u, b):
    gates = torch.mm(x, w) + torch.mm(h, u) + b
    i, f, g = torch.chunk(gates, 3, 1)
    return torch.sigmoid(f) * h + torch.sigmoid(i) * torch.tanh(g)

def roll(x, h, w, u, b):
    for t in range(x.size(0)):
        h = cell(x[t], h, w, u, b)
    return h
)");
  constexpr std::int64_t width = 96;
  nn::Module model("cell");
  const at::Tensor w = model.register_parameter("w", torch::randn({width, 3 * width}) * 0.05);
  const at::Tensor u = model.register_parameter("u", torch::randn({width, 3 * width}) * 0.05);
  const at::Tensor b = model.register_parameter("b", torch::zeros({3 * width}));
  Adam adam(model.parameters(), AdamOptions(1e-3));
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor x = torch::randn({12, 16, width});
      const at::Tensor h = unit->run_method("roll", x, torch::zeros({16, width}), w, u, b).toTensor();
      const at::Tensor loss = F::mse_loss(h, x[0]);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

// Training with weights and activations as their eight bits would be; then the quantized weights themselves.
void quantization_aware(Trial& run) {
  constexpr std::int64_t width = 192;
  nn::Linear first(width, width), second(width, 10);
  nn::Module model("quantized");
  model.register_module("first", first);
  model.register_module("second", second);
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.05));
  run.watch(model);
  run.watch(sgd);
  const auto scale_of = [](const at::Tensor& t) { return std::max(t.detach().abs().max().item<double>() / 127, 1e-6); };
  const auto rounded = [&](const at::Tensor& t) {
    return torch::fake_quantize_per_tensor_affine(t, scale_of(t), 0, -128, 127);
  };
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor x = rounded(torch::randn({64, width}));
      const at::Tensor hidden = rounded(torch::relu(F::linear(x, rounded(first->weight), first->bias)));
      const at::Tensor loss = F::cross_entropy(F::linear(hidden, rounded(second->weight), second->bias),
                                               torch::randint(10, {64}, torch::kLong));
      sgd.zero_grad();
      loss.backward();
      sgd.step();
      run.keep(loss);
    });
  }
  run.within([&] {
    const torch::NoGradGuard no_gradients;
    const at::Tensor scales = first->weight.abs().amax(1).to(torch::kDouble) / 127;
    const at::Tensor small =
        torch::quantize_per_channel(first->weight, scales, torch::zeros({width}, torch::kLong), 0, torch::kQInt8);
    run.keep("integers", small.int_repr());
    run.keep("again", small.dequantize());
  });
  run.keep(model);
}

// Q-learning from a memory of what happened, with a second network that follows.
void q_learning(Trial& run) {
  static constexpr std::int64_t seen = 64, actions = 4;
  const auto make = [] {
    return nn::Sequential(nn::Linear(seen, 256), nn::ReLU(), nn::Linear(256, 256), nn::ReLU(),
                          nn::Linear(256, actions));
  };
  nn::Sequential q = make(), target = make();
  Adam adam(q->parameters(), AdamOptions(1e-3));
  run.watch(*q, "q");
  run.watch(*target, "target");
  run.watch(adam);
  struct Event {
    at::Tensor before, action, reward, after;
  };
  std::deque<Event> memory;
  at::Tensor state = torch::randn({1, seen});
  for (int i = 0; i < 4 * steps; ++i) {
    run.within([&] {
      at::Tensor action;
      {
        const torch::NoGradGuard no_gradients;
        action = torch::rand({1}).item<float>() < 0.3F ? torch::randint(actions, {1}, torch::kLong)
                                                       : q->forward(state).argmax(1);
      }
      const at::Tensor next = 0.9 * state.roll(1, 1) + 0.1 * torch::randn({1, seen});
      memory.push_back({state, action, next.mean().view({1}), next});
      if (memory.size() > 24) memory.pop_front();
      state = next;
      if (memory.size() < 8) return;
      std::vector<at::Tensor> before, chosen, reward, after;
      const at::Tensor picks = torch::randint(static_cast<std::int64_t>(memory.size()), {16}, torch::kLong);
      for (int k = 0; k < 16; ++k) {
        const Event& event = memory[static_cast<std::size_t>(picks[k].item<std::int64_t>())];
        before.push_back(event.before);
        chosen.push_back(event.action);
        reward.push_back(event.reward);
        after.push_back(event.after);
      }
      at::Tensor wanted;
      {
        const torch::NoGradGuard no_gradients;
        wanted = torch::cat(reward) + 0.95 * std::get<0>(target->forward(torch::cat(after)).max(1));
      }
      const at::Tensor values = q->forward(torch::cat(before)).gather(1, torch::cat(chosen).unsqueeze(1)).squeeze(1);
      const at::Tensor loss = F::smooth_l1_loss(values, wanted);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
      if (i % 8 != 7) return;
      const torch::NoGradGuard no_gradients;
      const auto from = q->parameters(), to = target->parameters();
      for (std::size_t p = 0; p < from.size(); ++p) to[p].copy_(from[p]);
    });
  }
  run.keep(*q, "q.");
  run.keep("state", state);
}

}  // namespace

std::vector<Program> science_programs() {
  return {{"sparse_graph", sparse_graph},
          {"fourier_operator", fourier_operator},
          {"adaptive_solver", adaptive_solver},
          {"compiled_function", compiled_function},
          {"quantization_aware", quantization_aware},
          {"q_learning", q_learning}};
}

}  // namespace vedette::test::foreign
