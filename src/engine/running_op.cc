#include "engine/running_op.h"

#include <algorithm>
#include <utility>

#include "base/readable.h"

namespace vedette::engine {

void RunningOp::begin(OpIndex index, std::string_view name) {
  index_ = index;
  name_.assign(name);
  figures_.begin_op();
}

void RunningOp::enter(const detail::Executor::Part& part) {
  tell(paged_ops_.take_as_op_begins());
  books_.begin_op(part.tick);
  frames_to_come_ = part.frames_to_come;
  operands_of_whole_op_ = part.operands_of_whole_op;
  events_ = 0;
}

void RunningOp::leave() {
  note_paged();
  books_.end_op();
  frames_to_come_ = {};
  operands_of_whole_op_ = {};
}

bool RunningOp::names(ChunkIndex c) const noexcept {
  return std::any_of(operands_of_whole_op_.begin(), operands_of_whole_op_.end(),
                     [&](const ChunkRange& range) { return range.contains(c); });
}

void RunningOp::disturb() {
  if (const QuickOp::What* const op = quick_.disturb()) take_over(*op);
}

void RunningOp::hand_over() {
  if (const QuickOp::What* const op = quick_.hand_over()) take_over(*op);
}

void RunningOp::take_over(const QuickOp::What& op) {
  index_ = op.op;
  name_ = op.name;
  frames_to_come_ = op.frames_to_come;
  operands_of_whole_op_ = {};
  ahead_.end();
  events_ = 0;
  books_.begin_op(op.tick);
  for (const ChunkRange range : op.operands)
    for (const ChunkIndex c : range)
      if (books_[c].live > 0) frames_.pin(c);
  go_paged_unless_it_fits();
}

// --- births ----------------------------------------------------------------------------------------------------------

void RunningOp::counts_birth(std::uint32_t chunks) {
  if (books_.in_op()) ++events_;
  ahead_.born(chunks);
}

void RunningOp::counts_death() {
  if (books_.in_op()) ++events_;
}

std::uint32_t RunningOp::births_to_come() const noexcept {
  if (ahead_.known()) return static_cast<std::uint32_t>(ahead_.outlook().births + ahead_.outlook().next_births);
  if (!books_.in_op() || books_.paged() || events_ >= frames_to_come_.size()) return 0;
  return frames_to_come_[events_];
}

void RunningOp::predict(const moves::Outlook& outlook) {
  ahead_.begin(outlook);
  due_ = never;
}

// --- ops that need more than the budget ------------------------------------------------------------------------------

void RunningOp::go_paged() {
  if (books_.paged()) return;
  books_.go_paged();
  too_large_ = !failed_writes_.last();
  arrived_.notify_all();
}

void RunningOp::go_paged_unless_it_fits() {
  if (!books_.op_fits()) go_paged();
}

void RunningOp::begin_step() {
  tell(paged_ops_.take());
  paged_ops_.begin_step();
}

// Only its end shows what it needs: it allocates while it runs.
void RunningOp::note_paged() {
  if (!std::exchange(too_large_, false)) return;
  // One that waited in vain for pinned pages may be smaller than the budget.
  const std::uint32_t needs = std::max(books_.op_chunks(), books_.frames() + 1);
  paged_ops_.note(name_, needs);
}

void RunningOp::tell(const PagedOps::Op* op) {
  if (op == nullptr || !words_.heard()) return;
  const auto size = [&](std::uint64_t chunks) { return Bytes{chunks * chunk_bytes_.value}; };
  words_.tell(
      "op '" + op->name + "' needs " + readable(size(op->chunks)) + " at once and the budget is " +
      readable(size(books_.frames())) + ": it runs paged, slowly; give fast_memory at least " +
      readable_exactly(words_.budget_for(size(std::uint64_t{op->chunks} + detail::Executor::chunks_beside_op))));
}

}  // namespace vedette::engine
