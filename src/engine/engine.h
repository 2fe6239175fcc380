// Where every chunk is, and the only code that says it moved. The engine owns the frames of fast memory, a slow store
// and a migrator thread; it knows chunks, ops and next uses, and nothing of tensors, traces or plans.
//
//           birth            frame                  hide            write            written
//   empty --------> unbacked ------> resident -----------> hidden ----> evicting -------> away
//     ^                                ^ ^ ^ |   needed      |             |              |
//     |                                | | | +-- covered     |    wanted   |              | read
//     |  frame taken            birth  | | +-----------------+-------------+              |
//     +------------------ idle <-------+ +---------------- arrived <----------------- fetching
//                               death         shown
//
// Every state but resident becomes empty when the last tensor of the chunk dies. `covered` lies beside resident:
// cover() parks the frame to see whether the running op touches the chunk.
//
// What always holds: a chunk with live tensors is neither empty nor idle. A frame belongs to one chunk, or to an I/O
// whose chunk died, or is free. A chunk's slot has at most one I/O in flight. The bytes of a frame in I/O are parked:
// no thread writes them.
//
// Who shows and hides: a move in the page tables interrupts all threads that compute (16 to 24 us instead of 2 beside
// two of them, and who is interrupted stops the other at their barrier). Between two ops they rest, so the thread that
// begins and ends ops shows what has arrived and hides what the plan evicts. The migrator does both for whoever waits.
//
// Thread rule: every public function may be called from any thread, begin_op/end_op from one at a time. One mutex
// guards all.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/indexed.h"
#include "engine/frame_watch.h"
#include "os/chunk_memory.h"
#include "os/program.h"
#include "tier/link_speed.h"
#include "tier/store.h"
#include "vedette/observer.h"
#include "vedette/result.h"

namespace vedette {

enum class ChunkState : std::uint8_t {
  empty,     // no tensor, no frame
  unbacked,  // tensors, but neither frame nor bytes yet: a birth waits, or a fault will bring a frame
  resident,  // tensors, in a frame that is shown
  idle,      // no tensor, but the frame is still shown
  covered,   // tensors; the frame is parked to see whether the running op touches the chunk
  hidden,    // tensors; the frame is parked ahead of its write
  evicting,  // the frame is being written
  away,      // tensors, in the chunk's slot only
  fetching,  // the slot is being read
  arrived,   // in a parked frame and in the slot
};

constexpr bool may_become(ChunkState from, ChunkState to) noexcept {
  using enum ChunkState;
  switch (from) {
    case empty:
      return to == unbacked;  // born
    case unbacked:
      return to == resident || to == empty;
    case resident:
      return to == covered || to == hidden || to == evicting || to == idle;
    case idle:
      return to == resident || to == empty;  // born again; its frame was taken
    case covered:
      return to == resident || to == evicting || to == empty;
    case hidden:
      return to == evicting || to == resident || to == empty;
    case evicting:
      return to == away || to == resident || to == empty;
    case away:
      return to == fetching || to == empty;
    case fetching:
      return to == arrived || to == away || to == empty;  // away: the read failed and is tried again
    case arrived:
      return to == resident || to == away || to == empty;  // away: its room was needed first
  }
  return false;
}
static_assert(!may_become(ChunkState::away, ChunkState::resident), "a chunk never arrives without being fetched");

// In fast memory, but no thread can touch it.
constexpr bool parked(ChunkState state) noexcept {
  return state == ChunkState::hidden || state == ChunkState::arrived || state == ChunkState::covered;
}
constexpr bool shown(ChunkState state) noexcept { return state == ChunkState::resident || state == ChunkState::idle; }

using Ticks = std::uint64_t;  // the program's clock: one per op, growing over steps
constexpr Ticks never = ~Ticks{0};

struct EngineOptions {
  std::uint32_t chunks = 0, frames = 0;
  Bytes chunk_bytes;
  std::unique_ptr<Store> store;
  Observer* observer = nullptr;  // borrowed
  Program* program = nullptr;    // borrowed; nullptr: host_program()
  // planned ones, two in flight; else in groups. Not said: as the disk wants it, measured
  std::optional<bool> reads_one_by_one;
  // Called with the engine's lock held: it takes a note and returns. The session delivers notes where no lock is held.
  // No migrator thread: a call that waits takes its turns, and run_once() takes one. For deterministic tests.
  bool by_hand = false;
  std::function<void(std::string_view)> on_message;
  // where a chunk lies and whose it is; for last words, so with any lock held
  std::function<std::string(ChunkIndex chunk)> describe;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();  // stops the migrator; frames and addresses stay as they are
  // Once; the memory's fault sink is fault(). Returns how fast the slow tier is, measured with frames nobody uses yet.
  // `register_frames`: for I/O, where the memory allows it; frames that are registered cannot be converted.
  LinkSpeed start(std::unique_ptr<ChunkMemory> memory, bool register_frames = true);
  void fault(const Fault& fault) noexcept;
  void run_once() noexcept;  // EngineOptions::by_hand: starts what can start, then takes what the store has completed

  // --- tensors come and go -------------------------------------------------------------------------------------------
  // One more tensor lives in each chunk; waits for room. Errors: out_of_memory when nothing can be evicted any more.
  Result<void> birth(ChunkRange range);
  void death(ChunkRange range) noexcept;
  // resident until release_hold; waits. Error: with what is held already it is too much; nothing is held
  Result<void> hold(ChunkRange range);
  void release_hold(ChunkRange range) noexcept;

  // --- ops -----------------------------------------------------------------------------------------------------------
  // The operands are resident when this returns, unless the op needs more than the budget; then it runs paged.
  // `planned` starts with the op: fetches queue in order of need and start when a frame is free beyond those that
  // births of the running op will take.
  struct NextUse {
    ChunkRange range;
    Ticks tick = never;
  };
  struct PlannedFetch {
    ChunkRange range;
    // nobody will write there before it leaves again: then it leaves for nothing, if that proves true
    bool unchanged = false;
  };
  struct Planned {
    std::span<const PlannedFetch> fetches;
    std::span<const NextUse> next_uses;
    Ticks base = 0;
    // after the k-th birth or death in the op: chunks it will yet hold beyond those it holds
    std::span<const std::uint32_t> needs;
    std::span<const ChunkRange> later;  // of an op in sections: all its operands; lives until the op ends
  };
  void begin_op(Ticks tick, OpIndex op, std::string_view name, std::span<const ChunkRange> operands,
                const Planned& planned);
  void end_op(std::span<const ChunkRange> evictions) noexcept;
  // The running op goes on to its next section, which needs `operands` and what was born in the op and lives: the end
  // of one op and the beginning of another, but for the op's name and number.
  void continue_op(Ticks tick, std::span<const ChunkRange> evictions, std::span<const ChunkRange> operands,
                   const Planned& planned);
  std::uint64_t early_touches() const noexcept;  // so far: faults of an op's operands that its section did not name
  // What does the running op touch, and when? Its operands are covered (hidden, with their frames) until somebody
  // touches them. A chunk that cannot be covered counts as touched. The end of the op uncovers them.
  void cover(std::span<const ChunkRange> operands) noexcept;
  bool touched(ChunkRange operand) const noexcept;  // some chunk of it, since it was covered
  // false: they fail where a chunk is away or covered
  bool serves_system_calls() const noexcept { return memory_->reach().system_calls; }
  Program& program() noexcept { return program_; }  // whose clock times stalls, moves and faults

  // --- plans ---------------------------------------------------------------------------------------------------------
  void forget_plan() noexcept;  // drops what is queued; next uses become unknown
  void begin_step(std::uint64_t step);

  Result<void> reserve_slots(std::uint32_t slots) { return store_->reserve(slots); }

  // --- tracking ------------------------------------------------------------------------------------------------------
  // Every frame changes its kind, with no I/O in flight; who touches memory meanwhile waits. At most one frame more
  // than the budget. Error: frames changed so far stay so.
  Result<void> convert(FrameKind kind) noexcept;
  // as ChunkMemory's, of memory just born
  void expect_writes(std::byte* begin, std::size_t bytes, ChunkIndex chunk) noexcept;
  // borrowed; nullptr: nobody. Told of every chunk that is shown now, as if it came or left
  void set_watch(FrameWatch* watch) noexcept;

  // --- what was measured ---------------------------------------------------------------------------------------------
  Nanoseconds stalled_since_last_asked() noexcept;  // of the op thread
  Counters counters() const noexcept;
  std::optional<Error> take_error() noexcept;
  std::uint32_t largest_op_chunks() const noexcept;  // with chunks held
  std::uint32_t held_chunks() const noexcept;
  std::uint32_t frames() const noexcept { return frame_count_; }
  ChunkState state(ChunkIndex chunk) const noexcept;
  bool idle_backed(ChunkIndex chunk) const noexcept;  // dead, but its frame is still there: being born here is free
  std::string mechanism() const;
  void set_observer(Observer* observer) noexcept;
  void quiesce() noexcept;  // returns when no I/O is in flight and nothing is queued

 private:
  static constexpr Nanoseconds first_busy_pause{1'000'000}, longest_busy_pause{16'000'000};

  struct Chunk {
    ChunkState state = ChunkState::empty;
    bool wanted = false;        // somebody waits for it, or a fault does
    bool slot_busy = false;     // an I/O on its slot is in flight
    bool leaving = false;       // its place in the queue of evictions counts
    bool write_failed = false;  // not evicted again before the next step
    bool busy = false;          // a transfer of the program had its pages pinned; in busy_
    bool unchanged = false;     // as PlannedFetch's, of its last one
    std::uint32_t live = 0, holds = 0;
    FrameIndex frame;  // valid in all states but empty and away
    ChunkIndex idle_prev, idle_next;
    bool touched = false;         // since cover()
    std::uint64_t op_serial = 0;  // pinned while this equals the engine's
    Ticks last_use = 0, next_use = never;
    std::uint64_t arrival = 0;      // order of becoming resident
    std::uint8_t failed_reads = 0;  // in a row
    std::uint64_t fault = 0;        // the number of its last fault; 0: none yet
    std::uint32_t strays = 0;       // faults told since nothing lives here
  };
  struct Frame {
    enum class Io : std::uint8_t { none, read, write } io = Io::none;
    bool owned = false;  // by chunk `chunk`
    ChunkIndex chunk;
    MoveCause cause = MoveCause::planned;
    Nanoseconds issued, started;
  };

  void wake(ChunkIndex chunk);
  void stray(ChunkIndex chunk, const Fault& fault) noexcept;
  // an op or a section
  void enter(std::unique_lock<std::mutex>& lock, Ticks tick, std::span<const ChunkRange> operands,
             const Planned& planned);
  void leave(std::span<const ChunkRange> evictions);
  void run() noexcept;
  LinkSpeed measure() noexcept;
  void register_frames();  // from the migrator: the store's thread rule
  void pump();             // starts what can start; fills requests_
  void start_urgent();
  std::uint32_t planned_start(StoreRequest::Direction direction) const noexcept;  // how many moves, now
  bool writes_wait() const noexcept;  // until reads are done, or room is scarce
  void start_planned_evictions();
  void start_planned_fetches();
  void make_room();
  bool start_eviction(ChunkIndex chunk, MoveCause cause);
  void start_fetch(ChunkIndex chunk, FrameIndex frame, MoveCause cause);
  void complete(const StoreCompletion& completion);
  void complete_read(FrameIndex frame, int error);
  void complete_write(FrameIndex frame, int error);
  void become(ChunkIndex chunk, ChunkState next);
  void show(FrameIndex frame, ChunkIndex chunk);
  // False: its pages are pinned, and it is out of the question as a victim until retry_busy().
  [[nodiscard]] bool hide(ChunkIndex chunk, FrameIndex frame);
  void set_busy(ChunkIndex chunk);
  void retry_busy();      // after a pause
  bool waits_for_busy();  // nothing but pinned chunks could make room. Stops the program after a minute of it
  bool may_leave(const Chunk& chunk) const noexcept;
  void hide_ahead(ChunkIndex chunk);   // of its write, if it may leave
  void bring_forth(ChunkIndex chunk);  // what is hidden or has arrived is resident
  void bring_forth_all();
  void count_birth(ChunkRange range);
  void let_die(ChunkRange range);
  void drop_hold(ChunkRange range);
  template <class Done>
  void await(std::unique_lock<std::mutex>& lock, Done done);  // something arrives until then
  void turn(std::unique_lock<std::mutex>& lock) noexcept;     // of the migrator
  void tell_hold(ChunkIndex chunk);                           // held, or no longer
  // Gives an empty chunk a frame. False: none is available, or only in dead chunks that are busy.
  bool back(ChunkIndex chunk);
  std::optional<FrameIndex> take_parked();                  // a free frame, parked
  void free_frame(FrameIndex frame);                        // parked, and nobody's from now on
  std::optional<FrameIndex> take_idle();                    // the frame of a dead chunk, parked
  std::vector<ChunkIndex> victims(std::size_t most) const;  // for room: the first to leave first
  bool has_victim() const;
  bool pinned(const Chunk& chunk) const noexcept;
  void pin(ChunkIndex chunk);
  void request(ChunkIndex chunk);  // somebody waits for it
  bool present(ChunkIndex chunk) const noexcept;
  void go_paged();
  void idle_push(ChunkIndex chunk);  // the idle list has the chunks that are idle and not busy, by time of death
  void idle_remove(ChunkIndex chunk);
  ChunkRange used() const noexcept { return {{0}, high_}; }  // chunks in which some tensor has ever lived
  ChunkIndex idle_head() const noexcept { return {chunks_.size() - 1}; }
  std::uint32_t available() const noexcept { return static_cast<std::uint32_t>(free_.size()) + idle_count_; }
  void kick();  // the migrator has something to do
  void add_stall(Nanoseconds began, bool in_allocation);
  std::size_t waiting_need() const noexcept;
  bool can_start() const noexcept;
  std::uint32_t promised() const noexcept;  // frames that births of the running op will take
  bool room_impossible() const noexcept;    // nothing free, nothing coming, nothing to evict
  bool may_be_unbacked() const noexcept;    // a birth need not wait: a fault will bring it
  Error no_room();                          // why
  Error too_much_held(std::uint32_t more) const;
  void forgive_writes();    // those that failed may be tried again
  bool try_writes_again();  // false: no write has failed
  std::string paged_sentence() const;

  const std::uint32_t frame_count_;
  const Bytes chunk_bytes_;
  Program& program_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ChunkMemory> memory_;
  Observer* observer_;
  std::optional<bool> reads_one_by_one_;
  const bool by_hand_;
  bool register_frames_ = true, registered_ = false;
  FrameWatch* watch_ = nullptr;
  std::function<void(std::string_view)> on_message_;
  std::function<std::string(ChunkIndex)> describe_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;    // something became resident or free
  Indexed<ChunkIndex, Chunk> chunks_;  // one past the last is the head of the idle list
  Indexed<FrameIndex, Frame> frames_;
  std::vector<FrameIndex> free_;  // parked frames without owner
  std::uint32_t idle_count_ = 0;
  std::deque<ChunkIndex> urgent_, fetches_, evictions_;
  std::vector<StoreRequest> requests_;
  std::vector<StoreRequest> batch_;  // the migrator's alone: what it submits
  std::uint32_t in_flight_ = 0, writes_in_flight_ = 0, evicting_ = 0;
  std::uint32_t waiting_frames_ = 0;  // births blocked for want of a frame
  std::uint32_t held_ = 0;
  ChunkIndex high_;  // high_: one past the highest chunk ever used
  std::uint64_t arrivals_ = 0, faults_ = 0;
  std::uint64_t op_serial_ = 1;
  std::uint32_t op_pinned_ = 0, op_largest_ = 0, largest_op_ = 0;
  std::span<const std::uint32_t> op_needs_;  // of the bucket, which outlives the op
  std::uint32_t op_events_ = 0;
  bool in_op_ = false, op_paged_ = false;
  bool op_waits_ = false;  // for operands
  std::vector<ChunkIndex> busy_;
  Nanoseconds busy_pause_ = first_busy_pause, retry_at_;
  std::optional<Nanoseconds> busy_since_;  // only busy chunks could make the room that is waited for
  std::vector<ChunkIndex> covered_;        // chunks that cover() hid in the running op
  std::span<const ChunkRange> op_later_;
  std::uint64_t early_touches_ = 0;
  Ticks tick_ = 0;
  OpIndex op_;
  std::string op_name_;
  std::uint64_t step_ = 0;
  Nanoseconds op_thread_stall_;
  Counters counters_;
  std::optional<Error> error_;          // for take_error
  std::optional<Error> write_error_;    // of the last write, if it failed
  bool writes_failed_ = false;          // of some chunk, which is not tried again
  std::uint32_t rounds_of_writes_ = 0;  // in a row, without one that worked
  std::vector<std::string> paged_ops_told_;
  bool stop_ = false, sleeping_ = false;
  std::optional<LinkSpeed> speed_;
  std::thread migrator_;
};

template <class Done>
void Engine::await(std::unique_lock<std::mutex>& lock, Done done) {
  if (!by_hand_) return arrived_.wait(lock, done);
  while (!done()) turn(lock);
}

}  // namespace vedette
