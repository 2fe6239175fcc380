// The engine's books: where every chunk is, which frame it has, and which chunks must not leave. Each function is one
// event; the engine calls it when the memory or the store has done its part.
//
// Pure: no lock, thread, clock, address or system call, so the same calls give the same books. The engine's lock guards
// them.
//
// What always holds: a chunk with live tensors is neither empty nor idle. A frame belongs to one chunk, or to an I/O
// whose chunk died, or is in the pool. A slot belongs to one chunk, and has at most one I/O in flight. The idle list
// has the chunks that are idle and not busy, the longest dead first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/indexed.h"
#include "engine/chunk_state.h"
#include "engine/frame_pool.h"
#include "engine/slots.h"
#include "moves/next_uses.h"
#include "os/chunk_index.h"

namespace vedette {

class Books {
 public:
  struct Chunk {
    ChunkState state = ChunkState::empty;
    // Marks. None follows from the state or from another mark.
    bool wanted = false;        // a thread or a fault waits for it
    bool slot_busy = false;     // an I/O on its slot is in flight; it may outlive the chunk's tensors
    bool leaving = false;       // its place in the queue of planned evictions counts
    bool write_failed = false;  // not evicted again until forgive_writes()
    bool busy = false;          // a transfer of the program has its pages pinned
    bool unchanged = false;     // no op is known to have written it since the fetch that expected this
    bool touched = false;       // since it was covered
    std::uint32_t live = 0, holds = 0;
    std::uint32_t births_wait = 0;  // it stays until they have seen it
    FrameIndex frame;               // valid in all states but empty, unbacked, away, in_place and dropped
    // From its eviction until it is resident and may change, or dead, and no I/O runs there.
    std::optional<SlotIndex> slot;
    struct Idle {
      ChunkIndex prev, next;    // in the list
      std::uint32_t since = 0;  // the window of time in which it became idle
    } idle = {};
    std::uint32_t strays = 0;       // faults told since nothing lives here
    std::uint64_t op_serial = 0;    // an operand of the running op while this is the op's
    std::uint64_t lent_to = 0;      // the same, of an operand in place that the plan leaves there
    std::uint64_t arrival = 0;      // order of becoming resident
    std::uint8_t failed_reads = 0;  // in a row
    std::uint64_t fault = 0;        // the number of its last fault; 0: none yet
  };

  Books(std::uint32_t chunks, std::uint32_t frames);

  // --- what is where -------------------------------------------------------------------------------------------------
  const Chunk& operator[](ChunkIndex chunk) const noexcept {
    return chunk.value < chunks_.size() ? chunks_[chunk] : untouched_;
  }
  std::uint32_t chunks() const noexcept { return count_; }
  std::uint32_t frames() const noexcept { return pool_.frames(); }
  ChunkRange used() const noexcept { return {{0}, high_}; }  // chunks in which some tensor has ever lived
  // Its bytes can be used, in fast memory or in place.
  bool present(ChunkIndex c) const noexcept { return here((*this)[c].state) || (*this)[c].live == 0; }
  std::optional<ChunkIndex> owner(FrameIndex frame) const noexcept;          // whose bytes are in it
  std::uint32_t available() const noexcept { return pool_.size() + idle_; }  // frames, made or not yet
  std::uint32_t evicting() const noexcept { return evicting_; }
  std::uint32_t in_flight() const noexcept { return reads_in_flight_ + writes_in_flight_; }
  std::uint32_t reads_in_flight() const noexcept { return reads_in_flight_; }
  std::uint32_t writes_in_flight() const noexcept { return writes_in_flight_; }
  std::uint32_t held() const noexcept { return held_; }
  std::uint32_t live_chunks() const noexcept { return live_; }  // in which a tensor lives
  bool all_present() const noexcept { return here_ == live_; }  // of those
  const Slots& slots() const noexcept { return slots_; }
  std::vector<SlotIndex> take_given_back() { return slots_.take_given_back(); }

  // --- tensors -------------------------------------------------------------------------------------------------------
  void birth(ChunkIndex chunk);    // one more tensor lives there; it will be written
  bool death(ChunkIndex chunk);    // true: that was the last one
  void hold(ChunkIndex chunk);     // it does not leave until as many release()
  bool release(ChunkIndex chunk);  // true: no hold is left
  // a birth waits for it to come
  void begin_wait(ChunkIndex chunk) { ++at(chunk).births_wait; }
  void end_wait(ChunkIndex chunk) { --at(chunk).births_wait; }

  // --- the running op ------------------------------------------------------------------------------------------------
  void begin_op(Ticks tick);
  void end_op();
  void pin(ChunkIndex chunk);  // an operand of the running op, or born in it: it does not leave before the op ends
  void go_paged();             // the op needs more than there is: its operands may leave
  bool in_op() const noexcept { return in_op_; }
  Ticks tick() const noexcept { return uses_.now(); }  // of the running op, or of the last one
  bool paged() const noexcept { return paged_; }
  bool op_fits() const noexcept { return op_pinned_ <= frames() - std::min(frames(), held_); }
  bool operand(const Chunk& chunk) const noexcept { return in_op_ && chunk.op_serial == op_serial_; }
  std::uint32_t op_chunks() const noexcept { return op_largest_ + held_; }  // at most at once, so far
  std::uint32_t largest_op_chunks() const noexcept { return largest_op_; }  // of all ops that have ended

  // --- frames --------------------------------------------------------------------------------------------------------
  FramePool& pool() noexcept { return pool_; }
  void want_frames(std::uint32_t frames);  // the budget changes; more than there are is at once, fewer is the owner's
  const FramePool& pool() const noexcept { return pool_; }
  std::optional<FrameIndex> take_free() { return pool_.take(); }
  void give_free(FrameIndex frame);  // parked, and no chunk's from now on
  std::optional<ChunkIndex> longest_idle() const noexcept;
  void begin_window() { ++window_; }                             // of time
  std::optional<ChunkIndex> idle_for_a_window() const noexcept;  // the longest idle, if it was so for a whole one
  FrameIndex take_from_idle(ChunkIndex chunk);    // it was hidden: the chunk is empty, the frame the caller's
  void back(ChunkIndex chunk, FrameIndex frame);  // an unbacked chunk shows this frame
  void set_busy(ChunkIndex chunk);
  void clear_busy(ChunkIndex chunk);

  // --- moves ---------------------------------------------------------------------------------------------------------
  void hidden(ChunkIndex chunk);  // ahead of its write
  void covered(ChunkIndex chunk);
  void shown(ChunkIndex chunk);  // parked -> resident
  void start_fetch(ChunkIndex chunk, FrameIndex frame);
  void start_eviction(ChunkIndex chunk);
  struct Ended {
    bool read = false;
    ChunkIndex chunk;
    bool orphan = false;  // the chunk died meanwhile; the frame is free
  };
  Ended end_io(FrameIndex frame);
  void fetched(ChunkIndex chunk);
  std::uint8_t fetch_failed(ChunkIndex chunk);      // it is away again. Returns how often in a row
  void evicted(ChunkIndex chunk);                   // written, or a chunk that arrived and was not used
  void stays(ChunkIndex chunk, bool write_failed);  // its write failed, or it is wanted: shown again
  void forgive_writes();
  void lent(ChunkIndex chunk);        // its slot's memory is shown there
  void taken_back(ChunkIndex chunk);  // it is away again
  bool may_be_lent(ChunkIndex c) const noexcept {
    return (*this)[c].state == ChunkState::away && !(*this)[c].slot_busy;
  }
  bool may_be_taken_back(ChunkIndex c) const noexcept {
    return (*this)[c].state == ChunkState::in_place && (*this)[c].holds == 0 && !operand((*this)[c]) &&
           !used_in_place(c);
  }
  // The running op uses it in place, as the plan says.
  void use_in_place(ChunkIndex chunk);
  bool used_in_place(ChunkIndex c) const noexcept { return in_op_ && (*this)[c].lent_to == op_serial_; }
  void drop(ChunkIndex chunk);                 // parked or hidden just now: its frame is free, its bytes are gone
  void adopt(ChunkIndex from, ChunkIndex to);  // the frame of `from` was shifted to `to`, which was dropped

  // --- victims -------------------------------------------------------------------------------------------------------
  bool may_leave(ChunkIndex chunk) const noexcept { return may_leave((*this)[chunk]); }
  bool has_victim() const noexcept;
  bool birth_goes_on() const noexcept;  // a chunk that a birth waits for is here: soon it may leave
  // For room, the first to leave first: the furthest next use, unless the program runs on faults. The four chunks that
  // faults brought last leave last.
  std::vector<ChunkIndex> victims(std::size_t most) const;
  using Calendar = moves::Calendar;
  // Where an earlier step says what comes: first the chunk whose room is free for the most ops a transfer. One that
  // leaves for nothing costs one, others two. Of births in the running op, or the one that ended, nothing is known yet:
  // their chunks leave last.
  std::vector<ChunkIndex> victims(std::size_t most, const Calendar& step) const;
  // Of those that are known, that are not to leave already, and not used before tick `until`.
  std::vector<ChunkIndex> victims_unused_until(Ticks until, const Calendar& step, std::size_t most) const;

  // Ticks from the present one on at which chunks are used that are away, as far as that is known.
  std::vector<Ticks> uses_to_come() const;
  const moves::NextUses<ChunkIndex>& uses() const noexcept { return uses_; }

  // --- marks ---------------------------------------------------------------------------------------------------------
  void want(ChunkIndex chunk) { at(chunk).wanted = true; }
  void serve(ChunkIndex chunk) { at(chunk).wanted = false; }
  void plan_to_leave(ChunkIndex chunk) { at(chunk).leaving = true; }
  void plan_to_stay(ChunkIndex chunk) { at(chunk).leaving = false; }
  void expect_unchanged(ChunkIndex chunk, bool unchanged) { at(chunk).unchanged = unchanged; }
  void may_change(ChunkIndex chunk);  // the running op writes there
  void set_next_use(ChunkIndex chunk, Ticks tick) { uses_.tell(chunk, tick); }
  // Of one of the tensors there, beside the expected uses of the others; `dead_at`: never, if no death is expected.
  void expect_use(ChunkIndex chunk, Ticks tick, Ticks dead_at = never);
  void forget_next_uses() { uses_.forget(); }
  void set_touched(ChunkIndex chunk, bool touched) { at(chunk).touched = touched; }
  void fault(ChunkIndex chunk);
  std::uint32_t stray(ChunkIndex chunk) { return ++at(chunk).strays; }  // returns how many since nothing lives here

 private:
  struct Frame {
    enum class Io : std::uint8_t { none, read, write } io = Io::none;
    bool owned = false;  // by chunk `chunk`
    ChunkIndex chunk;
  };

  static bool here(ChunkState state) noexcept { return state == ChunkState::resident || state == ChunkState::in_place; }
  Chunk& at(ChunkIndex chunk);
  void become(ChunkIndex chunk, ChunkState next);
  void give_slot_back(Chunk& chunk);
  bool pinned(const Chunk& chunk) const noexcept { return chunk.holds > 0 || (!paged_ && operand(chunk)); }
  bool may_leave(const Chunk& chunk) const noexcept;
  bool leaves_before(ChunkIndex first, ChunkIndex second) const noexcept;
  bool leaves_before(ChunkIndex first, ChunkIndex second, const Calendar& step) const;
  std::vector<ChunkIndex> that_may_leave() const;
  bool among_last_faults(const Chunk& chunk, std::uint64_t count) const noexcept;
  bool needed_now(const Chunk& chunk) const noexcept;
  bool cycles(const Chunk& chunk) const noexcept;
  ChunkIndex idle_head() const noexcept { return {chunks()}; }
  Chunk& link(ChunkIndex chunk) { return chunk == idle_head() ? idle_list_ : chunks_[chunk]; }
  void idle_push(ChunkIndex chunk);
  void idle_remove(ChunkIndex chunk);

  const std::uint32_t count_;
  const Chunk untouched_;              // stands for every chunk that nothing has happened to
  Indexed<ChunkIndex, Chunk> chunks_;  // those below it; grows in place
  Chunk idle_list_;                    // its head and end
  Indexed<FrameIndex, Frame> frames_;
  moves::NextUses<ChunkIndex> uses_;
  Slots slots_;
  FramePool pool_;
  std::uint32_t idle_ = 0, evicting_ = 0, reads_in_flight_ = 0, writes_in_flight_ = 0, held_ = 0, live_ = 0, here_ = 0;
  ChunkIndex high_;  // one past the highest chunk ever used
  std::uint64_t arrivals_ = 0, faults_ = 0, op_serial_ = 1;
  std::uint32_t op_pinned_ = 0, op_largest_ = 0, largest_op_ = 0;  // chunks; held ones are counted in held_
  bool in_op_ = false, paged_ = false;
  std::uint32_t window_ = 0;
};

}  // namespace vedette
