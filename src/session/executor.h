// The seam between a session and memory: a session recognises steps, logs tensors and ops and asks the policy for a
// plan; an executor does to memory what the plan's moves mean there.
//
// An executor counts in chunks of the session's arena, which are positions, not addresses. For the CPU
// (chunk_executor.h) a chunk's position is its address for life and the frame under it changes. For a GPU a tensor's
// position in the plan becomes a place in one device range, and its pointer is what changes. Such an executor needs:
//
//  1. Program order. `begin_op` and `end_op` are called when an op is launched, which on a stream is before it runs.
//     What begins after an op waits for an event recorded in end_op(); what an op needs is waited for by its stream
//     (not by the host) in begin_op(). `OpMoves::evictions` may start, and the room of the dead may be used again,
//     after that event. Nothing here returns "it has happened" but stalled_since_last_asked() and counters().
//  2. Places. born() gives chunks a place before the op that allocates runs, and there is no fault path: an access that
//     no op announced is an error there (`faults()` is null). Every operand of an op must fit at once; an op too large
//     for the budget is refused by begin_op's counterpart of the paged path, with a sentence.
//  3. Copies. Several fetches and evictions between two ops go to one copy stream per direction, ordered by events; the
//     slow tier of a move is `Fetch::source` or `Departure::target`, since a GPU has two (pinned host memory, NVMe).
//  4. Several op threads: the backward pass of autograd runs on a device's own thread. Calls still come one at a time.
//
// Thread rule: born, died, hold and release_hold from any thread; begin_op, continue_op, end_op, observe and
// was_touched from the op thread; all others from any thread. No function calls the session back but through what its
// constructor was given, and then with its own lock held: the session only takes notes there.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/chunk_index.h"
#include "os/program.h"
#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/result.h"

namespace vedette {

class Engine;

namespace detail {

using Ticks = std::uint64_t;  // the program's clock: one an op or section, growing over steps

// Ticks of different steps never meet: no step has this many ops or sections, which StepLogger asserts.
constexpr Ticks ticks_of_a_step = 1'000'000;

// What a plan does at one op, or at one section of it.
struct OpMoves {
  struct Fetch {
    ChunkRange chunks;
    TierIndex source;
    bool unchanged = false;  // nothing writes there before it leaves again, so that it may leave without a transfer
  };
  struct Departure {
    ChunkRange chunks;
    TierIndex target;
    bool dead = false;  // a drop: by the plan no op reads these bytes before they are written again
  };
  struct NextUse {
    ChunkRange chunks;
    Ticks after = 0;  // ticks from the first op of the step
  };
  std::vector<Fetch> fetches;
  std::vector<Departure> departures;  // when the op has ended
  std::vector<NextUse> next_uses;     // of the op's operands, after it
};

class Executor {
 public:
  virtual ~Executor() = default;

  // An Error of Cause::unsupported names what of the plan this executor cannot do; then the step runs on demand.
  virtual Result<void> accepts(const Plan& plan) const = 0;

  // --- tensors come and go -------------------------------------------------------------------------------------------
  // One more tensor lives in each chunk; waits for room. Error: out_of_memory, of fast memory or of the slow tier.
  virtual Result<void> born(ChunkRange chunks) = 0;
  virtual void died(ChunkRange chunks) noexcept = 0;
  // In fast memory until release_hold(); waits. Error: with what is held already it is too much; nothing is held.
  virtual Result<void> hold(ChunkRange chunks) = 0;
  virtual void release_hold(ChunkRange chunks) noexcept = 0;

  // --- ops -----------------------------------------------------------------------------------------------------------
  struct Part {  // an op or a section of it, as it begins
    Ticks tick = 0;
    std::span<const ChunkRange> operands;  // in fast memory from its begin to its end
    const OpMoves* moves = nullptr;        // nullptr: no plan runs; else it lives until the step ends
    Ticks step_begins = 0;                 // the tick that OpMoves::NextUse counts from
    // needs[k]: chunks that the part will yet take after its k-th allocation or release; lives until it ends
    std::span<const std::uint32_t> needs;
    std::span<const ChunkRange> operands_of_whole_op;  // of a section; lives until the op ends
  };
  virtual void begin_step(std::uint64_t step) = 0;
  virtual void begin_op(OpIndex op, std::string_view name, const Part& part) = 0;
  // The running op goes on to its next section: `departures` are those of the section that ends.
  virtual void continue_op(std::span<const OpMoves::Departure> departures, const Part& part) = 0;
  virtual void end_op(std::span<const OpMoves::Departure> departures) noexcept = 0;
  virtual void forget_plan() noexcept = 0;  // what a plan has asked for and has not begun

  // --- which operands does the running op touch, and when ------------------------------------------------------------
  virtual bool can_observe() const noexcept = 0;  // false: observe() would fail system calls, or cannot be
  virtual void observe(std::span<const ChunkRange> operands) noexcept = 0;
  virtual bool was_touched(ChunkRange operand) const noexcept = 0;  // since observe()
  virtual std::uint64_t early_touches() const noexcept = 0;  // operands that were touched outside of their section

  // --- figures -------------------------------------------------------------------------------------------------------
  virtual Program& program() noexcept = 0;                      // whose clock times ops, stalls and moves
  virtual Nanoseconds stalled_since_last_asked() noexcept = 0;  // of the op thread
  virtual Counters counters() const noexcept = 0;
  virtual std::optional<Error> take_error() noexcept = 0;
  virtual std::uint32_t held_chunks() const noexcept = 0;
  virtual std::uint32_t largest_op_chunks() const noexcept = 0;  // with chunks held
  virtual std::string mechanism() const = 0;
  virtual void set_observer(Observer* observer) noexcept = 0;

  // The engine whose chunks page trackers can watch; nullptr: pages cannot be seen, steps are profiled by operands.
  virtual Engine* pages() noexcept { return nullptr; }
};

}  // namespace detail
}  // namespace vedette
