// Residencies as buffers of pack: see planned_offsets.h.
#include "moves/planned_offsets.h"

#include <algorithm>
#include <string>

#include "base/arithmetic.h"
#include "base/readable.h"
#include "pack/offsets.h"

namespace vedette::moves {
namespace {

// An interval from one step into the next lives through the whole step and is away in between.
pack::Problem problem_of(const std::vector<Residency>& residencies, const StepShape& step) {
  pack::Problem problem;
  for (const Residency& each : residencies) {
    const pack::Time begin = each.ops.begin.value, end = each.ops.end.value;
    const bool inside = begin < end;
    problem.buffers.push_back({.life = {inside ? begin : 0, inside ? end : step.ops},
                               .bytes = {round_up(each.bytes.value, step.alignment.value)},
                               .alignment = step.alignment.value});
    if (begin > end)
      problem.away.push_back(
          {.buffer = static_cast<std::uint32_t>(problem.buffers.size() - 1), .when = {.begin = end, .end = begin}});
  }
  return problem;
}

}  // namespace

std::vector<Bytes> resident_bytes(const std::vector<Residency>& residencies, const StepShape& step) {
  std::vector<std::int64_t> change(step.ops + 1);
  const auto live = [&](std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
    change[begin] += bytes;
    change[end] -= bytes;
  };
  for (const Residency& each : residencies) {
    const auto bytes = static_cast<std::int64_t>(round_up(each.bytes.value, step.alignment.value));
    const std::uint32_t begin = each.ops.begin.value, end = each.ops.end.value;
    if (begin < end) {
      live(begin, end, bytes);
    } else {
      live(begin, step.ops, bytes);
      live(0, end, bytes);
    }
  }
  std::vector<Bytes> resident;
  std::int64_t now = 0;
  for (std::uint32_t op = 0; op < step.ops; ++op) resident.push_back({static_cast<std::uint64_t>(now += change[op])});
  return resident;
}

Result<Placement> place_step(const std::vector<Residency>& residencies, const StepShape& step) {
  for (const Residency& each : residencies) {
    if (each.ops.begin.value >= step.ops || each.ops.end.value > step.ops)
      return Error{.cause = Cause::malformed_input,
                   .message = "storage " + std::to_string(each.storage.value) + " is resident in op " +
                              std::to_string(each.ops.end.value) + " of a step of " + std::to_string(step.ops) +
                              "; plan it for the step that it belongs to"};
  }
  const std::vector<Bytes> resident = resident_bytes(residencies, step);
  const auto fullest = std::max_element(resident.begin(), resident.end());
  if (fullest != resident.end() && *fullest > step.budget)
    return Error{.cause = Cause::infeasible,
                 .message = "op " + std::to_string(fullest - resident.begin()) + " needs " + readable(*fullest) +
                            " of " + readable(step.budget) + "; evict more before it, or give a larger budget"};
  pack::Layout layout = pack::plan_offsets(problem_of(residencies, step), step.budget);
  if (layout.peak > step.budget)
    return Error{.cause = Cause::infeasible,
                 .message = "no places were found in " + readable(step.budget) + " (" + readable(layout.peak) +
                            " are needed in one piece); evict more, or give a larger budget"};
  return Placement{.offset = std::move(layout.offset),
                   .peak = layout.peak,
                   .most_live = fullest == resident.end() ? Bytes{} : *fullest};
}

}  // namespace vedette::moves
