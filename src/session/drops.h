// Drops and recomputes for the running step: asks the plan, and tells the recomputer (recomputer.h) what ops do.
// Where nothing is to be dropped there is no recomputer, and its functions do nothing.
//
// Lock rule: functions say which they are called with. The op thread alone calls those that ops and steps call.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/common.h"
#include "session/plans.h"
#include "session/recomputer.h"
#include "session/running_op.h"

namespace vedette::detail {

class Drops : PartOfSession {
 public:
  Drops(const Common& session, const Plans& plans) : PartOfSession(session), plans_(plans) {}
  void start(const std::atomic<std::uint32_t>& frames);  // of fast memory. Once, where something may be dropped
  void stop();
  void end() { recomputer_.reset(); }  // the executor has ended
  bool may_drop() const noexcept { return recomputer_ != nullptr && !recomputer_->rests(); }
  Recomputer* recomputer() const noexcept { return recomputer_.get(); }  // nullptr: nothing is dropped
  void note(ChunkIndex wanted) noexcept;  // a thread waits for it; with the executor's lock held

  // --- with the session's lock -------------------------------------------------------------------------------------
  void forget();  // of the step that was
  void rest();    // while the plan drops nothing, or no longer
  Lineage* lineage() noexcept { return may_drop() ? &recomputer_->lineage() : nullptr; }  // nullptr: nothing is dropped
  // The tensor there dies. Its number in the log: something is made from it, which has to be made before.
  std::optional<std::uint32_t> keeps(std::uint64_t offset) {
    return may_drop() && logger_.running() ? is_source(offset) : std::nullopt;
  }
  // The tensor there is about to be held, and may be written without an op. Its number in the log, as a step runs.
  std::optional<std::uint32_t> held(std::uint64_t offset);
  void count(Counters& counters) const;

  // --- without it --------------------------------------------------------------------------------------------------
  bool wants_recipe() const noexcept;  // of the latest op
  void keep(std::unique_ptr<Recipe> recipe);
  void make_all();
  // Makes the plan's groups before the op, those that it uses, and those that could not be made any more after it.
  // `part` gives the op's. True: some were made, in no op's time.
  bool make_before_op(std::uint32_t index, const RunningOp& running, bool left_plan,
                      const std::function<Executor::Part()>& part);
  bool after_op(std::uint32_t index);  // true: its recipe was tried, in no op's time
  // When a part ends: `drops` are to be dropped, and what is returned leaves as all does.
  std::vector<OpMoves::Departure> keep_what_cannot_be_made(std::uint32_t part,
                                                           std::span<const OpMoves::Departure> departures,
                                                           std::vector<ChunkRange>& drops) const;
  void drop(std::span<const ChunkRange> chunks);

 private:
  bool drops_nothing() const noexcept;
  std::optional<std::uint32_t> is_source(std::uint64_t offset);

  const Plans& plans_;
  std::unique_ptr<Recomputer> recomputer_;  // nullptr: nothing is dropped
};

}  // namespace vedette::detail
