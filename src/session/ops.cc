#include "session/ops.h"

#include <algorithm>
#include <functional>

namespace vedette::detail {

using Stage = SectionLearner::Stage;

void Ops::begin_step() {
  op_.begin_step();
  rows_.begin_step();
  step_begins_ += ticks_of_a_step;
}

void Ops::forget() {
  rows_ = {};
  times_ = {};
  op_ = {};
}

bool Ops::runs_on_this_thread() const noexcept {
  return thread() == std::this_thread::get_id() && depth_ > 0 && logger_.running();
}

// --- an op begins ----------------------------------------------------------------------------------------------------

void Ops::add_operands(std::span<const void* const> addresses, bool written, OperandList& logged, std::uint64_t& hash,
                       std::uint64_t& kind) {
  for (const void* address : addresses) {
    if (!arena_.has(address)) continue;
    const auto found = arena_.holding(address);
    if (found == arena_.tensors().end()) {
      if (const auto small = arena_.slab_chunk_that_may_leave(address)) op_.small_operand(*small);
      continue;
    }
    const auto& [offset, live] = *found;
    if (!live.small) hash = mix(hash, live.bytes.value);  // other steps have it in the slab
    if (live.kind == TensorKind::weight || live.kind == TensorKind::optimizer) kind = mix(kind, offset);
    std::uint32_t index = no_log_tensor;
    if (logger_.running()) logged.push_back(index = logger_.tensor(offset, live, /*whole=*/true));
    op_.operand(arena_.chunks_of(offset, live.bytes.value), index, written);
  }
}

// A tensor that moves whole, and that the plan moves, is an operand as others are.
void Ops::add_few(const vedette::Part& part, Bytes bytes, std::uint64_t offset, const Live& live) {
  const ChunkRange chunks = arena_.chunks_of(offset, live.bytes.value);
  if (logger_.running()) rows_.touch_few(logger_.tensor(offset, live), bytes);
  const Bucket* const bucket = plans_.current();
  if (bucket == nullptr ||
      std::ranges::find(bucket->in_parts(), offset, &Bucket::Extent::offset) != bucket->in_parts().end()) {
    op_.few_of(chunks, bytes, part.written);
  } else {
    op_.operand(chunks, no_log_tensor, part.written);
  }
}

void Ops::add_part(const vedette::Part& part, std::uint64_t offset, const Live& live) {
  const std::uint64_t begin = arena_.offset_of(part.first);
  const Bytes bytes{std::min(part.bytes.value, offset + live.bytes.value - begin)};
  if (executor_->traits().whole_tensors) return add_few(part, bytes, offset, live);
  const ChunkRange chunks = arena_.chunks_of(begin, bytes.value);
  op_.operand(chunks, no_log_tensor, part.written);
  if (plans_.making().uses_in_place() && plans_.follows_plan())
    for (const ChunkIndex c : chunks)
      if (rows_.may_lie_far(c) && arena_.bytes_in(c, offset, live.bytes.value) == options_.chunk.value)
        op_.may_lie_far(c, {arena_.bytes_in(c, begin, bytes.value)}, part.written);
  if (logger_.running()) rows_.touch(logger_.next_op(), chunks, bytes);
}

// Which parts an op touches changes from step to step, so only their tensors tell one step from another. What was born
// in the step is an operand as others are: its plan has it near by then.
void Ops::add_parts(std::span<const vedette::Part> parts, LoggedOp& op, std::uint64_t& hash) {
  std::uint64_t before = ~std::uint64_t{0};
  bool written = false;  // the tensor at `before`, by a part so far
  for (const vedette::Part& part : parts) {
    if (!arena_.has(part.first)) continue;
    const auto found = arena_.holding(part.first);
    if (found == arena_.tensors().end()) continue;
    const auto& [offset, live] = *found;
    const bool again = before == offset;
    if (!again) hash = mix(hash, ~live.bytes.value);
    before = offset;
    const std::uint32_t index = logger_.running() ? logger_.tensor(offset, live) : no_log_tensor;
    const bool is_new = index != no_log_tensor && logger_.log().tensors[index].birth > 0;
    if (!is_new) {
      add_part(part, offset, live);
    } else if (!again || (part.written && !written)) {
      op_.operand(arena_.chunks_of(offset, live.bytes.value), logger_.tensor(offset, live, /*whole=*/true),
                  part.written);
    }
    written = part.written || (again && written);
    if (index == no_log_tensor) continue;
    if (!is_new) logger_.touched_in_parts(index);
    if (op.reads.empty() || op.reads.back() != index) op.reads.push_back(index);
    if (part.written && (op.writes.empty() || op.writes.back() != index)) op.writes.push_back(index);
  }
}

// Tensors that some op had whole, or of which most was touched in all: plans move them as they do others, unless they
// would take more than half of the memory for it. So it is where tensors move whole, and all of them have room.
void Ops::settle_parts() {
  if (rows_.is_empty()) return;
  const std::uint64_t budget = executor_->budget().value;
  const bool all_fit = executor_->traits().whole_tensors && arena_.peak_bytes() <= budget;
  const std::vector<LoggedTensor>& tensors = logger_.log().tensors;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const LoggedTensor& t = tensors[i];
    if (!t.in_parts) continue;
    const ChunkRange chunks = arena_.chunks_of(t.offset, t.bytes.value);
    const bool much = 2 * rows_.chunks_in(chunks) > chunks.size() || 2 * rows_.few_of(i).value > t.bytes.value;
    if (!t.whole && !all_fit && (!much || t.bytes.value > budget / 2)) continue;
    logger_.touched_in_parts(i, false);
    rows_.forget(chunks);
  }
}

std::uint32_t Ops::log_op(std::string_view name, LoggedOp op, std::uint64_t hash, std::uint64_t kind) {
  op.name = logger_.name_of_next_op(name);
  const std::uint32_t index = logger_.begin_op(std::move(op), hash, kind);
  op_.planned_as(index);
  plans_.follow(index);
  if (PageProfile* const pages = profiling_.pages(); pages != nullptr)
    pages->op_begins(index, logger_.log().ops.back(), logger_.log().tensors);
  if (plans_.current() != nullptr) find_sections(index);
  return index;
}

// The part of the plan with which the op begins, and whether its operands are observed.
void Ops::find_sections(std::uint32_t index) {
  Bucket& bucket = *plans_.current();
  op_.planned_as(bucket.plan.first_part(index));
  const bool observed = bucket.sections.observes(index);
  const std::vector<WatchedSection>& sections = bucket.sections.of(index);
  if (!sections.empty() && sections.front().touched.size() == op_.operands().size()) {
    op_.cut(sections, executor_->early_touches());
    bucket.sections.begins_after(index, 0, logger_.events());
  } else if (!sections.empty()) {
    bucket.sections.failed(index);  // another op than was observed
  }
  if (observed || !sections.empty()) op_.remember(index, observed);
  bucket.sections.time_op(index);
}

Executor::Part Ops::part_now(std::span<const ChunkRange> operands) {
  Executor::Part part{
      .tick = step_begins_ + op_.part(), .operands = operands, .step_begins = step_begins_, .written = op_.written()};
  part.few = op_.few();
  if (!logger_.running() || plans_.current() == nullptr) return part;
  const StepPlan& plan = plans_.current()->plan;
  if (op_.in_sections()) part.operands_of_whole_op = op_.operands();
  if (plan.has_failed()) return part;
  part.planned = true;
  part.moves = plan.moves_at(op_.part());
  part.moves.in_place = op_.in_place(part.moves.in_place);
  part.places = plan.places();
  if (plans_.takes_over()) part.start = &plan.start();
  part.frames_to_come = plan.frames_to_come(op_.part());
  part.repeats = !op_.needs_more_than_operands() && !op_.observed();
  return part;
}

void Ops::begin(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                std::span<const vedette::Part> parts, Bytes result) {
  std::uint32_t index = 0;
  std::vector<ChunkRange> operands;
  bool in_step = false, left_plan = false;
  const Ahead* ahead = nullptr;
  PageProfile* const pages = profiling_.pages();
  {
    const std::lock_guard lock(mutex_);
    op_.begin();
    thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    in_step = logger_.running();
    std::uint64_t hash = std::hash<std::string_view>{}(name);
    std::uint64_t kind = mix(mix(hash, reads.size()), writes.size());
    LoggedOp op;
    op.named_reads = static_cast<std::uint32_t>(reads.size());
    add_operands(reads, false, op.reads, hash, kind);
    hash = mix(hash, reads.size());
    add_operands(writes, true, op.writes, hash, kind);
    add_parts(parts, op, hash);
    const Bucket* const followed = plans_.current();
    if (!in_step)
      if (const auto sentence = signs_.op_without_a_step()) messages_.post(*sentence);
    if (in_step) index = log_op(name, std::move(op), hash, kind);
    left_plan = followed != nullptr && followed != plans_.current();
    if (in_step) drops_.rest();
    if (in_step && pages == nullptr) ahead = plans_.predict();
    if (op_.needs_more_than_operands()) operands = op_.needed();
  }
  if (drops_.may_drop() && in_step) make_before(index, left_plan);
  Executor::Part part = part_now(op_.needs_more_than_operands() ? operands : op_.operands());
  part.ahead = ahead;
  part.result = result;
  executor_->begin_op({index}, name, part);
  if (in_step && pages != nullptr) pages->op_is_ready();
  const Nanoseconds stalled = executor_->stalled_since_last_asked();
  if (!in_step) return;
  // Where the op waited for nothing, all since the last op's end is its own: the clock need not be asked.
  const Bucket* const bucket = plans_.current();
  const bool makes = drops_.may_drop() && !executor_->traits().times_later;  // which is no op's time
  const bool asks = stalled.value != 0 || options_.observer != nullptr || pages != nullptr || makes ||
                    (bucket != nullptr && bucket->sections.stage() == Stage::timing);
  const Nanoseconds began = asks ? executor_->program().now() : times_.last_end();
  times_.begin_op(began, stalled);
  if (options_.observer != nullptr) options_.observer->op_began(logger_.step(), {index}, name, began);
  if (op_.observed()) begin_observing(0, 0);
}

void Ops::make_before(std::uint32_t index, bool left_plan) {
  if (drops_.make_before_op(index, op_, left_plan, [this] { return part_now(op_.operands()); })) let_time_pass();
}

bool Ops::wants_recipe() const noexcept {
  return drops_.may_drop() && runs_on_this_thread() && depth_ == 1 && drops_.wants_recipe();
}

void Ops::keep_recipe(std::unique_ptr<Recipe> recipe) {
  if (recipe != nullptr && wants_recipe()) drops_.keep(std::move(recipe));
}

// --- sections of the running op --------------------------------------------------------------------------------------

void Ops::begin_observing(std::uint32_t birth, std::uint64_t bytes) {
  const std::uint32_t after_event = birth == 0 ? logger_.log().ops.back().events.begin : logger_.events();
  op_.observe(birth, bytes, after_event);
  executor_->observe(op_.operands());
}

void Ops::end_observing() {
  std::vector<char>& touched = op_.touched();
  for (std::size_t k = 0; k < touched.size(); ++k) touched[k] = executor_->was_touched(op_.operands()[k]) ? 1 : 0;
}

void Ops::before_birth(std::uint64_t bytes) {
  if (op_.section_begins_with(bytes)) next_section(true);
  if (op_.observed()) {
    const std::lock_guard lock(mutex_);  // other threads count events too
    end_observing();
    begin_observing(op_.births() + 1, bytes);
  }
  if (Bucket* const bucket = plans_.current(); bucket != nullptr && bucket->sections.stage() == Stage::timing)
    bucket->sections.add_time(logger_.next_op() - 1, count_time_until(executor_->program().now()));
  op_.count_birth();
}

Nanoseconds Ops::count_time_until(Nanoseconds now) {
  return times_.count_until(now, executor_->stalled_since_last_asked());
}

std::span<const OpMoves::Departure> Ops::departures() const {
  if (!logger_.running() || plans_.current() == nullptr) return {};
  return plans_.current()->plan.moves_at(op_.part()).departures;
}

void Ops::next_section(bool runs) {
  count_time_until(executor_->program().now());
  const std::span<const OpMoves::Departure> leave = departures();
  std::vector<ChunkRange> operands, drops;
  std::vector<OpMoves::Departure> others;
  if (drops_.may_drop()) others = drops_.keep_what_cannot_be_made(op_.part(), leave, drops);
  {
    const std::lock_guard lock(mutex_);  // other threads free births
    op_.next_section();
    plans_.current()->sections.begins_after(logger_.next_op() - 1, op_.section(), logger_.events());
    if (runs) operands = op_.needed();
  }
  std::function<void()> between;
  if (!drops.empty()) between = [&] { drops_.drop(drops); };
  executor_->continue_op(drops_.may_drop() ? std::span<const OpMoves::Departure>(others) : leave, part_now(operands),
                         between);
  const Nanoseconds stalled = executor_->stalled_since_last_asked();
  times_.next_section(executor_->program().now(), stalled);
}

// --- an op ends ------------------------------------------------------------------------------------------------------

void Ops::end() noexcept {
  if (--depth_ > 0) return;
  while (!op_.in_last_section()) next_section(false);
  const bool in_step = logger_.running();
  PageProfile* const pages = profiling_.pages();
  // Where ops run later, the host's clock says less of an op than the plan that the step follows.
  const bool known = in_step && executor_->traits().times_later && plans_.current() != nullptr &&
                     options_.observer == nullptr && pages == nullptr;
  const Nanoseconds ended = !in_step ? Nanoseconds{} : known ? times_.last_end() : executor_->program().now();
  std::uint64_t live_bytes = 0;
  if (in_step) {
    logger_.end_op();
    if (options_.observer != nullptr || op_.observed()) {
      const std::lock_guard lock(mutex_);
      live_bytes = arena_.live_bytes();
      if (op_.observed()) end_observing();
    }
  }
  if (in_step && pages != nullptr) pages->op_ended();
  end_part();
  if (!in_step) return;
  const std::uint32_t index = logger_.next_op() - 1;
  const Nanoseconds took = count_time_until(ended);
  Bucket* const bucket = plans_.current();
  if (bucket != nullptr) bucket->sections.add_time(index, took);
  logger_.took(known ? bucket->plan.least_time_of(index) : times_.of_latest(op_.section() + 1));
  if (op_.in_sections() && executor_->early_touches() != op_.early_before()) bucket->sections.failed(index);
  times_.end_op(pages != nullptr ? executor_->program().now() : ended);  // looking at pages is no op's compute
  report_end(index, ended, live_bytes);
  if (drops_.after_op(index)) let_time_pass();
}

void Ops::let_time_pass() {
  executor_->stalled_since_last_asked();
  times_.end_op(executor_->program().now());
}

void Ops::end_part() noexcept {
  const std::span<const OpMoves::Departure> leave = departures();
  const bool any = !leave.empty() || options_.recompute == Recompute::always;
  if (!drops_.may_drop() || !any || plans_.current() == nullptr || !logger_.running()) return executor_->end_op(leave);
  std::vector<ChunkRange> drops;
  executor_->end_op(drops_.keep_what_cannot_be_made(op_.part(), leave, drops));
  drops_.drop(drops);
}

void Ops::report_end(std::uint32_t index, Nanoseconds ended, std::uint64_t live_bytes) {
  if (options_.observer == nullptr) return;
  options_.observer->sampled(logger_.step(), {index}, {executor_->counters().resident_bytes.value}, {live_bytes});
  options_.observer->op_ended(logger_.step(), {index}, ended);
}

}  // namespace vedette::detail
