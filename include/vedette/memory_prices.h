// Prices of memory: the derivatives of the lower bound (vedette/bound.h) of a step's time.
//
// The bound is the largest of many sums, each linear in the sizes of tensors and in the capacity (without
// recomputation). So a byte less of memory costs at least its price, and a byte less of a tensor saves at most that.
//
// Thread rule: values.
#pragma once
#include <vector>

#include "vedette/model.h"

namespace vedette {

struct MemoryPrices {
  double waiting_ns = 0;               // of a step: the bound less the ops' times
  std::vector<double> tensor_ns;       // [tensor]: of it, for its bytes
  std::vector<double> op_ns_per_byte;  // [op]: of fast memory while the op runs
  std::vector<Span<OpIndex>> runs;     // of ops, first and last, whose waits add up; of two steps, the later first
};

}  // namespace vedette
