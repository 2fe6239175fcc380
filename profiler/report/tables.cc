// The tables of layers and of tensors, and the share of short-lived ones.
#include "profiler/tables.h"

#include <algorithm>
#include <map>
#include <set>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

// The op that was running at a time, or next to run: what happens between two ops belongs to the later one.
std::size_t op_at(const Run& run, Nanoseconds time) {
  const auto found = std::lower_bound(run.ops.begin(), run.ops.end(), time,
                                      [](const OpRow& op, Nanoseconds t) { return op.ended < t; });
  return static_cast<std::size_t>(found - run.ops.begin());
}

void add_what_ran(std::map<std::int64_t, LayerRow>& rows, const Run& run, const Trace& trace) {
  Nanoseconds last = run.shown_step()->began;
  for (std::size_t i = 0; i < run.ops.size(); ++i) {
    rows[layer_of(trace.ops[i])].time += run.ops[i].ended - last;
    last = run.ops[i].ended;
  }
  for (const MoveRow& move : run.moves) {
    const std::size_t op = op_at(run, move.ended);
    if (op >= run.ops.size()) continue;
    LayerRow& row = rows[layer_of(trace.ops[op])];
    (move.verb == "fetch" ? row.moved_in : row.moved_out) += move.bytes;
  }
  for (const StallRow& stall : run.stalls) {
    if (stall.op >= trace.ops.size()) continue;
    LayerRow& row = rows[layer_of(trace.ops[stall.op])];
    row.stall += stall.ended - stall.began;
    row.time -= stall.ended - stall.began;
  }
  for (const FaultRow& fault : run.faults)
    if (fault.op < trace.ops.size()) ++rows[layer_of(trace.ops[fault.op])].faults;
}

struct Place {  // which tensors lie in a chunk
  std::map<std::uint64_t, std::vector<std::uint32_t>> tensors;
};

Place tensors_by_chunk(const Run& run) {
  Place place;
  const Profile& profile = *run.shown_profile();
  if (run.chunk.value == 0) return place;
  for (std::uint32_t t = 0; t < profile.places.size() && t < profile.trace.tensors.size(); ++t) {
    const std::uint64_t bytes = profile.trace.tensors[t].bytes.value;
    if (!profile.places[t] || bytes == 0) continue;
    const std::uint64_t first = *profile.places[t] / run.chunk.value,
                        last = (*profile.places[t] + bytes - 1) / run.chunk.value;
    for (std::uint64_t c = first; c <= last; ++c) place.tensors[c].push_back(t);
  }
  return place;
}

void count_moves(std::vector<TensorRow>& rows, const Run& run) {
  if (!run.follows_profile()) return;
  const Place place = tensors_by_chunk(run);
  for (const MoveRow& move : run.moves) {
    const auto found = place.tensors.find(move.chunk);
    if (found == place.tensors.end()) continue;
    const auto op = static_cast<std::uint32_t>(op_at(run, move.started));
    for (const std::uint32_t t : found->second) {
      TensorRow& row = rows[t];
      const bool lives_then = row.persistent || (row.life && row.life->begin <= op && op < row.life->end);
      if (lives_then) ++(move.verb == "fetch" ? row.fetches : row.evictions);
    }
  }
}

void tell_tiers(std::vector<TensorRow>& rows, const Run& run) {
  if (!run.plan) return;
  const Place place = tensors_by_chunk(run);
  std::vector<std::set<std::uint32_t>> homes(rows.size());
  for (const PlanUnit& unit : run.plan->units) {
    if (!unit.home || !unit.chunks) continue;
    for (std::uint64_t c = unit.chunks->begin; c < unit.chunks->end; ++c) {
      const auto found = place.tensors.find(c);
      if (found == place.tensors.end()) continue;
      for (const std::uint32_t t : found->second) homes[t].insert(*unit.home);
    }
  }
  for (std::size_t t = 0; t < rows.size(); ++t) {
    if (homes[t].size() > 1) rows[t].tier = "mixed";
    if (homes[t].size() == 1 && *homes[t].begin() < run.machine.tiers.size())
      rows[t].tier = run.machine.tiers[*homes[t].begin()].name;
  }
}

std::string layer_text(const Trace& trace, OpIndex op) {
  const auto& layer = trace.ops[op.value].layer;
  return layer && layer->value < trace.layers.size() ? trace.layers[layer->value].name : std::string();
}

bool within_one_layer(const Trace& trace, Span<OpIndex> life) {
  if (life.begin >= life.end) return false;
  const auto& layer = trace.ops[life.begin.value].layer;
  if (life.end.value - life.begin.value == 1) return true;
  for (std::uint32_t i = life.begin.value; i < life.end.value; ++i)
    if (!layer || trace.ops[i].layer != layer) return false;
  return true;
}

// began[i]: when op i begins if nothing waits; one more for the end.
std::vector<Nanoseconds> clock_of(const Trace& trace) {
  std::vector<Nanoseconds> began(1);
  for (const Op& op : trace.ops) began.push_back(began.back() + op.time);
  return began;
}

Nanoseconds longest_gap(const std::vector<OpIndex>& uses, const std::vector<Nanoseconds>& began, bool persistent) {
  Nanoseconds longest;
  for (std::size_t i = 1; i < uses.size(); ++i)
    longest = std::max(longest, began[uses[i].value] - began[uses[i - 1].value + 1]);
  if (persistent && !uses.empty())
    longest = std::max(longest, began.back() - began[uses.back().value + 1] + began[uses.front().value]);
  return longest;
}

// Out and back again over the links, or never when there is only one tier.
std::optional<Nanoseconds> round_trip(const Machine& machine, Bytes bytes) {
  const Link* out = machine.link({0}, {1});
  const Link* in = machine.link({1}, {0});
  if (out == nullptr || in == nullptr) return std::nullopt;
  return transfer_time(bytes, out->bytes_per_s) + out->latency + transfer_time(bytes, in->bytes_per_s) + in->latency;
}

Warmth warmth_of(const Trace& trace, std::uint32_t t, const std::vector<OpIndex>& uses, Span<OpIndex> life,
                 Nanoseconds gap, const Machine& machine) {
  if (uses.empty()) return Warmth::untouched;
  if (!trace.tensors[t].persistent && within_one_layer(trace, life)) return Warmth::short_lived;
  const auto trip = round_trip(machine, trace.tensors[t].bytes);
  return trip && gap >= *trip ? Warmth::cold : Warmth::hot;
}

std::string site_text(const Site& site) {
  return site.layer.empty() || site.op.empty() ? site.layer + site.op : site.layer + ", " + site.op;
}

}  // namespace

std::string_view name_of(Warmth warmth) noexcept {
  constexpr std::string_view names[] = {"untouched", "short-lived", "hot", "cold"};
  return names[static_cast<std::size_t>(warmth)];
}

std::vector<LayerRow> layers_of(const Run& run, const Heat& heat) {
  std::vector<LayerRow> sorted;
  const Profile* profile = run.shown_profile();
  if (profile == nullptr) return sorted;
  const Trace& trace = profile->trace;
  std::map<std::int64_t, LayerRow> rows;
  for (const Op& op : trace.ops) ++rows[layer_of(op)].ops;
  for (const HeatRange& range : heat.ranges) {
    const std::uint64_t page = heat.page_bytes.value, size = trace.tensors[range.tensor].bytes.value;
    const Bytes bytes{std::min(range.pages.end * page, std::max(size, range.pages.begin * page)) -
                      range.pages.begin * page};
    if (range.reads > 0) rows[range.layer].read += bytes;
    if (range.writes > 0) rows[range.layer].written += bytes;
  }
  if (run.shown_step() != nullptr && run.follows_profile()) add_what_ran(rows, run, trace);
  for (const std::int64_t column : heat.columns) {
    LayerRow& row = rows[column];
    row.layer = column;
    if (column >= 0 && static_cast<std::size_t>(column) < trace.layers.size()) {
      const Layer& layer = trace.layers[static_cast<std::size_t>(column)];
      row.name = layer.name;
      if (run.has_phases()) row.phase = name_of(layer.phase);
    }
    sorted.push_back(row);
  }
  return sorted;
}

std::vector<TensorRow> tensors_of(const Run& run) {
  std::vector<TensorRow> rows;
  const Profile* profile = run.shown_profile();
  if (profile == nullptr) return rows;
  const Trace& trace = profile->trace;
  const auto alive = lives(trace);
  const auto used = uses(trace);
  const auto began = clock_of(trace);
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const Tensor& tensor = trace.tensors[t];
    TensorRow row{.tensor = t,
                  .name = tensor.name,
                  .role = std::string(name_of(tensor.kind)),
                  .shape = tensor.shape,
                  .site = site_text(tensor.site),
                  .stack = t < profile->stacks.size() ? profile->stacks[t] : std::vector<std::string>(),
                  .bytes = tensor.bytes,
                  .persistent = tensor.persistent};
    if (alive[t].begin < alive[t].end) row.life = {alive[t].begin.value, alive[t].end.value};
    if (!used[t].empty()) {
      row.first_layer = layer_text(trace, used[t].front());
      row.last_layer = layer_text(trace, used[t].back());
    }
    row.longest_gap = longest_gap(used[t], began, tensor.persistent);
    row.warmth = warmth_of(trace, t, used[t], alive[t], row.longest_gap, run.machine);
    rows.push_back(std::move(row));
  }
  for (const Op& op : trace.ops) {
    for (const TensorIndex t : op.reads) ++rows[t.value].reads;
    for (const TensorIndex t : op.writes) ++rows[t.value].writes;
  }
  tell_tiers(rows, run);
  if (run.shown_step() != nullptr) count_moves(rows, run);
  return rows;
}

ShortLived short_lived_of(const Trace& trace) {
  ShortLived share;
  const auto alive = lives(trace);
  std::vector<std::int64_t> change(trace.ops.size() + 1);
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const Bytes bytes = trace.tensors[t].bytes;
    ++share.all_tensors;
    share.all_bytes += bytes;
    if (trace.tensors[t].persistent || !within_one_layer(trace, alive[t])) continue;
    ++share.tensors;
    share.bytes += bytes;
    change[alive[t].begin.value] += static_cast<std::int64_t>(bytes.value);
    change[alive[t].end.value] -= static_cast<std::int64_t>(bytes.value);
  }
  std::int64_t now = 0;
  for (const std::int64_t delta : change)
    share.peak = std::max(share.peak, Bytes{static_cast<std::uint64_t>(now += delta)});
  for (const Op& op : trace.ops) share.scratch_peak = std::max(share.scratch_peak, op.workspace);
  return share;
}

}  // namespace vedette::report
