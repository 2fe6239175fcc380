// The seam between a session and memory: a session recognises steps, logs tensors and ops and asks the policy for a
// plan; an executor carries out the plan's moves in its memory.
//
// An executor counts in chunks of the session's arena, which are positions, not addresses. There are two:
//
//  - The CPU's (engine/engine.h). A chunk's position is its address for life, and the frame under it changes. Ops run
//    when they are announced, and page faults serve unannounced accesses.
//  - A GPU's (gpu/executor.h). A position is a tensor's name: its address is a place in range(), which changes. An op
//    is announced when its work is queued. Its stream waits for its operands, and later work waits for an event behind
//    it. Unannounced accesses are not served, and an op must fit whole. Times are known later.
//
// Thread rule: born, died, hold and release_hold from any thread; begin_op, continue_op, end_op, observe and
// was_touched from the op thread; all others from any thread. Functions call the session back
// through the callbacks of the constructor alone, with the executor's lock held: the session only takes notes there.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "moves/op_schedule.h"
#include "moves/ticks.h"
#include "os/chunk_index.h"
#include "os/program.h"
#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/result.h"

namespace vedette {

class GpuMemory;
namespace engine {
class WatchedFrames;
}

namespace detail {

class Scratch;

// The moves of a plan at one op, or at one section of it.
struct OpMoves {
  struct Fetch {
    ChunkRange chunks;
    TierIndex source = {};
    bool unchanged = false;  // nothing writes there before it leaves again, so that it may leave without a transfer
    std::optional<std::uint64_t> place = {};  // the offset that arrange() found; for executors with range()
  };
  struct Departure {
    ChunkRange chunks;
    TierIndex source = {};    // a slow tier: the bytes move on without passing fast memory
    TierIndex target = {};    // 0: the slow tier that has room
    bool dead = false;        // a drop: by the plan no op reads these bytes before they are written again
    bool recomputed = false;  // a drop: by the plan they are recomputed before an op reads them
  };
  struct NextUse {
    ChunkRange chunks;
    std::uint32_t after = 0;  // ticks from the first op of the step
    // the same, of the op that begins when the tensor there is dead, where that is expected
    std::optional<std::uint32_t> dead_at = {};
  };
  struct InPlace {
    ChunkRange chunks;
    bool read = false, written = false;
    Bytes used = {};  // of each chunk; 0: all of it
  };
  struct Made {
    ChunkRange chunks;
    std::optional<std::uint64_t> place = {};  // as Fetch::place
  };
  std::span<const Fetch> fetches = {};
  std::span<const Departure> departures = {};  // when the op has ended
  std::span<const NextUse> next_uses = {};     // of the op's operands, after it
  std::span<const Made> made = {};             // recomputed before the op
  std::span<const InPlace> in_place = {};      // operands that it uses where they lie, where that is slower memory
};

// Where a plan expects the tensors that live as its step begins.
struct StepStart {
  struct Unit {
    ChunkRange chunks;
    std::uint32_t first_use = 0;  // part
    TierIndex tier = {};          // of what is away; 0: the slow tier that has room
  };
  std::vector<Unit> near;  // in fast memory, or about to come: in order of first use
  std::vector<Unit> away;  // the latest first use first
};

// An op that used operands where they lie, in slower memory.
struct InPlaceUse {
  OpIndex op;
  Bytes read, written;
  Nanoseconds waited;  // for their being there, where other memory plays the slower one
};

// Predictions of the next ops of a step without a plan, from an earlier step.
struct Ahead {
  std::span<const OpMoves::Fetch> fetches = {};      // in order of need; chunks in fast memory stay there
  std::span<const OpMoves::NextUse> next_uses = {};  // as expected by now
  bool anew = false;                                 // of another position: what was to be fetched is wrong by now
  bool makes_room = true;                            // for fetches; else only frames that are free are filled
  std::uint32_t births = 0, next_births = 0;         // chunks that the op, and the next one, will take
  // ticks from the step's first op
  std::uint32_t until = 0;  // tensors that are used before then stay
  std::uint32_t ends = 0;   // the step
  OpSchedule schedule = {};
};

// Where the tensors of a planned step lie in an executor's range(), besides those of fetches.
struct PlannedPlaces {
  struct AtStart {
    ChunkRange chunks;
    std::uint64_t offset = 0;
  };
  std::unordered_map<std::uint32_t, std::uint64_t> births;  // offsets, by a tensor's first chunk
  std::vector<AtStart> at_start;                            // tensors in fast memory when the step begins
  // By op: a copy begins behind its end, out of the op's operands or into places that are free from then on. Empty: it
  // is not known.
  std::vector<bool> waited_for;
  Nanoseconds waits = {};  // of a step, by reckoning (moves/place_waits.h)
};

// Facts of an executor, which its session reads. They hold from its start to its end.
struct Traits {
  // Tensors move whole, and get places in range(). Else chunks move, whose address is their place.
  bool whole_tensors = false;
  bool times_later = false;  // ops run later than they are announced: their times come a step later, by take_times()
  // A system call of the program that touches memory away or observed is served; else it fails. observe() needs it.
  bool serves_system_calls = false;
  bool predicts = false;  // Part::ahead is of use
  bool lends = false;     // ops may use in place what lies in the first slow tier
  bool replays = false;   // program() is another clock than the host's: plans come at the same ops each time
};

class Executor {
 public:
  virtual ~Executor() = default;

  const Traits& traits() const noexcept { return traits_; }

  // With whole_tensors: the bytes of fast memory, one range of them.
  virtual std::optional<Bytes> range() const noexcept { return std::nullopt; }
  // The part of range() that a plan's places may take: no tensor lies there whose address other code keeps.
  struct Stretch {
    std::uint64_t first = 0;
    Bytes bytes;
    Bytes unit = {512};  // places are multiples of it, and have whole ones
    bool operator==(const Stretch&) const = default;
  };
  virtual Stretch range_of_plans() const noexcept { return {.first = 0, .bytes = range().value_or(Bytes{})}; }

  // An Error of Cause::unsupported names the part of the plan that this executor cannot do; then the step runs on
  // demand.
  virtual Result<void> accepts(const Plan& plan) const = 0;

  // A plan is made that sends these tensors to slower memory in each step: memory for them may be taken now, so that no
  // step has to. Between two steps.
  struct Leaving {
    ChunkRange chunks;
    Bytes bytes;
    bool persistent = false;  // else another one of its kind comes in the next step
  };
  virtual void will_leave(std::span<const Leaving>) noexcept {}

  // --- tensors come and go -------------------------------------------------------------------------------------------
  // One more tensor, of so many bytes, lives in each chunk; waits for room. Error: out_of_memory, of fast memory or of
  // the slow tier.
  virtual Result<void> born(ChunkRange chunks, Bytes bytes) = 0;
  // The tensor begins with the bytes that lie there, and may begin away: see AllocateOptions::copied_from.
  virtual Result<void> born_as_copy(ChunkRange, Bytes, std::uint64_t /*from*/) {
    return Error{.cause = Cause::unsupported,
                 .message = "memory of the machine is not copied from a device's; copy it into memory that is there"};
  }
  virtual void died(ChunkRange chunks) noexcept = 0;
  // In fast memory until release_hold(); waits. Error: it is too much beside the memory held already; nothing is held.
  virtual Result<void> hold(ChunkRange chunks) = 0;
  virtual void release_hold(ChunkRange chunks) noexcept = 0;

  // --- the budget ----------------------------------------------------------------------------------------------------
  virtual Bytes budget() const noexcept { return {}; }  // of fast memory, as it is at the moment
  struct Resized {
    Bytes now;          // budget(); where it is still more than was asked, it falls as soon as that is possible
    std::string holds;  // the reason why it is more than was asked; empty: it is not
  };
  // `between_ops`: no op runs, and none begins before the call returns. `waits_for_turn`: the same, and before the next
  // op the budget is again what ops need.
  enum class Caller : std::uint8_t { between_ops, waits_for_turn, in_its_op, another_thread };
  // Another budget, from now on. Memory that goes is free for others when this returns. Waits: for what leaves, and,
  // unless the caller is in its own op, for the end of an op that needs more. Error: the memory here has one size.
  virtual Result<Resized> resize(Bytes budget, Caller caller) {
    static_cast<void>(budget), static_cast<void>(caller);
    return Error{.cause = Cause::unsupported,
                 .message = "this fast memory keeps its size while a session lives; open another one for another size"};
  }

  virtual void end_resizing() noexcept {}            // of another thread, that waits
  virtual std::string bus_id() const { return {}; }  // of the device whose memory it is; empty: the machine's

  // The program has no more steps; tensors live on. From now on no more fast memory stays than they fill, and of that
  // no more than `most` chunks, where the rest can leave. Returns how many chunks may be there at once. Waits.
  virtual std::uint32_t wind_down(std::uint32_t most) noexcept = 0;
  // As many as would be there after the same steps in a larger budget, at most.
  virtual std::uint32_t may_keep() const noexcept { return 0; }

  // --- ops -----------------------------------------------------------------------------------------------------------
  struct Part {  // an op or a section of it, as it begins
    Ticks tick = 0;
    std::span<const ChunkRange> operands = {};  // in fast memory from its begin to its end
    OpMoves moves = {};                         // of the plan that runs; the spans live until the step ends
    const PlannedPlaces* places = nullptr;      // with a plan and a range()
    Ticks step_begins = 0;                      // the tick that OpMoves::NextUse counts from
    // frames_to_come[k]: frames that the part will yet take after its k-th allocation or release; lives until it ends
    std::span<const std::uint32_t> frames_to_come = {};
    std::span<const ChunkRange> operands_of_whole_op = {};  // of a section; lives until the op ends
    const Ahead* ahead = nullptr;                           // without a plan
    // The first part of a step by a plan that did not run whole in the step before: memory is as another plan left it.
    const StepStart* start = nullptr;
    Bytes result = {};  // the op's largest, where the program knows it
    // Operands that it announces as written. A plan need not know them: steps are told apart by sizes, not by tensors.
    std::span<const ChunkRange> written = {};
    // Operands that are in no other list: of each the op uses few bytes, anywhere in it. With whole_tensors.
    struct Few {
      ChunkRange chunks;
      Bytes bytes;
      bool written = false;
    };
    std::span<const Few> few = {};
    bool planned = false;  // `moves` are a plan's
    // A followed plan has this op, so that one like it has run before; `operands` and `frames_to_come` live until it
    // ends.
    bool repeats = false;
  };
  virtual void begin_step(std::uint64_t step) = 0;
  virtual void end_step() {}
  virtual void tell_what_did_not_fit() {}  // ops whose budget was not told yet
  virtual void begin_op(OpIndex op, std::string_view name, const Part& part) = 0;
  // The running op goes on to its next section: `departures` are those of the section that ends. `between`, if there is
  // one, is called when nothing of the one is held any more, and nothing of the other yet: there chunks may be dropped.
  virtual void continue_op(std::span<const OpMoves::Departure> departures, const Part& part,
                           const std::function<void()>& between) = 0;
  virtual void end_op(std::span<const OpMoves::Departure> departures) noexcept = 0;
  virtual void forget_plan() noexcept = 0;  // moves that a plan has requested and that have not begun

  // --- ops that are not announced (session/rest.h) -------------------------------------------------------------------
  // Between steps: tensors that ops use without an announcement are served, or all are in fast memory.
  virtual bool may_rest() const noexcept { return traits_.serves_system_calls; }
  // From now on ops need not be announced, until the first op that is announced after the other call. Where accesses
  // are not served, nothing moves in between, and births without room are refused.
  virtual void begin_rest() noexcept {}
  virtual void end_rest() noexcept {}

  // --- bytes that are dropped and recomputed -------------------------------------------------------------------------
  virtual Scratch* scratch() noexcept { return nullptr; }  // nullptr: none can be

  // --- which operands does the running op touch, and when ------------------------------------------------------------
  virtual void observe(std::span<const ChunkRange> operands) noexcept = 0;
  virtual bool was_touched(ChunkRange operand) const noexcept = 0;  // since observe()
  virtual std::uint64_t early_touches() const noexcept = 0;  // operands that were touched outside of their section

  // --- figures -------------------------------------------------------------------------------------------------------
  virtual Program& program() noexcept = 0;                      // whose clock times ops, stalls and moves
  virtual Nanoseconds stalled_since_last_asked() noexcept = 0;  // of the op thread
  // Of the running step, or of the last one.
  virtual std::vector<InPlaceUse> take_uses_in_place() noexcept { return {}; }
  // Where ops run later than they are announced: times and stalls of the ops of an earlier step, once they are known.
  struct StepTimes {
    std::uint64_t step = 0;
    std::vector<Nanoseconds> times, stalls, for_room;  // by op; `stalls` include waits for room
    Nanoseconds whole, recomputing;                    // `whole` includes `recomputing`
  };
  // Of the latest step that is known of and was not given out; `wait`: of the step that ended last.
  virtual std::optional<StepTimes> take_times(bool wait) noexcept { return static_cast<void>(wait), std::nullopt; }
  virtual Counters counters() const noexcept = 0;
  virtual GpuBytes gpu_bytes() noexcept { return {}; }  // of Counters; counters() leaves them out
  virtual std::optional<Error> take_error() noexcept = 0;
  virtual std::uint32_t held_chunks() const noexcept = 0;
  virtual std::uint32_t largest_op_chunks() const noexcept = 0;  // with chunks held
  // An op takes its chunks and these, which come or leave while it begins. Every budget of chunks that a sentence names
  // has them.
  static constexpr std::uint32_t chunks_beside_op = 2;
  // The fast_memory of a session that is to have `wanted` beside what tensors of closed sessions keep.
  virtual Bytes budget_for(Bytes wanted) const noexcept { return wanted; }
  virtual std::string mechanism() const = 0;
  virtual void set_observer(Observer* observer) noexcept = 0;

  // Frames whose pages trackers can watch; nullptr: pages cannot be seen, steps are profiled by operands.
  virtual engine::WatchedFrames* pages() noexcept { return nullptr; }
  virtual GpuMemory* gpu() noexcept { return nullptr; }  // nullptr: fast memory is not a GPU's

 protected:
  explicit Executor(const Traits& traits = {}) : traits_(traits) {}
  Traits traits_;
};

}  // namespace detail
}  // namespace vedette
