// The op that runs, or a section of it: what its births will take yet, what is predicted beside it, and whether it
// needs more than the budget. Then it runs paged: its operands come by faults, and leave again while it runs.
//
// An op that runs without the lock becomes one that the books know before anything is hidden (quick_op.h).
//
// Thread rule: as common.h's.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/common.h"
#include "engine/frames.h"
#include "engine/paged_ops.h"
#include "moves/executor.h"
#include "moves/look_ahead.h"

namespace vedette::engine {

class RunningOp : PartOfEngine {
 public:
  RunningOp(Common& engine, Frames& frames) : PartOfEngine(engine), frames_(frames) {}

  void begin(OpIndex index, std::string_view name);
  void enter(const detail::Executor::Part& part);  // it, or its next section; its operands are not pinned yet
  void leave();
  OpIndex index() const noexcept { return index_; }
  bool names(ChunkIndex chunk) const noexcept;  // an operand of the op, in this section or in another

  // Before anything is hidden. The second: where nothing is hidden.
  void disturb();
  void hand_over();

  // --- births --------------------------------------------------------------------------------------------------------
  void counts_birth(std::uint32_t chunks);
  void counts_death();
  std::uint32_t births_to_come() const noexcept;  // in frames
  void add_stall(Nanoseconds began, bool in_allocation) { figures_.stalled(began, index_, in_allocation); }

  // --- what is predicted, until the next op begins -------------------------------------------------------------------
  moves::LookAhead& ahead() noexcept { return ahead_; }
  const moves::LookAhead& ahead() const noexcept { return ahead_; }
  bool is_predicted() const noexcept { return ahead_.known(); }
  void predict(const moves::Outlook& outlook);
  // Chunks that are used from this tick on are fetched later.
  void set_due(Ticks due) noexcept { due_ = due; }
  Ticks due() const noexcept { return ahead_.known() ? due_ : never; }

  // --- ops that need more than the budget ----------------------------------------------------------------------------
  void go_paged();
  void go_paged_unless_it_fits();
  void begin_step();
  void end_step() { paged_ops_.end_step(); }
  void tell_what_did_not_fit() { tell(paged_ops_.take()); }

 private:
  void take_over(const QuickOp::What& op);
  void note_paged();                  // the op ends
  void tell(const PagedOps::Op* op);  // nullptr: nothing

  Frames& frames_;
  OpIndex index_;
  std::string name_;
  std::span<const std::uint32_t> frames_to_come_;  // of the bucket, which outlives the op
  std::span<const ChunkRange> operands_of_whole_op_;
  std::uint32_t events_ = 0;  // births and deaths in it
  moves::LookAhead ahead_;
  Ticks due_ = never;
  bool too_large_ = false;  // for the budget: it runs paged
  PagedOps paged_ops_;
};

}  // namespace vedette::engine
