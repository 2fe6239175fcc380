// The judge: does this plan run this trace on this machine? It is written from the definitions in model.h, naively, and
// shares no code with any planner. It knows no time, only the order of issue and due. Thread rule: any thread.
#pragma once
#include <optional>
#include <string>

#include "vedette/model.h"

namespace vedette {

enum class Rule {
  well_formed,      // indices in range, home for every tensor, moves sorted by issue, tiers joined by a link
  source_holds_it,  // a move's extent lies in its source tier when it starts
  due_after_issue,  // cyclically: there is time between issue and due
  // each operand is in the fastest tier, or announced in place in an addressable tier, when its op begins; one whose
  // eviction is issued but not due is neither
  operand_near,
  capacity,      // no tier is over its capacity during an op, moves in flight counted in both tiers
  nothing_lost,  // a drop never takes bytes that an op reads before they are written or recomputed
  // a recomputation gives the bytes that were lost: its producer was the last to write them, can run again, and finds
  // its operands unchanged
  recomputed,
  repeats,  // the end of the step has persistent tensors in the tiers where its start has them
  allowed,  // recompute and order only where the machine can
};

struct Violation {
  Rule rule;
  std::string message;  // "tensor 17 'attn.out' is read by op 9 'addmm' but was evicted at op 8 and never fetched"
};

// The first broken rule, or nullopt. O(ops * tensors) in the worst case.
std::optional<Violation> check(const Trace&, const Machine&, const Plan&);

}  // namespace vedette
