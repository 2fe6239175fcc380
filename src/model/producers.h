// Ops as producers: the ops that run when one is repeated to recompute a tensor. Of an op that changes tensors in place
// that is a chain, since the first op of the step that made them anew: batch_norm, then relu_. Every user of
// Plan::recomputations sees a chain as one op, whose operands are all that the chain reads from outside.
//
// Thread rule: functions of their arguments.
#pragma once
#include <vector>

#include "vedette/model.h"

namespace vedette {

// Of each op the producer that it ends. An op that changes nothing in place is its own producer. A chain's time is the
// sum over its ops, its workspace the largest; it writes all that they write, and reads all that none of them makes. It
// is replayable() if each of its ops is, the changes in place were tried (Op::runs_again), and no op between them has
// written its operands. Batch normalisation that was tried runs without its running statistics. O(accesses * 16).
std::vector<Op> producers(const Trace& trace);

}  // namespace vedette
