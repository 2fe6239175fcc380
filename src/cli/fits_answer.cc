#include "cli/fits_answer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/time_limit.h"
#include "cli/chunked.h"
#include "model/liveness.h"
#include "model/wear.h"
#include "moves/executor.h"
#include "session/fast_memory.h"
#include "vedette/bound.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::cli {
namespace {

// Most bytes at once of tensors that leave fast memory in a step.
Bytes bytes_below(const Trace& trace, const Plan& plan) {
  std::vector<char> leaves(trace.tensors.size());
  for (const Move& move : plan.moves)
    if (move.verb == Verb::evict) leaves[move.extent.tensor.value] = 1;
  const std::vector<Span<OpIndex>> alive = lives(trace);
  std::vector<std::uint64_t> born(trace.ops.size() + 1), dead(born.size());  // bytes, before each op
  for (std::size_t t = 0; t < leaves.size(); ++t) {
    if (leaves[t] == 0) continue;
    born[alive[t].begin.value] += trace.tensors[t].bytes.value;
    dead[alive[t].end.value] += trace.tensors[t].bytes.value;
  }
  std::uint64_t now = 0, most = 0;
  for (std::size_t op = 0; op < born.size(); ++op) most = std::max(most, now = now + born[op] - dead[op]);
  return {most};
}

double share(Nanoseconds ideal, Nanoseconds time) {
  return time.value > 0 ? static_cast<double>(ideal.value) / static_cast<double>(time.value) : 0;
}

struct Tried {
  double speed = 0;  // 0: there is no plan
  Replayed run;
  Plan plan;
};

Tried try_plan(const Trace& trace, const Machine& machine) {
  constexpr std::chrono::milliseconds work{500}, longest{4000};
  const TimeLimit limit(TimeLimit::Clock::now() + longest, work);
  auto plan = make_policy("vedette", 1)->prepare(trace, machine);
  if (!plan) return {};
  auto run = replay(trace, machine, *plan);
  if (!run) return {};
  Tried tried{.speed = share(run->ideal, run->measured.time), .run = *std::move(run)};
  tried.plan = *std::move(plan);
  return tried;
}

// As it moves there: in chunks, where memory does.
Trace as_it_moves(const Trace& step, const Machine& machine) {
  return machine.whole_tensors ? step : in_chunks(step, machine, "vedette");
}

}  // namespace

Nanoseconds ideal_of(const Trace& trace) {
  Nanoseconds all;
  for (const Op& op : trace.ops) all += op.time;
  return all;
}

Answer answer(const Subject& subject, Bytes memory, const Answer* smaller) {
  Answer found{.memory = memory};
  for (const Trace& step : subject.steps) {
    Machine machine = subject.machine;
    machine.tiers[0].capacity = memory;
    machine.can_recompute = true;  // so that ops say whether they run again
    const Trace trace = as_it_moves(step, machine);
    machine.can_recompute = false;
    Tried best = try_plan(trace, machine);
    found.moving.push_back(best.speed);
    found.bound.push_back(share(ideal_of(trace), lower_bound(trace, machine)));
    machine.can_recompute = true;
    Tried recomputed = try_plan(trace, machine);
    found.recomputing.push_back(std::max(best.speed, recomputed.speed));
    if (&step != &subject.steps.front()) continue;
    if (recomputed.speed > best.speed) best = std::move(recomputed);
    found.moved = best.run.bytes_in + best.run.bytes_out;
    found.below = bytes_below(trace, best.plan);
    found.step = best.run.measured.time;
    found.to_disk = planned_for_disk(trace, machine, best.plan, best.run.bytes_out);
  }
  if (smaller == nullptr) return found;
  for (std::size_t i = 0; i < found.moving.size(); ++i) {
    found.moving[i] = std::max(found.moving[i], smaller->moving[i]);
    if (smaller->recomputing[i] <= found.recomputing[i]) continue;
    found.recomputing[i] = smaller->recomputing[i];
    if (i == 0)
      found.moved = smaller->moved, found.below = smaller->below, found.to_disk = smaller->to_disk,
      found.step = smaller->step;
  }
  return found;
}

Bytes fewest_of(const Machine& machine) {
  return machine.whole_tensors ? Bytes{} : detail::fewest_frames * machine.granule;
}

Needs needs_of(const Trace& step, const Machine& machine) {
  const Trace trace = as_it_moves(step, machine);
  const Bytes beside = machine.whole_tensors ? Bytes{} : detail::Executor::chunks_beside_op * machine.granule;
  return {.peak = peak_bytes(step),
          .whole = std::max(peak_bytes(step), peak_bytes(trace)),
          .least = std::max(largest_op_bytes(trace) + beside, fewest_of(machine))};
}

}  // namespace vedette::cli
