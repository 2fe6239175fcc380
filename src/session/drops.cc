#include "session/drops.h"

#include <algorithm>

#include "moves/scratch.h"

namespace vedette::detail {

void Drops::start(const std::atomic<std::uint32_t>& frames) {
  recomputer_ = std::make_unique<Recomputer>(Recomputer::Parts{.mutex = mutex_,
                                                               .arena = arena_,
                                                               .logger = logger_,
                                                               .executor = *executor_,
                                                               .frames = frames,
                                                               .observer = options_.observer});
}

void Drops::stop() {
  if (recomputer_ != nullptr) recomputer_->stop();
}

void Drops::note(ChunkIndex wanted) noexcept {
  if (recomputer_ != nullptr) recomputer_->note(wanted);
}

// --- with the session's lock -----------------------------------------------------------------------------------------

void Drops::forget() {
  if (recomputer_ != nullptr) recomputer_->lineage().forget();
}

void Drops::rest() {
  if (recomputer_ != nullptr) recomputer_->rest(drops_nothing());
}

std::optional<std::uint32_t> Drops::is_source(std::uint64_t offset) {
  const auto logged = logger_.logged(offset);
  return logged && !recomputer_->let_die(*logged) ? logged : std::nullopt;
}

std::optional<std::uint32_t> Drops::held(std::uint64_t offset) {
  if (!may_drop() || !logger_.running()) return std::nullopt;
  const auto logged = logger_.logged(offset);
  if (logged) recomputer_->lineage().held(*logged);
  return logged;
}

void Drops::count(Counters& counters) const {
  if (recomputer_ == nullptr) return;
  const Recomputer::Figures again = recomputer_->figures();
  counters.bytes_recomputed.value = again.bytes_recomputed;
  counters.ops_recomputed = again.ops_recomputed;
  if (!executor_->traits().times_later) counters.recompute_ns = again.recompute_ns;
}

// The plan that the step follows drops nothing, and nothing is dropped.
bool Drops::drops_nothing() const noexcept {
  const Bucket* const bucket = plans_.current();
  return bucket != nullptr && bucket->plan.plan().recomputations.empty() && options_.recompute != Recompute::always &&
         !recomputer_->has_dropped();
}

// --- without it ------------------------------------------------------------------------------------------------------

// A recipe is tried when its sequence of ops is new and may get a plan, and kept in later steps if it was right.
bool Drops::wants_recipe() const noexcept {
  const Bucket* const bucket = plans_.current();
  if (bucket == nullptr) return logger_.step() > options_.warmup_steps && plans_.may_be_learned();
  const std::uint32_t op = logger_.next_op() - 1;
  if (!bucket->runs_again(op)) return false;
  // On a GPU a recipe may copy small tensors, so that none is kept without need.
  return !executor_->traits().whole_tensors || options_.recompute == Recompute::always ||
         bucket->plan.recomputes_of(op);
}

void Drops::keep(std::unique_ptr<Recipe> recipe) {
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t t : logger_.log().ops.back().reads)
    if (logger_.log().tensors[t].in_parts) return;  // all of a table, for some rows
  const Recipe& kept = *recipe;
  recomputer_->lineage().keep(logger_.next_op() - 1, std::move(recipe), [&](std::uint32_t t) {
    const LoggedTensor& logged = logger_.log().tensors[t];
    return kept.uses(arena_.base() + logged.offset, logged.bytes);
  });
}

void Drops::make_all() {
  if (recomputer_ != nullptr) recomputer_->make_all();
}

// Outside of the plan no op says when it needs a group, so all are made.
bool Drops::make_before_op(std::uint32_t index, const RunningOp& running, bool left_plan,
                           const std::function<Executor::Part()>& part) {
  const LoggedOp& op = logger_.log().ops[index];
  std::vector<ChunkRange> needed;
  bool make = left_plan;
  {
    const std::lock_guard lock(mutex_);
    Lineage& lineage = recomputer_->lineage();
    for (const auto* list : {&op.reads, &op.writes})
      for (const std::uint32_t t : *list) lineage.exists(t, logger_.log().tensors[t].kind == TensorKind::weight);
    const Bucket* const bucket = plans_.current();
    const auto made = bucket != nullptr ? bucket->plan.moves_at(running.part()).made : std::span<const OpMoves::Made>();
    if (!left_plan && made.empty() && !recomputer_->in_the_way(running.operands(), op.writes))
      return lineage.begin_op(index, op.reads, op.writes), false;
    needed = running.operands();
    for (const OpMoves::Made& planned : made) needed.push_back(planned.chunks);
    make = make || recomputer_->in_the_way(needed, op.writes);
  }
  if (make) {
    if (Scratch& scratch = *executor_->scratch(); scratch.queues_recipes()) scratch.come(part());
    left_plan ? recomputer_->make_all() : recomputer_->make(needed, op.writes);
  }
  const std::lock_guard lock(mutex_);
  recomputer_->lineage().begin_op(index, op.reads, op.writes);
  return make;
}

bool Drops::after_op(std::uint32_t index) {
  if (recomputer_ == nullptr) return false;
  const Bucket* const bucket = plans_.current();
  const bool tries = bucket == nullptr && !recomputer_->rests();
  recomputer_->remember(index, tries ? recomputer_->try_again(index, plans_.knows_any())
                                     : bucket != nullptr && bucket->runs_again(index));
  return tries;
}

std::vector<OpMoves::Departure> Drops::keep_what_cannot_be_made(std::uint32_t part,
                                                                std::span<const OpMoves::Departure> departures,
                                                                std::vector<ChunkRange>& drops) const {
  std::vector<OpMoves::Departure> others;
  if (options_.recompute == Recompute::always && plans_.current() != nullptr)  // operands that the next does not use
    for (const OpMoves::NextUse& use : plans_.current()->plan.moves_at(part).next_uses)
      if (use.after > part + 1) drops.push_back(use.chunks);
  const std::lock_guard lock(mutex_);
  for (const OpMoves::Departure& each : departures) {
    const bool drop = each.recomputed && recomputer_->can_be_made(each.chunks);
    if (drop) drops.push_back(each.chunks);
    if (!drop) others.push_back(each);
  }
  return others;
}

void Drops::drop(std::span<const ChunkRange> chunks) {
  for (const ChunkRange each : chunks) recomputer_->drop(each);
}

}  // namespace vedette::detail
