// The simulator: runs a plan, or a policy with all its reactions, against the clock, op by op. `vedette replay` and
// `vedette compare` print its results.
//
// Ops run in order, by these rules:
// - A move is queued when its issue op begins (fetch) or has ended (evict, drop), after its frees. Each link has one
//   queue in plan order, carries one move at a time, and pays its latency only after it was idle, because requests
//   overlap. A move whose tensor lies elsewhere than its source does nothing, but a fetch comes from wherever it lies.
// - Links look into their queues when an op begins to wait or to run, when it has ended, when a move ends, and when its
//   first byte travels. An op that faults spends Machine::fault_time before it begins to wait or asks for room.
// - During its latency a move holds its link, but takes no share of a bus.
// - A fetch of a tensor whose eviction is still queued cancels that eviction, and so does an op that uses it. A fetch
//   of a tensor that is moving out begins when that has ended. Other moves of a tensor that moves do nothing.
// - Links of one `shared` group split their bus fairly while more than one of them is busy. Links that tell their
//   shares of a bus (Link::alone_bytes_per_s) are on it; a policy plans with these shares, as in a session.
// - Links from and to the host's memory have together what the processor leaves of it (Machine::host_memory), and a
//   link alone has no more. Of what they want, after their buses, they split it as fairly. An operand in place comes
//   over its link alone.
// - A fetch starts when its target has room: its size rounded up to Machine::granule in the fastest tier. Unless an op
//   stalls for it, it leaves free Plan::reserved and the room that the waiting op lacks. It has its room from its start
//   on.
// - An evict gives its room back when it ends. It ends at once when the slower tier still holds the same bytes. Such
//   copies stay in a slower tier until its room is needed; those that were fetched first go first.
// - Where a slower tier is full, its moves go to the next slower one.
// - An op stalls for its operands and for the room of its workspace and of the tensors that are born in it, which take
//   their room together. An operand that is away and has no fetch is fetched on demand; that is a fault. Fetches that
//   an op stalls for, planned ones too, overtake the queue.
// - Where the free bytes and the leaving ones are less than the op lacks, the policy names victims, and else
//   Plan::fallback does. Operands of the op are none. Tensors without a next use go first, of these the one that was
//   used longest ago.
// - Recomputations run before their op, on the same processor.
// - An operand that is used in place costs its bytes over the link, beside the op's time.
// - Ops become longer by Machine::interference_percent of the time that links are busy beside them, and by
//   Machine::remap_time for each granule that came or left since the op before. This is no stall.
// - Machine::habits change this. With `early_fetches` a fetch is queued one op earlier as well. With `writes_wait` no
//   eviction from the fastest tier begins while a fetch to it runs or has room to start; it does where four granules or
//   less are free, or births or a workspace lack room. `plans_in_turns` is for planners.
//
// A plan with `paging` is run by a driver with other rules (Replayed::paged).
//
// Time is whole nanoseconds; the same inputs give the same result, byte for byte. O((ops + accesses + moves) * log) a
// step. Thread rule: any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/result.h"
#include "vedette/rows.h"

namespace vedette {

struct ReplayOptions {
  std::uint32_t steps = 3;          // at least 1; the last is measured, the earlier ones reach the steady state
  std::uint32_t noise_percent = 0;  // every op takes up to this much more or less, drawn anew each step
  std::uint64_t seed = 1;           // of the noise
  bool timeline = false;            // fill Replayed::timeline
  bool keep_plan = false;           // of a policy: fill Replayed::plan
};

struct Bar {  // one bar of a timeline of the last step; times count from its begin
  enum class Kind : std::uint8_t { op, wait, recompute, move } kind = Kind::op;
  OpIndex op;                // op, wait: which; recompute: the producer
  TensorIndex tensor;        // move
  TierIndex source, target;  // move
  Bytes bytes;               // move
  Span<Nanoseconds> time;
};

struct Replayed {
  // of the last step; late: indices of moves that were not done when their due op was reached
  StepMeasured measured;
  Nanoseconds ideal;                    // sum of the op times: no wait at all
  Nanoseconds recompute;                // spent on running producers again, in the last step; not part of the stall
  Bytes bytes_in, bytes_out;            // brought into and out of the fastest tier, of moves started in the last step
  Bytes bytes_dropped;                  // evicted without writing, in the last step
  std::uint32_t unplanned = 0;          // fetches and evictions of the last step that neither plan nor policy had
  std::uint32_t faults = 0;             // ops of the last step that found an operand away with no fetch on its way
  Bytes peak;                           // most bytes used in the fastest tier, moves in flight and workspace included
  std::vector<Nanoseconds> step_times;  // of every step, the first included
  std::vector<Nanoseconds> link_busy;   // by Machine::links, in the last step
  std::vector<Bar> timeline;
  // Plan::paging: a driver ran the step whose ops run while their operands arrive and which ignores Machine::granule.
  // lower_bound() says nothing of it.
  bool paged = false;
  std::uint32_t reacted = 0;  // moves of the last step that the policy asked for when it heard of an event; in no plan
  std::optional<Plan> plan;   // the plan of the measured step: of a policy that wants new plans, the last one
};

// Errors: infeasible where an op's operands and workspace exceed the fastest tier. malformed_input where the plan names
// tensors, ops or tiers that do not exist, where its order breaks a dependence, and where an op reads a tensor that was
// dropped and not recomputed. Of a plan with an order all results count ops by their places in it.
Result<Replayed> replay(const Trace&, const Machine&, const Plan&, const ReplayOptions& = {});

// A policy's plan with its reactions: prepare() first, then events as they happen, and a new plan where
// Reaction::replan asks for one. The last step is measured. Errors: prepare()'s, and the above.
Result<Replayed> replay(const Trace&, const Machine&, Policy&, const ReplayOptions& = {});

// Steps in a row that each touch other chunks of tables, as a session would run them: the steps of Rows one after the
// other, and then again from the first. The policy plans the trace without the tables, and its only events are the ends
// of steps. Chunks of tables are fetched on demand, each with a transfer of its own; the chunk touched longest ago
// leaves first, and is written. Errors: as above.
Result<Replayed> replay(const Trace&, const Rows&, const Machine&, Policy&, const ReplayOptions& = {});

}  // namespace vedette
