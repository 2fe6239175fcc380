// Trains a small model and keeps what came out, bit by bit: every loss, parameter, buffer and optimizer state.
#pragma once
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "counting_allocator.h"
#include "models/model.h"
#include "vedette/torch.h"

namespace vedette::test {

// In force before main, and so before any guard: plain runs are counted, guarded ones are not; and plain runs compute
// as guarded ones do.
inline const bool plain_runs_are_counted = (examples::count_allocations(), true);
inline const bool plain_runs_are_exact = (resolve_vector_math(), true);

struct Outcome {
  std::vector<std::uint32_t> losses;           // bit patterns
  std::map<std::string, std::string> tensors;  // bytes by name
  bool operator==(const Outcome&) const = default;
};

inline std::string bytes_of(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) throw std::logic_error("only contiguous tensors are compared");
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Calls each(name, tensor) for the state that the small models' optimizers have.
inline void each_state(torch::optim::Optimizer& optimizer,
                       const std::function<void(const std::string&, const at::Tensor&)>& each) {
  int number = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      const std::string name = "state" + std::to_string(number++);
      if (found == optimizer.state().end()) continue;
      torch::optim::OptimizerParamState* const state = found->second.get();
      if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(state)) {
        each(name + ".exp_avg", adam->exp_avg());
        each(name + ".exp_avg_sq", adam->exp_avg_sq());
      } else if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(state)) {
        each(name + ".exp_avg", adamw->exp_avg());
        each(name + ".exp_avg_sq", adamw->exp_avg_sq());
      } else if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropParamState*>(state)) {
        each(name + ".square_avg", rmsprop->square_avg());
        if (rmsprop->momentum_buffer().defined()) each(name + ".momentum_buffer", rmsprop->momentum_buffer());
      } else if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(state)) {
        if (sgd->momentum_buffer().defined()) each(name + ".momentum_buffer", sgd->momentum_buffer());
      } else {
        throw std::logic_error("an optimizer whose state nobody compares");
      }
    }
  }
}

inline void keep_tensors(examples::Model& model, Outcome& outcome) {
  for (const auto& item : model.module().named_parameters()) outcome.tensors[item.key()] = bytes_of(item.value());
  for (const auto& item : model.module().named_buffers()) outcome.tensors[item.key()] = bytes_of(item.value());
  int number = 0;
  for (torch::optim::Optimizer* const optimizer : model.optimizers()) {
    const std::string prefix = number++ == 0 ? "" : "optimizer" + std::to_string(number) + ".";
    each_state(*optimizer, [&](const std::string& name, const at::Tensor& tensor) {
      outcome.tensors[prefix + name] = bytes_of(tensor);
    });
  }
}

// "FILE.pt": the TorchScript model in that file.
inline std::unique_ptr<examples::Model> small(std::string_view name) {
  if (name.ends_with(".pt"))
    return examples::make_model("script", {.small = true, .seed = 7, .script = std::string(name)});
  return examples::make_model(name, {.small = true, .seed = 7, .script = {}});
}

inline void train(examples::Model& model, std::int64_t first, std::int64_t last, Outcome& outcome,
                  Guard* guard = nullptr) {
  for (std::int64_t i = first; i < last; ++i) {
    if (guard == nullptr) {
      outcome.losses.push_back(std::bit_cast<std::uint32_t>(model.train_step(i)));
    } else {
      const auto step = guard->step();
      outcome.losses.push_back(std::bit_cast<std::uint32_t>(model.train_step(i)));
    }
  }
}

struct Plain {
  Outcome outcome;
  std::uint64_t peak_bytes = 0;
};
inline Plain train_plain(std::string_view name, std::int64_t steps) {
  Plain plain;
  examples::forget_peak();
  const auto model = small(name);
  train(*model, 0, steps, plain.outcome);
  plain.peak_bytes = examples::counted_peak_bytes();
  keep_tensors(*model, plain.outcome);
  return plain;
}

constexpr Bytes small_chunk = {std::uint64_t{64} << 10};

}  // namespace vedette::test
