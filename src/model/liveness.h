// The life of each tensor, and its accesses. Thread rule: functions of their arguments.
#pragma once
#include <vector>

#include "vedette/model.h"

namespace vedette {

// lives[t]: the ops during which tensor t exists, [birth, death + 1). All ops for a persistent tensor; from its first
// write to its last access, or to the op that frees it, for the others; empty when no op writes it. O(accesses).
std::vector<Span<OpIndex>> lives(const Trace& trace);

// uses[t]: the ops that read or write tensor t, ascending, each once. O(accesses).
std::vector<std::vector<OpIndex>> uses(const Trace& trace);

// The tensors that op reads or writes, ascending, each once.
std::vector<TensorIndex> operands(const Op& op);

}  // namespace vedette
