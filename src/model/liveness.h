// The life of each tensor, its accesses, and the bytes of its parts. Thread rule: functions of their arguments.
#pragma once
#include <vector>

#include "vedette/model.h"

namespace vedette {

// lives[t]: the ops during which tensor t exists, [birth, death + 1). All ops for a persistent tensor; from its first
// write to its last access, or to the op that frees it, for the others; empty when no op writes it. O(accesses).
std::vector<Span<OpIndex>> lives(const Trace& trace);

// uses[t]: the ops that read or write tensor t, ascending, each once. O(accesses).
std::vector<std::vector<OpIndex>> uses(const Trace& trace);

// Those of the tensor that a move takes.
inline Bytes bytes_of(const Extent& extent, const Trace& trace) {
  return extent.part ? extent.part->end - extent.part->begin : trace.tensors[extent.tensor.value].bytes;
}

// The tensors that op reads or writes, ascending, each once.
std::vector<TensorIndex> operands(const Op& op);

}  // namespace vedette
