// Which orders of a step's ops give the same bytes, and the step in another one of them.
//
// Two ops keep their order where one writes a tensor that the other reads, writes or frees. A death is none of its own:
// in another order a tensor dies after the last of its accesses and of the op that frees it. What a trace does not show
// is assumed by names (Turn). Thread rule: functions of their arguments.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette {

// Random numbers, or statistics beside the operands, by the op's name: "dropout", "native_batch_norm".
bool has_hidden_state(const Op&);

enum class Turn : std::uint8_t {
  free,     // its operands are all that it depends on
  in_turn,  // it has hidden state, did not run again alike, or is a collective: these keep their order to each other
  fence,    // it writes nothing and is no known view: what the program did with the answer is not known. Nothing passes
};
Turn turn_of(const Op&);

// Of each op, ops that it has to follow, ascending; all others that it has to follow come before these. O(accesses).
std::vector<std::vector<OpIndex>> dependences(const Trace&);

// Why this is no order of the step's ops, in one sentence; nullopt: it is one. O(accesses).
std::optional<std::string> misplaced(const Trace&, std::span<const OpIndex> order);

// The step in a permutation of its ops: op i of the result is op order[i]. O(accesses * log).
Trace reordered(const Trace&, std::span<const OpIndex> order);

}  // namespace vedette
