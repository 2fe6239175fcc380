// Units where tensors move whole: each tensor of a step is one, those that are born and die within one op included.
// Besides, all that happens in the step on one clock, since tensors are born and die between ops, too.
//
// Pure, deterministic. O(tensors + accesses).
#pragma once
#include <cstdint>
#include <vector>

#include "pack/units.h"

namespace vedette {

// Moments of a step: begins and ends of ops, births and deaths, each at a number of its own, in their order.
struct Moments {
  std::vector<Span<std::uint32_t>> ops;  // of each op, its begin and its end
  // Of each unit. Persistent ones live from 0 to `length`; one that dies before the next step's first op, to `length`.
  std::vector<Span<std::uint32_t>> lives;
  std::uint32_t length = 0;  // all moments are below
};

struct TensorUnits {
  Units units;  // a unit lies in whole chunks of its own
  Moments moments;
};

TensorUnits tensor_units(const StepLog& log, Bytes chunk);

}  // namespace vedette
