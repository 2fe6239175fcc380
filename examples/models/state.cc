// Walks over models and optimizers: see state.h.
#include "models/state.h"

#include <ATen/Context.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace vedette::examples {
namespace {

// Two lanes of multiplications and rotations, each word in both.
std::string digest(std::string_view bytes) {
  std::uint64_t a = 0x9e3779b97f4a7c15u ^ bytes.size(), b = 0xc2b2ae3d27d4eb4fu + bytes.size();
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    a = std::rotl(a ^ (word * 0x87c37b91114253d5u), 31) * 5 + 0x52dce729u;
    b = std::rotl(b + word, 27) * 0x2545f4914f6cdd1du;
    b ^= b >> 29;
  }
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a ^ (a >> 32)),
                static_cast<unsigned long long>(b ^ (b >> 31)));
  return text;
}

// On the CPU a dense tensor is read where it lies: no operator runs.
void give(const std::string& name, const at::Tensor& tensor,
          const std::function<void(const std::string&, std::string_view)>& each) {
  const at::NoGradGuard no_gradients;
  const at::Tensor here = (tensor.is_cpu() ? tensor : tensor.cpu()).contiguous();
  each(name, {static_cast<const char*>(here.const_data_ptr()), here.nbytes()});
}

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

void each_state(torch::optim::Optimizer& optimizer,
                const std::function<void(const std::string&, const at::Tensor&)>& each,
                const std::function<void(const std::string&, std::int64_t)>& count) {
  int number = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      const std::string name = "state" + std::to_string(number++);
      if (found == optimizer.state().end()) continue;
      const auto tensor = [&](const char* what, const at::Tensor& value) {
        if (value.defined()) each(name + what, value);
      };
      const auto steps = [&](std::int64_t value) {
        if (count) count(name + ".step", value);
      };
      torch::optim::OptimizerParamState* const state = found->second.get();
      if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(state)) {
        steps(adam->step());
        tensor(".exp_avg", adam->exp_avg());
        tensor(".exp_avg_sq", adam->exp_avg_sq());
        tensor(".max_exp_avg_sq", adam->max_exp_avg_sq());
      } else if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(state)) {
        steps(adamw->step());
        tensor(".exp_avg", adamw->exp_avg());
        tensor(".exp_avg_sq", adamw->exp_avg_sq());
        tensor(".max_exp_avg_sq", adamw->max_exp_avg_sq());
      } else if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropParamState*>(state)) {
        steps(rmsprop->step());
        tensor(".square_avg", rmsprop->square_avg());
        tensor(".momentum_buffer", rmsprop->momentum_buffer());
        tensor(".grad_avg", rmsprop->grad_avg());
      } else if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(state)) {
        tensor(".momentum_buffer", sgd->momentum_buffer());
      } else {
        throw std::logic_error("an optimizer whose state is not compared; add it to examples/models/state.cc");
      }
    }
  }
}

void each_bytes(Model& model, const std::function<void(const std::string&, std::string_view bytes)>& each) {
  for (const auto& item : model.module().named_parameters()) give(item.key(), item.value(), each);
  for (const auto& item : model.module().named_buffers()) give(item.key(), item.value(), each);
  int number = 0;
  for (torch::optim::Optimizer* const optimizer : model.optimizers()) {
    const std::string prefix = number++ == 0 ? "" : "optimizer" + std::to_string(number) + ".";
    each_state(
        *optimizer, [&](const std::string& name, const at::Tensor& tensor) { give(prefix + name, tensor, each); },
        [&](const std::string& name, std::int64_t steps) {
          each(prefix + name, {reinterpret_cast<const char*>(&steps), sizeof steps});
        });
  }
  for (const at::Tensor& parameter : model.module().parameters()) {
    if (!parameter.is_cpu())
      give("generator of the GPU", state_of(at::globalContext().defaultGenerator(parameter.device())), each);
    break;
  }
  give("generator", state_of(at::globalContext().defaultGenerator(at::kCPU)), each);
}

std::map<std::string, std::string> digests(Model& model) {
  std::map<std::string, std::string> all;
  each_bytes(model, [&](const std::string& name, std::string_view bytes) { all[name] = digest(bytes); });
  return all;
}

std::string first_difference(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b) {
  auto left = a.begin(), right = b.begin();
  for (; left != a.end() && right != b.end(); ++left, ++right) {
    if (left->first != right->first) return std::min(left->first, right->first);
    if (left->second != right->second) return left->first;
  }
  return left != a.end() ? left->first : right != b.end() ? right->first : "";
}

}  // namespace vedette::examples
