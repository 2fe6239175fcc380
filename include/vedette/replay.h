// Runs a plan, or a policy with all its reactions, against the clock, op by op: the yardstick of every planner, and
// what `vedette replay` and `vedette compare` print.
//
// Ops run in order. A move is queued when its issue op begins (fetch) or has ended (evict, drop); every link works off
// one queue in plan order, one move at a time, and pays its latency where it was idle before (requests overlap); links
// of one `shared` group split their bus fairly while more than one of them is busy. A fetch starts only when its target
// has room for it (rounded up to Machine::granule in the fastest tier, Plan::reserved left free there); an evict gives
// its room back when it ends, at once when the slower tier still holds the same bytes. Such copies stay in a slower
// tier until something needs the room; where a slower tier is full, what should go there goes to the next slower one.
// An op waits (stalls) for its operands and for the room of what is born in it. What it misses and nobody planned is
// fetched on demand, ahead of the queue, after Machine::fault_time; where room lacks and nothing is on its way out, the
// policy is asked, and else Plan::fallback chooses. Recomputations run before their op, on the same processor. An
// operand that is used in place costs its bytes over the link, beside the op's time. Ops take longer by
// Machine::interference_percent of the time that links are busy beside them, and by Machine::remap_time for each
// granule that came or left since the op before; that is no stall.
//
// Time is whole nanoseconds; the same inputs give the same result, byte for byte. O((ops + accesses + moves) * log) a
// step.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/result.h"
#include "vedette/rows.h"

namespace vedette {

struct ReplayOptions {
  std::uint32_t steps = 3;          // at least 1; what is measured is the last, the earlier ones reach the steady state
  std::uint32_t noise_percent = 0;  // every op takes up to this much more or less, drawn anew each step
  std::uint64_t seed = 1;           // of the noise
  bool timeline = false;            // fill Replayed::timeline
};

struct Bar {  // one bar of a timeline: what ran when, in the last step, counted from its begin
  enum class Kind : std::uint8_t { op, wait, recompute, move } kind = Kind::op;
  OpIndex op;                // op, wait: which; recompute: the producer
  TensorIndex tensor;        // move
  TierIndex source, target;  // move
  Bytes bytes;               // move
  Span<Nanoseconds> time;
};

struct Replayed {
  StepMeasured measured;  // of the last step; late: indices of moves that were not done when their due op was reached
  Nanoseconds ideal;      // sum of the op times: no wait at all
  Nanoseconds recompute;  // spent on running producers again, in the last step; not part of the stall
  Bytes bytes_in, bytes_out;            // brought into and out of the fastest tier, of moves started in the last step
  Bytes bytes_dropped;                  // evicted without writing, in the last step
  std::uint32_t unplanned = 0;          // fetches and evictions of the last step that no plan and no policy had
  std::uint32_t faults = 0;             // ops of the last step that found an operand away with no fetch on its way
  Bytes peak;                           // most bytes used in the fastest tier, moves in flight and workspace included
  std::vector<Nanoseconds> step_times;  // of every step, the first included
  std::vector<Nanoseconds> link_busy;   // by Machine::links, in the last step
  std::vector<Bar> timeline;
};

// Errors: infeasible where an op's operands and workspace exceed the fastest tier; malformed_input where the plan names
// what does not exist, or something reads what was dropped and not made again; unsupported for changed orders.
Result<Replayed> replay(const Trace&, const Machine&, const Plan&, const ReplayOptions& = {});

// The plan of a policy with the policy's reactions: prepare() first, then events as they happen, and a new plan where
// it asks for one. What is measured is the last step. Errors: prepare()'s, and the above.
Result<Replayed> replay(const Trace&, const Machine&, Policy&, const ReplayOptions& = {});

// Steps in a row that each touch other chunks of tables, one of Rows::steps after the other and then again from the
// first, as a session would run them: the policy plans the trace without the tables and hears of nothing but the ends
// of steps; chunks that a step touches and that are away are fetched on demand, each with a transfer of its own; the
// chunk touched longest ago leaves first, and is written. Errors: as above.
Result<Replayed> replay(const Trace&, const Rows&, const Machine&, Policy&, const ReplayOptions& = {});

}  // namespace vedette
