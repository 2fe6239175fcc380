#include "session/plan_reports.h"

#include <utility>

#include "base/readable.h"
#include "model/wear.h"

namespace vedette::detail {

void PlanReports::say_what_places_came_to(Bucket& bucket) {
  while (const auto sentence = logger_.named_places().found_nothing()) messages_.post(*sentence);
  if (bucket.plan.breaks_rules())
    messages_.post("place(): with all tensors where the rules have them there is no plan for fast memory of " +
                   readable(budget()) + "; steps are planned without the rules");
}

// A program with memory to spare hears why its guard does nothing.
void PlanReports::say_that_nothing_moves(const Bucket& ran, const Counters& so_far) {
  constexpr std::uint64_t runs = 3;
  const std::uint64_t moved = so_far.bytes_in.value + so_far.bytes_out.value + so_far.bytes_dropped.value +
                              so_far.bytes_recomputed.value + so_far.bytes_in_place.value;
  if (said_nothing_moves_ || ran.runs() < runs || moved > 0 || ran.unplanned() > 0) return;
  said_nothing_moves_ = true;
  messages_.post("all of a step fits: its tensors take " + readable(peak_bytes(ran.plan.planned_trace())) +
                 " at most, fast memory has " + readable(budget()) + ", and nothing moves");
}

// An op that does not fit as a whole may fit in sections.
void PlanReports::tell_why_no_plan(Bucket& bucket) {
  if (bucket.why_no_plan.empty() || bucket.sections.may_change()) return;
  messages_.post(std::exchange(bucket.why_no_plan, {}));
}

void PlanReports::tell_plan(Bucket& bucket, const Machine& machine) {
  bucket.planned(logger_.step());
  if (options_.on_progress && !bucket.plan.has_failed())
    if (const auto line = signs_.planned(logger_.step(), bucket.plan.planned_trace(), machine, bucket.plan.plan(),
                                         budget(), rated_endurance(options_.max_writes)))
      messages_.post_progress(*line);
  report_places(bucket);
  if (options_.observer == nullptr) return;
  const std::span<const std::uint32_t> first = bucket.plan.first_parts();
  options_.observer->planned(logger_.step(), bucket.id(), whole_ops(bucket.plan.planned_trace(), first),
                             whole_ops(bucket.plan.plan(), first));
}

void PlanReports::report_places(const Bucket& placed) const {
  if (options_.observer == nullptr) return;
  std::vector<Placed> units, tensors;
  for (const UnitChunks& where : placed.plan.units().where)
    units.push_back({.index = static_cast<std::uint32_t>(units.size()),
                     .offset = {where.first * options_.chunk.value},
                     .bytes = {where.count * options_.chunk.value}});
  for (const Bucket::Extent& place : placed.program_places())
    tensors.push_back(
        {.index = static_cast<std::uint32_t>(tensors.size()), .offset = {place.offset}, .bytes = place.bytes});
  options_.observer->placed(logger_.step(), placed.id(), units, tensors);
}

// A row that is away brings its whole chunk: of a table of 1 GiB, chunks of 2 MiB moved thirty times the bytes of 64
// KiB (docs/results.md).
void PlanReports::advise_on_rows(std::uint32_t chunks) {
  constexpr Bytes suitable = 64_KiB;
  if (advised_on_rows_ || chunks == 0 || options_.chunk <= suitable ||
      arena_.peak_bytes() <= options_.fast_memory.value)
    return;
  advised_on_rows_ = true;
  messages_.post("rows of tables are looked up, and a row that is away brings a chunk of " + readable(options_.chunk) +
                 ": with chunk = 64_KiB (train --chunk 64KiB) a step moves less");
}

Rows PlanReports::rows_of(const Bucket& bucket) const {
  std::vector<ChunkRange> in_parts;
  for (const Bucket::Extent& t : bucket.in_parts()) in_parts.push_back(arena_.chunks_of(t.offset, t.bytes.value));
  return bucket.rows.rows(in_parts, executor_->held_chunks(), options_.chunk, bucket.plan.first_parts());
}

PlannedStep PlanReports::planned_step(const Bucket& bucket) const {
  Trace trace = bucket.plan.planned_trace();
  // An op in place may be the first to touch a tensor: there is nothing yet that it could read.
  std::vector<bool> born(trace.tensors.size());
  for (std::size_t t = 0; t < born.size(); ++t) born[t] = trace.tensors[t].persistent;
  for (Op& op : trace.ops) {
    std::erase_if(op.reads, [&](TensorIndex t) { return !born[t.value]; });
    for (const TensorIndex t : op.writes) born[t.value] = true;
  }
  Rows rows = rows_of(bucket);
  rows.always_near = {static_cast<std::uint32_t>(trace.tensors.size())};
  const Bytes always_near = {rows.held.value + bucket.unplanned() * options_.chunk.value};
  if (always_near.value > 0) {  // no plan has it as a unit, but it takes room at every op
    for (Op& op : trace.ops) op.reads.push_back({static_cast<std::uint32_t>(trace.tensors.size())});
    trace.tensors.push_back(
        {.name = "always near", .bytes = always_near, .kind = TensorKind::constant, .persistent = true});
  }
  return {.trace = std::move(trace),
          .program = bucket.plan.program_in_sections() ? bucket.plan.program_in_sections()->unpack() : bucket.program(),
          .steps = bucket.runs(),
          .rows = std::move(rows)};
}

}  // namespace vedette::detail
