// A policy turns a trace into a plan, and may change its mind when the program surprises it.
// Offline policies (AutoTM, SwapAdvisor, vDNN...) implement prepare(). Online ones (LRU, DeepUM...) implement react().
// Sentinel does both. The simulator and the live engine call the same two functions, so a policy that is right in
// replay is the very object that runs.
//
// A policy sees no clock, no thread, no address: same inputs, same seed, same answer, byte for byte. Both functions are
// called from one thread at a time.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette {

struct StepMeasured {                 // what the last step cost, as measured (live) or simulated (replay)
  Nanoseconds time;                   // of the whole step
  Nanoseconds stall;                  // of it, waiting for moves
  std::vector<Nanoseconds> op_stall;  // op_stall[i]: waiting before op i; empty when nothing was measured
  std::vector<std::uint32_t> late;    // indices into Plan::moves of moves that were not done when due
};

struct Event {
  enum class Kind : std::uint8_t {
    op_begins,
    op_ends,  // op
    allocated,
    freed,               // op, tensor
    touched_while_away,  // op, tensor: nobody announced it
    short_of_room,       // op, bytes: the fastest tier lacks this many; no answer: Plan::fallback
    step_ended,          // measured
  } kind = Kind::op_begins;
  OpIndex op;
  TensorIndex tensor;
  Bytes bytes;
  const StepMeasured* measured = nullptr;  // borrowed for the call; only with step_ended
};

struct Portion {  // a run of bytes of one tensor that moves as one; a whole tensor unless somebody moves less
  enum class State : std::uint8_t {
    absent,  // not born, dead or dropped
    lies,
    leaving,
    coming,
    dead,  // and still there, where Plan::after_life is `dropped`
  } state = State::absent;
  TensorIndex tensor;
  Span<Bytes> bytes;
  TierIndex tier;              // lies: there; leaving, coming: from there
  std::uint64_t last_use = 0;  // serial number of the last op that used it, counted through all steps; 0: none yet
};

struct View {  // what a policy may look at; borrowed for the length of the call
  const Trace& trace;
  const Machine& machine;
  std::span<const TierIndex> where;     // where[t]: tier that holds tensor t now
  std::span<const Bytes> room;          // room[k]: free bytes in tier k
  std::span<const Portion> parts = {};  // by tensor, then begin; empty where the caller does not know (live)
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
  // The plan for a step that repeats. An Error of Cause::infeasible says from which fast-tier size it would work.
  // Errors say the cause alone: whoever reports one knows the policy's name and puts it before.
  virtual Result<Plan> prepare(const Trace&, const Machine&) { return Plan{}; }
  virtual Reaction react(const Event&, const View&) { return {}; }
};

struct PolicyEntry {
  std::string_view name, paper, summary;
  std::unique_ptr<Policy> (*make)(std::uint64_t seed);
  std::string_view partial = {};  // what the paper uses and a trace cannot express; empty: nothing
  bool bound = false;             // no system: it knows or may do what none can, and shows how far one could get
};
std::span<const PolicyEntry> policies() noexcept;  // the one list: command line, tests, benches walk it
std::unique_ptr<Policy> make_policy(std::string_view name, std::uint64_t seed);  // nullptr: no such policy

}  // namespace vedette
