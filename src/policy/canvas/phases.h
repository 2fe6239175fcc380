// Where backward begins, and the tensors that forward leaves for it: the shape of a training step that vDNN,
// FlashNeuron and others speak of. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "policy/canvas/ledger.h"

namespace vedette::planning {

// The first op that is marked backward; where none is, the op at which most bytes live, which is where forward ends in
// a training step.
std::uint32_t first_backward_op(const Trace& trace);

// For each tensor that is no parameter, born before `border` and used after it: the gap from its last use in forward to
// its first use in backward. In order of tensors.
std::vector<std::uint32_t> saved_gaps(const Ledger& ledger, std::uint32_t border);

// layer_of[i]: number of the run of consecutive ops of one layer and phase that op i belongs to, from 0.
std::vector<std::uint32_t> layer_numbers(const Trace& trace);

// Which ops are convolutions, by their names; where none is, those that read a weight. The layers that vDNN and
// SuperNeurons move for.
std::vector<bool> convolutions(const Trace& trace);

}  // namespace vedette::planning
