// Random but sound training steps: forward, backward, optimizer, with weights, moments, activations kept for backward,
// tensors that live inside one layer, workspace. The same seed and shape give the same trace, on every machine.
#pragma once
#include <cstdint>

#include "vedette/model.h"

namespace vedette::testing {

struct TraceShape {
  enum class Kind : std::uint8_t { chain, residual, unet } kind = Kind::chain;
  std::uint32_t layers = 4;
  std::uint32_t short_lived = 2;  // per layer and direction
  Bytes largest_activation = {std::uint64_t{1} << 20};
  Bytes largest_weight = {std::uint64_t{512} << 10};
  std::uint32_t moments = 2;  // of the optimizer, per weight: 0 SGD, 1 momentum, 2 Adam
  bool frees = false;         // deaths are told by `frees` instead of by last accesses
  bool plain_sizes = false;   // all sizes are the largest, all times 1 ms: for traces that people read
};

Trace generate_trace(std::uint64_t seed, const TraceShape& shape);
// A shape drawn from the seed: small enough to check in milliseconds.
TraceShape random_shape(std::uint64_t seed);

}  // namespace vedette::testing
