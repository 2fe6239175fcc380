// Tensors as units, and the step's moments: see tensor_units.h.
#include "pack/tensor_units.h"

#include <algorithm>

#include "base/assert.h"

namespace vedette {
namespace {

// Before event e there are e events, and the begins and ends of ops that came before it.
std::vector<Span<std::uint32_t>> moments_of_ops(const StepLog& log) {
  std::vector<Span<std::uint32_t>> ops;
  for (std::uint32_t i = 0; i < log.ops.size(); ++i) {
    const Span<std::uint32_t> events = log.ops[i].events;
    ops.push_back({events.begin + 2 * i + 1, events.end + 2 * i + 2});
  }
  return ops;
}

std::uint32_t moment_of_event(const StepLog& log, std::uint32_t event) {
  const auto begun =
      static_cast<std::uint32_t>(std::partition_point(log.ops.begin(), log.ops.end(),
                                                      [&](const LoggedOp& op) { return op.events.begin < event; }) -
                                 log.ops.begin());
  const auto ended = static_cast<std::uint32_t>(
      std::partition_point(log.ops.begin(), log.ops.end(), [&](const LoggedOp& op) { return op.events.end < event; }) -
      log.ops.begin());
  return event + begun + ended;
}

std::uint32_t last_event(const StepLog& log) {
  std::uint32_t last = log.ops.empty() ? 0 : log.ops.back().events.end;
  for (const LoggedTensor& t : log.tensors) last = std::max({last, t.birth, t.death == ~0u ? 0 : t.death});
  return last;
}

}  // namespace

TensorUnits tensor_units(const StepLog& log, Bytes chunk) {
  TensorUnits made;
  std::vector<std::uint32_t> logged;
  made.units.trace = program_trace(log, &logged, WithinOneOp::are_tensors);
  made.units.frames_to_come.resize(log.ops.size());
  made.moments.ops = moments_of_ops(log);
  made.moments.length = last_event(log) + 2 * static_cast<std::uint32_t>(log.ops.size()) + 1;
  const std::uint32_t length = made.moments.length;
  for (std::size_t u = 0; u < logged.size(); ++u) {
    const LoggedTensor& t = log.tensors[logged[u]];
    VEDETTE_ASSERT(t.offset % chunk.value == 0);
    made.units.where.push_back({.first = static_cast<std::uint32_t>(t.offset / chunk.value),
                                .count = static_cast<std::uint32_t>((t.bytes.value + chunk.value - 1) / chunk.value)});
    made.units.wishes.push_back(t.wish);
    const bool lasts = made.units.trace.tensors[u].persistent;
    made.moments.lives.push_back(
        {lasts ? 0 : moment_of_event(log, t.birth), lasts || t.death == ~0u ? length : moment_of_event(log, t.death)});
  }
  return made;
}

}  // namespace vedette
