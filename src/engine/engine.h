// Where every chunk is, and the only code that says it moved. The engine owns the frames of fast memory, a slow store
// and a migrator thread; it knows chunks, ops and next uses, and nothing of tensors, traces or plans.
//
//                birth                hide            write            written
//   empty ------------------> resident -----> hidden ----> evicting -------> away
//     ^  (idle: resident with   ^ ^  ^  needed  |             |              |
//     |   nobody living there)  | |  +----------+    wanted   |              | read
//     |        death            | +---------------------------+              v
//     |                         +------------------ arrived <----------- fetching
//     +----- from any            shown
//
// What always holds: a chunk with live tensors is in exactly one of the states but empty (or unbacked: born while an
// op needs more than the budget; empty state, live > 0, a fault gives it a frame). A frame belongs to one chunk, or to
// an I/O whose chunk died, or is free. A chunk's slot has at most one I/O in flight. The bytes of a frame in I/O are
// parked: nobody writes them.
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

#include "engine/frame_watch.h"
#include "os/chunk_memory.h"
#include "tier/link_speed.h"
#include "tier/store.h"
#include "vedette/observer.h"
#include "vedette/result.h"

namespace vedette {

enum class ChunkState : std::uint8_t { empty, resident, hidden, evicting, away, fetching, arrived };

constexpr bool may_become(ChunkState from, ChunkState to) noexcept {
  using enum ChunkState;
  switch (from) {
    case empty:
      return to == resident;  // born
    case resident:
      return to == hidden || to == evicting || to == empty;  // chosen; its frame was taken after its death
    case hidden:
      return to == evicting || to == resident || to == empty;
    case evicting:
      return to == away || to == resident || to == empty;
    case away:
      return to == fetching || to == empty;
    case fetching:
      return to == arrived || to == away || to == empty;  // away: the read failed and is tried again
    case arrived:
      return to == resident || to == away || to == empty;  // away: its room was needed before it was
  }
  return false;
}
static_assert(!may_become(ChunkState::away, ChunkState::resident), "a chunk never arrives without being fetched");

// In fast memory, but where nobody can touch it.
constexpr bool parked(ChunkState state) noexcept { return state == ChunkState::hidden || state == ChunkState::arrived; }

using Ticks = std::uint64_t;  // the program's clock: one per op, growing over steps
constexpr Ticks never = ~Ticks{0};

struct ChunkRange {  // [first, first + count)
  std::uint32_t first = 0, count = 0;
  auto operator<=>(const ChunkRange&) const = default;
};

struct EngineOptions {
  std::uint32_t chunks = 0, frames = 0;
  Bytes chunk_bytes;
  std::unique_ptr<Store> store;
  Observer* observer = nullptr;  // borrowed
  std::optional<bool>
      reads_one_by_one;  // planned ones, two in flight; else in groups. Not said: as the disk wants it, measured
  std::function<void(std::string_view)> on_message;
  std::function<std::string(std::uint32_t chunk)>
      describe;  // where a chunk lies and whose it is; for last words, so with any lock held
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();  // stops the migrator; frames and addresses stay as they are
  // Once; the memory's fault sink is fault(). Returns how fast the slow tier is, measured with frames nobody uses yet.
  // `register_frames`: for I/O, where the memory allows it; frames that are registered cannot be converted.
  LinkSpeed start(std::unique_ptr<ChunkMemory> memory, bool register_frames = true);
  void fault(const Fault& fault) noexcept;

  // --- tensors come and go -------------------------------------------------------------------------------------------
  // One more tensor lives in each chunk; waits for room. Errors: out_of_memory when nothing can be evicted any more.
  Result<void> birth(ChunkRange range);
  void death(ChunkRange range) noexcept;
  Result<void> hold(ChunkRange range);  // resident until release_hold; waits. Error: with what is held already it is
                                        // too much; nothing is held
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
    bool unchanged =
        false;  // nobody will write there before it leaves again: then it leaves for nothing, if that proves true
  };
  struct Planned {
    std::span<const PlannedFetch> fetches;
    std::span<const NextUse> next_uses;
    Ticks base = 0;
    std::span<const std::uint32_t>
        needs;  // after the k-th birth or death in the op: chunks it will yet hold beyond those it holds
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
  bool serves_system_calls() const noexcept {
    return memory_->serves_system_calls();
  }  // false: they fail where a chunk is away or covered

  // --- plans ---------------------------------------------------------------------------------------------------------
  void forget_plan() noexcept;  // drops what is queued; next uses become unknown
  void begin_step(std::uint64_t step);

  Result<void> reserve_slots(std::uint32_t slots) { return store_->reserve(slots); }

  // --- tracking ------------------------------------------------------------------------------------------------------
  // Every frame changes its kind, with no I/O in flight; who touches memory meanwhile waits. At most one frame more
  // than the budget. Error: frames changed so far stay so.
  Result<void> convert(FrameKind kind) noexcept;
  void expect_writes(std::byte* begin, std::size_t bytes,
                     std::uint32_t chunk) noexcept;  // as ChunkMemory's, of memory just born
  void set_watch(FrameWatch* watch) noexcept;  // borrowed; nullptr: nobody. Told of every chunk that is shown now, as
                                               // if it came or left

  // --- what was measured ---------------------------------------------------------------------------------------------
  Nanoseconds stalled_since_last_asked() noexcept;  // of the op thread
  Counters counters() const noexcept;
  std::optional<Error> take_error() noexcept;
  std::uint32_t largest_op_chunks() const noexcept;  // with chunks held
  std::uint32_t held_chunks() const noexcept;
  std::uint32_t frames() const noexcept { return frame_count_; }
  ChunkState state(std::uint32_t chunk) const noexcept;
  bool idle_backed(std::uint32_t chunk) const noexcept;  // dead, but its frame is still there: being born here is free
  std::string mechanism() const;
  void set_observer(Observer* observer) noexcept;
  void quiesce() noexcept;  // returns when no I/O is in flight and nothing is queued

 private:
  struct Chunk {
    ChunkState state = ChunkState::empty;
    bool wanted = false;     // somebody waits for it, or a fault does
    bool slot_busy = false;  // an I/O on its slot is in flight
    bool in_idle = false;
    bool leaving = false;       // its place in the queue of evictions counts
    bool write_failed = false;  // not evicted again before the next step
    bool unchanged = false;     // as PlannedFetch's, of its last one
    std::uint32_t live = 0, holds = 0;
    std::uint32_t frame = 0;  // valid in all states but empty and away
    std::uint32_t idle_prev = 0, idle_next = 0;
    bool covered = false, touched = false;  // hidden only to see whether the running op touches it; it did
    std::uint64_t op_serial = 0;            // pinned while this equals the engine's
    Ticks last_use = 0, next_use = never;
    std::uint64_t arrival = 0;      // order of becoming resident
    std::uint8_t failed_reads = 0;  // in a row
    std::uint64_t fault = 0;        // the number of its last fault; 0: none yet
    std::uint32_t strays = 0;       // faults told since nothing lives here
  };
  struct Frame {
    enum class Io : std::uint8_t { none, read, write } io = Io::none;
    bool owned = false;  // by chunk `chunk`
    std::uint32_t chunk = 0;
    MoveCause cause = MoveCause::planned;
    Nanoseconds issued, started;
  };

  void stray(std::uint32_t chunk, const Fault& fault) noexcept;
  void enter(std::unique_lock<std::mutex>& lock, Ticks tick, std::span<const ChunkRange> operands,
             const Planned& planned);  // an op or a section
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
  bool start_eviction(std::uint32_t chunk, MoveCause cause);
  void start_fetch(std::uint32_t chunk, std::uint32_t frame, MoveCause cause);
  void complete(const StoreCompletion& completion);
  void complete_read(std::uint32_t frame, int error);
  void complete_write(std::uint32_t frame, int error);
  void become(std::uint32_t chunk, ChunkState next);
  void show(std::uint32_t frame, std::uint32_t chunk);
  void hide(std::uint32_t chunk, std::uint32_t frame);
  bool may_leave(const Chunk& chunk) const noexcept;
  void hide_ahead(std::uint32_t chunk);   // of its write, if it may leave
  void bring_forth(std::uint32_t chunk);  // what is hidden or has arrived is resident
  void bring_forth_all();
  void tell_hold(std::uint32_t chunk);                         // held, or no longer
  void back(std::uint32_t chunk);                              // gives an empty chunk a frame, which must be available
  std::optional<std::uint32_t> take_parked();                  // a free frame, parked
  void free_frame(std::uint32_t frame);                        // parked, and nobody's from now on
  std::uint32_t take_idle();                                   // the frame of a dead chunk, parked; there must be one
  std::vector<std::uint32_t> victims(std::size_t most) const;  // for room: the first to leave first
  bool has_victim() const;
  bool pinned(const Chunk& chunk) const noexcept;
  void pin(std::uint32_t chunk);
  void request(std::uint32_t chunk);  // somebody waits for it
  bool present(std::uint32_t chunk) const noexcept;
  void go_paged();
  void idle_push(std::uint32_t chunk);
  void idle_remove(std::uint32_t chunk);
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
  std::unique_ptr<Store> store_;
  std::unique_ptr<ChunkMemory> memory_;
  Observer* observer_;
  std::optional<bool> reads_one_by_one_;
  bool register_frames_ = true, registered_ = false;
  FrameWatch* watch_ = nullptr;
  std::function<void(std::string_view)> on_message_;
  std::function<std::string(std::uint32_t)> describe_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;  // something became resident or free
  std::vector<Chunk> chunks_;        // one past the last is the head of the idle list
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> free_;  // parked frames without owner
  std::uint32_t idle_count_ = 0;
  std::deque<std::uint32_t> urgent_, fetches_, evictions_;
  std::vector<StoreRequest> requests_;
  std::uint32_t in_flight_ = 0, writes_in_flight_ = 0, evicting_ = 0;
  std::uint32_t waiting_frames_ = 0;   // births blocked for want of a frame
  std::uint32_t held_ = 0, high_ = 0;  // high_: one past the highest chunk ever used
  std::uint64_t arrivals_ = 0, faults_ = 0;
  std::uint64_t op_serial_ = 1;
  std::uint32_t op_pinned_ = 0, op_largest_ = 0, largest_op_ = 0;
  std::span<const std::uint32_t> op_needs_;  // of the bucket, which outlives the op
  std::uint32_t op_events_ = 0;
  bool in_op_ = false, op_paged_ = false;
  bool op_waits_ = false;               // for operands
  std::vector<std::uint32_t> covered_;  // chunks that cover() hid in the running op
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

Nanoseconds monotonic_now() noexcept;

}  // namespace vedette
