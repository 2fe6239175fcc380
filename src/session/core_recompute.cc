// Recipes of ops, and the tensors of a step that repeats that they recompute: the session's side of recomputer.h.
#include <algorithm>

#include "moves/scratch.h"
#include "session/core.h"
#include "session/registry.h"

namespace vedette::detail {

// With the session's lock, before an op. The plan that the step follows drops nothing, and nothing is dropped.
bool SessionCore::drops_nothing() const noexcept {
  const Bucket* const bucket = plans_.current();
  return bucket != nullptr && bucket->plan.plan().recomputations.empty() && options_.recompute != Recompute::always &&
         !recomputer_->has_dropped();
}

// A recipe is tried when its sequence of ops is new and may get a plan, and kept in later steps if it was right.
bool SessionCore::wants_recipe() const noexcept {
  if (!may_drop() || !in_op_of_this_thread() || op_depth_ > 1) return false;
  const Bucket* const bucket = plans_.current();
  if (bucket == nullptr) return logger_.step() > options_.warmup_steps && plans_.may_be_learned();
  const std::uint32_t op = logger_.next_op() - 1;
  if (!bucket->runs_again(op)) return false;
  // On a GPU a recipe may copy small tensors, so that none is kept without need.
  return !executor_->traits().whole_tensors || options_.recompute == Recompute::always ||
         bucket->plan.recomputes_of(op);
}

void SessionCore::keep_recipe(std::unique_ptr<Recipe> recipe) {
  if (recipe == nullptr || !wants_recipe()) return;
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t t : logger_.log().ops.back().reads)
    if (logger_.log().tensors[t].in_parts) return;  // all of a table, for some rows
  const Recipe& kept = *recipe;
  recomputer_->lineage().keep(logger_.next_op() - 1, std::move(recipe), [&](std::uint32_t t) {
    const LoggedTensor& logged = logger_.log().tensors[t];
    return kept.uses(arena_.base() + logged.offset, logged.bytes);
  });
}

bool SessionCore::may_be_dropped(const void* memory) const noexcept {
  const std::lock_guard lock(mutex_);
  if (owner_of(memory) != this) return false;
  const auto found = arena_.holding(memory);
  return found != arena_.tensors().end() && !found->second.small;
}

void SessionCore::count_recomputed(Counters& counters) const {
  if (recomputer_ == nullptr) return;
  const Recomputer::Figures again = recomputer_->figures();
  counters.bytes_recomputed.value = again.bytes_recomputed;
  counters.ops_recomputed = again.ops_recomputed;
  if (!executor_->traits().times_later) counters.recompute_ns = again.recompute_ns;
}

void SessionCore::dropped_chunk_wanted(ChunkIndex chunk) noexcept {
  if (recomputer_ != nullptr) recomputer_->note(chunk);
}

// Makes the plan's groups before the op, those that it uses, and those that could not be made any more after it.
// Outside of the plan no op says when it needs a group, so all are made.
void SessionCore::make_before_op(std::uint32_t index, bool left_plan) {
  const LoggedOp& op = logger_.log().ops[index];
  std::vector<ChunkRange> needed;
  bool make = left_plan;
  {
    const std::lock_guard lock(mutex_);
    Lineage& lineage = recomputer_->lineage();
    for (const auto* list : {&op.reads, &op.writes})
      for (const std::uint32_t t : *list) lineage.exists(t, logger_.log().tensors[t].kind == TensorKind::weight);
    const Bucket* const bucket = plans_.current();
    const auto made = bucket != nullptr ? bucket->plan.moves_at(op_.part()).made : std::span<const OpMoves::Made>();
    if (!left_plan && made.empty() && !recomputer_->in_the_way(op_.operands(), op.writes))
      return lineage.begin_op(index, op.reads, op.writes);
    needed = op_.operands();
    for (const OpMoves::Made& planned : made) needed.push_back(planned.chunks);
    make = make || recomputer_->in_the_way(needed, op.writes);
  }
  if (make) {
    if (Scratch& scratch = *executor_->scratch(); scratch.queues_recipes()) scratch.come(part_now(op_.operands()));
    left_plan ? recomputer_->make_all() : recomputer_->make(needed, op.writes);
    executor_->stalled_since_last_asked();
    times_.end_op(executor_->program().now());  // no op's compute
  }
  const std::lock_guard lock(mutex_);
  recomputer_->lineage().begin_op(index, op.reads, op.writes);
}

void SessionCore::after_op(std::uint32_t index) {
  if (const Bucket* const bucket = plans_.current(); bucket != nullptr || recomputer_->rests()) {
    return recomputer_->remember(index, bucket != nullptr && bucket->runs_again(index));
  }
  recomputer_->remember(index, recomputer_->try_again(index, plans_.knows_any()));
  executor_->stalled_since_last_asked();
  times_.end_op(executor_->program().now());
}

// When a part ends: those that are to be recomputed, of which the others leave as all do.
std::vector<OpMoves::Departure> SessionCore::keep_what_cannot_be_made(std::span<const OpMoves::Departure> departures,
                                                                      std::vector<ChunkRange>& drops) const {
  std::vector<OpMoves::Departure> others;
  if (options_.recompute == Recompute::always && plans_.current() != nullptr)  // operands that the next does not use
    for (const OpMoves::NextUse& use : plans_.current()->plan.moves_at(op_.part()).next_uses)
      if (use.after > op_.part() + 1) drops.push_back(use.chunks);
  const std::lock_guard lock(mutex_);
  for (const OpMoves::Departure& each : departures) {
    const bool drop = each.recomputed && recomputer_->can_be_made(each.chunks);
    if (drop) drops.push_back(each.chunks);
    if (!drop) others.push_back(each);
  }
  return others;
}

void SessionCore::end_part() noexcept {
  const std::span<const OpMoves::Departure> leave = departures();
  const bool any = !leave.empty() || options_.recompute == Recompute::always;
  if (!may_drop() || !any || plans_.current() == nullptr || !logger_.running()) return executor_->end_op(leave);
  std::vector<ChunkRange> drops;
  executor_->end_op(keep_what_cannot_be_made(leave, drops));
  for (const ChunkRange chunks : drops) recomputer_->drop(chunks);
}

}  // namespace vedette::detail
