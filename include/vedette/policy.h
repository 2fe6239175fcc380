// A policy turns a trace into a plan, and may react to events of the running program. Offline policies (AutoTM,
// SwapAdvisor, vDNN, ...) implement prepare(), online ones (LRU, DeepUM, ...) react(), Sentinel both. The simulator and
// the live engine call the same two functions of the same object.
//
// A policy uses no clock, thread or address: the same inputs and seed give the same answer, byte for byte. Thread rule:
// one thread at a time calls a policy, not always the same one: a session has plans made beside the program.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette {

struct StepMeasured {                 // times of the last step, measured (live) or simulated (replay)
  Nanoseconds time;                   // of the whole step
  Nanoseconds stall;                  // of it, waiting for moves
  Nanoseconds recomputing = {};       // of it, running producers again; their waits are in `stall`
  Nanoseconds in_places = {};         // the stall that the plan's places lead to by reckoning; 0: it has none
  std::vector<Nanoseconds> op_stall;  // op_stall[i]: waiting before op i; empty when nothing was measured
  std::vector<std::uint32_t> late;    // indices into Plan::moves of moves that were not done when due
};

struct Event {
  enum class Kind : std::uint8_t {
    op_begins,
    op_ends,  // op
    allocated,
    freed,               // op, tensor
    touched_while_away,  // op, tensor: a fault on memory that no op announced
    short_of_room,       // op, bytes: the fastest tier lacks this many; no answer: Plan::fallback
    step_ended,          // measured
  } kind = Kind::op_begins;
  OpIndex op;
  TensorIndex tensor;
  Bytes bytes;
  const StepMeasured* measured = nullptr;  // borrowed for the call; only with step_ended
};

// A run of bytes of one tensor that moves as one; the whole tensor unless a move takes less.
struct PlacedExtent {
  enum class State : std::uint8_t {
    absent,  // not born, dead or dropped
    resident,
    leaving,
    arriving,
    dead,  // and still there, where Plan::after_life is `dropped`
  } state = State::absent;
  TensorIndex tensor;
  Span<Bytes> bytes;
  TierIndex tier;  // resident: there; leaving, arriving: from there
  // serial number of the last op that used it, counted through all steps; 0: none yet
  std::uint64_t last_use = 0;
};

struct View {  // the state that a policy may read; borrowed for the length of the call
  const Trace& trace;
  const Machine& machine;
  std::span<const TierIndex> where;            // where[t]: tier that holds tensor t now
  std::span<const Bytes> room;                 // room[k]: free bytes in tier k
  std::span<const PlacedExtent> extents = {};  // by tensor, then begin; empty where it is not known (live)
};

struct Reaction {
  std::vector<Move> moves;                    // to start now, in this order; issue and due are not looked at
  std::vector<Recomputation> recomputations;  // on touched_while_away, where the machine can: run now, in this order
  bool replan = false;                        // after step_ended: take prepare()'s answer anew from the next step on
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const noexcept = 0;
  // The plan for a step that repeats. An Error of Cause::infeasible names the size of the fast tier that would suffice.
  // Its message has no name of the policy in it: the caller puts that before.
  virtual Result<Plan> prepare(const Trace&, const Machine&) { return Plan{}; }
  virtual Reaction react(const Event&, const View&) { return {}; }
  // Persistent tensors larger than one and a half such parts are handed to it as several tensors, each a part that
  // moves alone. In whole granules, for fast memory of this size; nothing: every tensor stays whole.
  virtual std::optional<Bytes> largest_part(Bytes, [[maybe_unused]] Bytes granule) const noexcept {
    return std::nullopt;
  }
};

struct PolicyEntry {
  std::string_view name, paper, summary;
  std::unique_ptr<Policy> (*make)(std::uint64_t seed);
  std::string_view partial = {};  // inputs of the paper's system that a trace cannot express; empty: none
  bool bound = false;             // not a system: it uses knowledge or rights that none has, and bounds the others
  bool orders = false;            // its plans may have an order of ops where Machine::can_reorder
};
std::span<const PolicyEntry> policies() noexcept;  // the one list: command line, tests, benches walk it
std::unique_ptr<Policy> make_policy(std::string_view name, std::uint64_t seed);  // nullptr: no such policy

}  // namespace vedette
