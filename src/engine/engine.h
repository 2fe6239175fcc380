// The engine owns a slow store and a migrator thread, and moves chunks between frames of fast memory and the store's
// slots. Its books (books.h) say where every chunk is; chunk_state.h draws the states. It knows chunks, ops and next
// uses, and nothing of tensors or traces. It is the executor of CPU memory (moves/executor.h).
//
// The bytes of a frame in I/O are parked: no thread writes them.
//
// Engine is a thin door over its parts. A part calls only those below it, which return facts instead of calling back:
//
//   the program's side   ChunkScratch over Tensors   AnnouncedOps   UnannouncedAccesses   Budget   WatchedFrames
//   what moves when      PlannedMoves   Migrator
//   with what            OperandsInPlace, Maker
//   why                  Demand over RunningOp
//   where                Frames         SlowTier
//   in common            common.h: the lock, the memory, books.h, figures.h
//
// Frames are made as they are needed, ahead of need by a thread of their own. A birth that finds none ready makes one
// itself, and so does the migrator for a thread that waits. The migrator gives back those that no chunk needed for a
// while (unused_frames.h).
//
// Thread rule: as Executor's; every function of its own may be called from any thread. One mutex guards all; memory for
// frames is made without it, and an op for which there is nothing to do runs without it (quick_op.h). No function
// unlocks a lock that its caller holds, but two kinds that take it and say so in their names. With `await` it waits for
// an arrival, as a condition variable does. With `_unlocking` it is the migrator's own turn, which calls the store and
// the memory without the lock.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/announced_ops.h"
#include "engine/budget.h"
#include "engine/chunk_scratch.h"
#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/in_place.h"
#include "engine/maker.h"
#include "engine/migrator.h"
#include "engine/options.h"
#include "engine/planned_moves.h"
#include "engine/running_op.h"
#include "engine/slow_tier.h"
#include "engine/tensors.h"
#include "engine/unannounced.h"
#include "engine/watched_frames.h"
#include "moves/executor.h"
#include "os/chunk_memory.h"
#include "os/program.h"
#include "tier/link_habits.h"
#include "vedette/observer.h"
#include "vedette/result.h"

namespace vedette {

class Engine final : public detail::Executor {
 public:
  using OpMoves = detail::OpMoves;

  explicit Engine(EngineOptions options);
  ~Engine() override;  // stops the migrator; frames and addresses stay as they are
  // Once; the memory's fault sink is fault(). Returns the habits of each slow tier, measured with frames that are not
  // in use yet. `register_frames`: for I/O, where the memory allows it; frames that are registered cannot be converted.
  std::vector<LinkHabits> start(std::unique_ptr<ChunkMemory> memory, bool register_frames = true);
  void fault(const Fault& fault) noexcept { unannounced_.serve(fault); }
  // The dead give back their frames' memory from now on. More than `most` stay only where chunks cannot leave.
  std::uint32_t wind_down(std::uint32_t most) noexcept override { return budget_.wind_down(most); }
  std::uint32_t may_keep() const noexcept override { return budget_.may_keep(); }
  Bytes budget() const noexcept override { return budget_.now(); }
  Result<Resized> resize(Bytes budget, Caller caller) override { return budget_.resize(budget, caller); }
  void run_once() noexcept { migrator_.run_once(); }  // EngineOptions::by_hand: starts moves, then takes completions

  // Refused: moves to tiers that are not there, moves from a slow tier to a nearer slow one, recomputations, another
  // order of ops. Operands may stay in the first slow tier (in_place) where it can be used there (Traits::lends), and
  // in no other. The store does a move to a slower tier in the background. A drop is executed as an eviction: an op
  // that lists a tensor as written may read it too (`w -= m` announces w as written), so that its bytes must survive.
  Result<void> accepts(const Plan& plan) const override;

  // --- tensors come and go -------------------------------------------------------------------------------------------
  // Errors: out_of_memory when nothing can be evicted any more, or the slow tier has no room for as many living chunks.
  Result<void> born(ChunkRange chunks, Bytes = {}) override { return tensors_.born(chunks); }
  void died(ChunkRange chunks) noexcept override { tensors_.died(chunks); }
  Result<void> hold(ChunkRange chunks) override { return tensors_.hold(chunks); }
  void release_hold(ChunkRange chunks) noexcept override { tensors_.release_hold(chunks); }

  // --- ops -----------------------------------------------------------------------------------------------------------
  // The operands are resident when this returns, unless the op needs more than the budget; then it runs paged. Fetches
  // queue in order of need and start when a frame is free beyond those that births of the running op will take.
  void begin_op(OpIndex op, std::string_view name, const Part& part) override;
  void end_op(std::span<const OpMoves::Departure> departures) noexcept override;
  // The first thing that begin_op() and end_op() try, of an op that has run before and for which the plan moves
  // nothing. True: all chunks are resident and stay so; nothing was locked. False: nothing was done. `operands` and
  // `frames_to_come` live until the op ends.
  bool begin_quick_op(Ticks tick, OpIndex op, std::string_view name, std::span<const ChunkRange> operands,
                      std::span<const std::uint32_t> frames_to_come) {
    return common_.quick.begin(tick, op, name, operands, frames_to_come);
  }
  bool end_quick_op() noexcept { return common_.quick.end(); }
  void continue_op(std::span<const OpMoves::Departure> departures, const Part& part,
                   const std::function<void()>& between = {}) override;
  std::uint64_t early_touches() const noexcept override;  // faults of an op's operands that its section did not name
  // Operands are covered (hidden, with their frames) until a thread touches them. A chunk that cannot be covered counts
  // as touched. The end of the op uncovers them.
  void observe(std::span<const ChunkRange> operands) noexcept override { ops_.observe(operands); }
  // Some chunk of it, since it was covered.
  bool was_touched(ChunkRange operand) const noexcept override { return ops_.was_touched(operand); }
  Program& program() noexcept override { return common_.program; }  // whose clock times faults, too
  engine::ChunkScratch* scratch() noexcept override { return &scratch_; }
  engine::WatchedFrames* pages() noexcept override { return &watched_; }

  // --- plans ---------------------------------------------------------------------------------------------------------
  void forget_plan() noexcept override;  // drops queued moves; next uses become unknown
  void begin_step(std::uint64_t step) override;
  void end_step() override;
  void tell_what_did_not_fit() override;  // else told as the next step begins, or 100 ops later

  // --- what was measured ---------------------------------------------------------------------------------------------
  std::vector<detail::InPlaceUse> take_uses_in_place() noexcept override;
  Nanoseconds stalled_since_last_asked() noexcept override;
  Counters counters() const noexcept override;
  std::optional<Error> take_error() noexcept override;
  std::uint32_t largest_op_chunks() const noexcept override;
  Bytes budget_for(Bytes wanted) const noexcept override { return common_.words.budget_for(wanted); }
  std::uint32_t held_chunks() const noexcept override;
  ChunkState state(ChunkIndex chunk) const noexcept;
  std::string mechanism() const override;
  void set_observer(Observer* observer) noexcept override;
  void quiesce() noexcept;  // returns when no I/O is in flight and nothing is queued

 private:
  engine::Common common_;
  engine::SlowTier slow_;
  engine::Frames frames_;
  engine::RunningOp op_;
  engine::Demand demand_;
  engine::OperandsInPlace in_place_;
  engine::Maker maker_;
  const engine::Below below_{slow_, frames_, op_, demand_, in_place_, maker_};
  engine::PlannedMoves planned_;
  engine::Migrator migrator_;
  engine::AnnouncedOps ops_;
  engine::UnannouncedAccesses unannounced_;
  engine::Tensors tensors_;
  engine::Budget budget_;
  engine::ChunkScratch scratch_;
  engine::WatchedFrames watched_;
};

}  // namespace vedette
