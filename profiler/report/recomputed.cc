// Tensors that the shown step recomputed, the time of it, and the bytes that did not travel.
#include <algorithm>

#include "profiler/report/report.h"

namespace vedette::report {

namespace {

// Alive at the op that needed it, by the profile's accesses.
bool lives_at(const Span<OpIndex>& life, std::uint32_t op) { return life.begin.value <= op && op < life.end.value; }

// Why the plan drops something in these chunks.
std::string reason_of(const Run& run, Span<std::uint64_t> chunks) {
  if (!run.plan) return {};
  for (const PlannedMove& move : run.plan->moves) {
    if (move.verb != "drop" || move.reason.empty() || move.unit >= run.plan->units.size()) continue;
    const auto& unit = run.plan->units[move.unit].chunks;
    if (unit && unit->begin < chunks.end && chunks.begin < unit->end) return move.reason;
  }
  return {};
}

std::vector<RecomputedTensor> which_tensors(const Run& run) {
  std::vector<RecomputedTensor> found;
  const Profile* const profile = run.shown_profile();
  if (profile == nullptr || run.chunk.value == 0) return found;
  const Trace& trace = profile->trace;
  const auto lives = lifetimes(trace);
  for (std::uint32_t t = 0; t < profile->places.size() && t < trace.tensors.size(); ++t) {
    const std::uint64_t bytes = trace.tensors[t].bytes.value;
    if (!profile->places[t] || bytes == 0 || !lives[t]) continue;
    const std::uint64_t begin = *profile->places[t], end = begin + bytes;
    RecomputedTensor row{.tensor = t, .name = trace.tensors[t].name};
    for (const RecomputedRow& group : run.recomputed) {
      const std::uint64_t from = std::max(begin, group.chunk * run.chunk.value),
                          to = std::min(end, (group.chunk + group.chunks) * run.chunk.value);
      if (from >= to || !lives_at(*lives[t], group.op)) continue;
      row.bytes += Bytes{to - from};
      ++row.times;
    }
    if (row.times == 0) continue;
    row.reason = reason_of(run, {begin / run.chunk.value, (end + run.chunk.value - 1) / run.chunk.value});
    found.push_back(std::move(row));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const RecomputedTensor& a, const RecomputedTensor& b) { return a.bytes > b.bytes; });
  return found;
}

}  // namespace

Recomputed recomputed_of(const Run& run) {
  Recomputed made;
  for (const RecomputedRow& group : run.recomputed) {
    ++made.groups;
    made.ops += group.ops;
    made.bytes += Bytes{group.chunks * run.chunk.value};
    made.time += group.time();
  }
  made.spared = Bytes{2 * made.bytes.value};
  const Link* const out = run.machine.tiers.size() < 2 ? nullptr : run.machine.link({0}, {1});
  const Link* const in = run.machine.tiers.size() < 2 ? nullptr : run.machine.link({1}, {0});
  if (out != nullptr && in != nullptr)
    made.spared_time = transfer_time(made.bytes, out->bytes_per_s) + transfer_time(made.bytes, in->bytes_per_s);
  made.tensors = which_tensors(run);
  return made;
}

}  // namespace vedette::report
