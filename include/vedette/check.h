// The judge: does this plan run this trace on this machine? Written from the definitions in model.h, naive, and sharing
// no code with any planner. It knows no time: order alone (issue, due) decides what must have happened when.
#pragma once
#include <optional>
#include <string>

#include "vedette/model.h"

namespace vedette {

enum class Rule {
  well_formed,      // indices in range, home for every tensor, moves sorted by issue, tiers joined by a link
  source_holds_it,  // a move's extent lies in its source tier when it starts
  due_after_issue,  // cyclically: something can happen between issue and due
  operand_near,     // each operand is in the fastest tier, or announced in place in an addressable tier, when its op
                    // begins
  capacity,         // no tier is over its capacity during an op, moves in flight counted in both tiers
  nothing_lost,     // a drop never takes bytes that somebody reads before they are written or made again
  made_again,       // a recomputation gives the bytes that were lost: its producer was the last to write them, is
               // replayable, and all that it read is still as it was then
  repeats,  // where persistent tensors lie at the end of the step is where they lie at its start
  allowed,  // recompute and order only where the machine can
};

struct Violation {
  Rule rule;
  std::string message;  // "tensor 17 'attn.out' is read by op 9 'addmm' but was evicted at op 8 and never fetched"
};

// The first broken rule, or nullopt. O(ops * tensors) in the worst case.
std::optional<Violation> check(const Trace&, const Machine&, const Plan&);

}  // namespace vedette
