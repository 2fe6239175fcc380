// Trains a small model and keeps what came out, bit by bit: every loss, parameter, buffer, optimizer state and the
// generator.
#pragma once
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "counting_allocator.h"
#include "models/model.h"
#include "models/state.h"
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

using examples::each_state;

inline void keep_tensors(examples::Model& model, Outcome& outcome) {
  examples::each_bytes(model, [&](const std::string& name, std::string_view bytes) { outcome.tensors[name] = bytes; });
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
