// Steps of kinds that are not among the given traces, as programs of these kinds make them: which tensors, how large,
// in what order, for how long. Sizes and times are those of one fast accelerator. The same call gives the same trace.
#pragma once
#include <cstdint>

#include "vedette/model.h"

namespace vedette::testing {

// A mixture of experts: in each layer the tokens are shared out unevenly among experts whose weights, gradients and
// Adam moments are most of the memory.
Trace experts_step(std::uint32_t layers, std::uint32_t experts);

// Adapters of low rank beside large weights that no op changes.
Trace adapters_step(std::uint32_t layers);

// Many small ops in eager mode: elementwise ones with results of their own, an optimizer of five ops a parameter.
Trace eager_step(std::uint32_t blocks);

// `fast` over a middle tier of `middle` over a slow tier without end: links of 15.75 and 3.2 GB/s, those of one
// direction share a bus.
Machine with_middle_tier(Bytes fast, Bytes middle);

// `fast` over a disk of 2.4 GB/s whose directions take turns.
Machine on_a_disk(Bytes fast);

}  // namespace vedette::testing
