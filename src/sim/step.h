// One step of a trace, flattened for walking: operands with their accesses, births, deaths, uses. Made once, walked
// often. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/grouped.h"
#include "vedette/model.h"
#include "vedette/replay.h"

namespace vedette::sim {

struct Operand {
  std::uint32_t tensor = 0;
  bool read = false, write = false;
  Bytes used = {};  // of each piece, where the op uses it in place; 0: all of it
};

using Operands = std::vector<std::vector<Operand>>;  // of each op, by tensor

struct Step {
  Operands operands;
  Grouped births;                      // of each op: tensors that it writes first (not persistent)
  Grouped deaths;                      // of each op: tensors that are dead after it (not persistent)
  Grouped uses;                        // of each tensor: ops, ascending
  std::vector<std::uint32_t> born_at;  // [tensor]: its first op; the largest number where it persists or has none
};

std::vector<Operand> operands_of(const Op& op);
Step flatten(const Trace&);

// The first use at or after `from`, counted on into the next step; the largest number where the tensor is used no more.
std::uint64_t next_use(const Step& step, const Trace& trace, std::uint32_t tensor, std::uint32_t from);

// How long the op takes in the step of this number: its time, with the options' noise.
std::int64_t noisy_time(const Op& op, std::uint32_t index, std::uint64_t step_number, const ReplayOptions& options);

}  // namespace vedette::sim
