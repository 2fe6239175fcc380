// Which pages each layer touched: exact ranges, and an overview small enough to look at.
//
// A sweep over the boundaries of the recorded ranges, so that the cost grows with ranges, not with pages.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

struct Touch {  // pages of a tensor that one tick touched
  std::uint32_t tensor = 0;
  std::int64_t layer = -1;
  Span<std::uint64_t> pages;
  std::int64_t reads = 0, writes = 0;  // how often: ops, or samples that saw it
};

// A tick of ops is told with each op that touched pages; a tick of layers with its last op, behind which another layer
// begins. So a tick that ends between two ops of one layer was of ops. Where none does the two are hardly different.
Counted counted_in(const Profile& profile) {
  if (!profile.tracked) return Counted::operands;
  if (!profile.samples.empty()) return Counted::samples;
  const std::vector<Op>& ops = profile.trace.ops;
  const bool within_a_layer = std::any_of(profile.trace.pages.begin(), profile.trace.pages.end(), [&](const auto& a) {
    const std::size_t next = a.op.value + std::size_t{1};
    return next < ops.size() && ops[a.op.value].layer && ops[a.op.value].layer == ops[next].layer;
  });
  return within_a_layer ? Counted::ops : Counted::layers;
}

// Of a tick of layers how many ops have a tensor as an operand: those of the same layer since the tick before. So a
// layer that reads a weight in ten ops counts ten, though its pages were seen once.
class OpsOfTicks {
 public:
  explicit OpsOfTicks(const Trace& trace) : trace_(trace), used_(uses(trace)) {
    std::vector<char> ends(trace.ops.size());
    for (const PageAccess& a : trace.pages) ends[a.op.value] = 1;
    begin_.resize(trace.ops.size());
    for (std::uint32_t i = 1; i < trace.ops.size(); ++i)
      begin_[i] = ends[i - 1] == 0 && trace.ops[i - 1].layer == trace.ops[i].layer ? begin_[i - 1] : i;
  }
  // At least 1 where the pages were touched so.
  std::pair<std::int64_t, std::int64_t> of(const PageAccess& a) const {
    const std::vector<OpIndex>& used = used_[a.tensor.value];
    std::int64_t reads = 0, writes = 0;
    for (auto at = std::lower_bound(used.begin(), used.end(), OpIndex{begin_[a.op.value]});
         at != used.end() && *at <= a.op; ++at) {
      const Op& op = trace_.ops[at->value];
      reads += std::binary_search(op.reads.begin(), op.reads.end(), a.tensor);
      writes += std::binary_search(op.writes.begin(), op.writes.end(), a.tensor);
    }
    return {a.read ? std::max<std::int64_t>(1, reads) : 0, a.written ? std::max<std::int64_t>(1, writes) : 0};
  }

 private:
  const Trace& trace_;
  std::vector<std::vector<OpIndex>> used_;
  std::vector<std::uint32_t> begin_;  // [op]: the first of its tick
};

std::vector<Touch> touches(const Profile& profile, Counted counted) {
  const Trace& trace = profile.trace;
  std::vector<Touch> found;
  if (counted != Counted::operands) {
    const OpsOfTicks ops(trace);
    for (std::size_t i = 0; i < trace.pages.size(); ++i) {
      const PageAccess& a = trace.pages[i];
      const std::int64_t times = counted == Counted::samples ? profile.samples[i] : 1;
      auto [reads, writes] = std::pair{a.read ? times : 0, a.written ? times : 0};
      if (counted == Counted::layers) std::tie(reads, writes) = ops.of(a);
      found.push_back({.tensor = a.tensor.value,
                       .layer = layer_of(trace.ops[a.op.value]),
                       .pages = a.pages,
                       .reads = reads,
                       .writes = writes});
    }
    return found;
  }
  const std::uint64_t page = std::max<std::uint64_t>(trace.page_bytes.value, 1);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    for (const TensorIndex t : operands(op)) {
      found.push_back({.tensor = t.value,
                       .layer = layer_of(op),
                       .pages = {0, (trace.tensors[t.value].bytes.value + page - 1) / page},
                       .reads = std::binary_search(op.reads.begin(), op.reads.end(), t),
                       .writes = std::binary_search(op.writes.begin(), op.writes.end(), t)});
    }
  }
  return found;
}

struct Change {
  std::int64_t ticks = 0, reads = 0, writes = 0;
};

// Of one tensor and layer.
void sweep(std::uint32_t tensor, std::int64_t layer, const std::map<std::uint64_t, Change>& changes,
           std::vector<HeatRange>& out) {
  Change level;
  std::uint64_t begin = 0;
  for (const auto& [page, change] : changes) {
    // one range ends where its equal begins
    if (change.ticks == 0 && change.reads == 0 && change.writes == 0) continue;
    if (level.ticks > 0 && begin < page) {
      const auto limited = [](std::int64_t times) {
        return static_cast<std::uint32_t>(std::min<std::int64_t>(times, ~0u));
      };
      out.push_back({.layer = layer,
                     .tensor = tensor,
                     .pages = {begin, page},
                     .reads = limited(level.reads),
                     .writes = limited(level.writes)});
    }
    level = {level.ticks + change.ticks, level.reads + change.reads, level.writes + change.writes};
    begin = page;
  }
}

std::vector<HeatRange> ranges_of(std::vector<Touch> all) {
  std::sort(all.begin(), all.end(), [](const Touch& a, const Touch& b) {
    return std::tie(a.tensor, a.layer, a.pages) < std::tie(b.tensor, b.layer, b.pages);
  });
  std::vector<HeatRange> ranges;
  std::map<std::uint64_t, Change> changes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Touch& t = all[i];
    Change& begin = changes[t.pages.begin];
    begin = {begin.ticks + 1, begin.reads + t.reads, begin.writes + t.writes};
    Change& end = changes[t.pages.end];
    end = {end.ticks - 1, end.reads - t.reads, end.writes - t.writes};
    if (i + 1 < all.size() && all[i + 1].tensor == t.tensor && all[i + 1].layer == t.layer) continue;
    sweep(t.tensor, t.layer, changes, ranges);
    changes.clear();
  }
  return ranges;
}

std::uint64_t pages_of(const Trace& trace, std::uint32_t tensor) {
  const std::uint64_t page = std::max<std::uint64_t>(trace.page_bytes.value, 1);
  return std::max<std::uint64_t>(1, (trace.tensors[tensor].bytes.value + page - 1) / page);
}

void order_tensors(Heat& heat, const Trace& trace) {
  std::vector<std::uint32_t> first(trace.tensors.size(), ~0u);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    for (const TensorIndex t : operands(trace.ops[i])) first[t.value] = std::min(first[t.value], i);
  for (const PageAccess& a : trace.pages) first[a.tensor.value] = std::min(first[a.tensor.value], a.op.value);
  for (std::uint32_t t = 0; t < first.size(); ++t)
    if (first[t] != ~0u) heat.order.push_back(t);
  std::stable_sort(heat.order.begin(), heat.order.end(), [&](auto a, auto b) { return first[a] < first[b]; });
}

void order_layers(Heat& heat, const Trace& trace) {
  std::set<std::int64_t> seen;
  for (const Op& op : trace.ops)
    if (seen.insert(layer_of(op)).second) heat.columns.push_back(layer_of(op));
}

constexpr std::size_t most_cells = 2'000'000;  // of the overview: 8,000 layers by 250 rows; a browser draws no more

// Rows of equal numbers of pages over all tensors laid end to end; what a row averages over.
void fill_overview(Heat& heat, const Trace& trace, std::size_t most_rows) {
  std::vector<std::uint64_t> base(trace.tensors.size());
  std::uint64_t total = 0;
  for (const std::uint32_t t : heat.order) base[t] = std::exchange(total, total + pages_of(trace, t));
  const std::uint64_t rows =
      std::min({total, std::uint64_t{most_rows}, std::max<std::uint64_t>(1, most_cells / heat.columns.size())});
  const auto edge = [&](std::uint64_t row) { return total * row / rows; };
  std::size_t at = 0;
  for (std::uint64_t r = 0; r < rows; ++r) {
    const auto holds = [&](std::uint64_t page) {
      while (at + 1 < heat.order.size() && base[heat.order[at + 1]] <= page) ++at;
      return heat.order[at];
    };
    const std::uint32_t first = holds(edge(r)), last = holds(edge(r + 1) - 1);
    heat.rows.push_back({.first_tensor = first, .last_tensor = last, .pages = edge(r + 1) - edge(r)});
  }
  heat.reads.assign(rows, std::vector<float>(heat.columns.size()));
  heat.writes = heat.reads;
  std::map<std::int64_t, std::size_t> column;
  for (std::size_t c = 0; c < heat.columns.size(); ++c) column[heat.columns[c]] = c;
  for (const HeatRange& range : heat.ranges) {
    const std::uint64_t begin = base[range.tensor] + range.pages.begin, end = base[range.tensor] + range.pages.end;
    std::uint64_t r = begin * rows / total;
    while (r > 0 && edge(r) > begin) --r;
    while (r + 1 < rows && edge(r + 1) <= begin) ++r;
    for (; r < rows && edge(r) < end; ++r) {
      const auto overlap = static_cast<float>(std::min(end, edge(r + 1)) - std::max(begin, edge(r)));
      const float share = overlap / static_cast<float>(heat.rows[r].pages);
      heat.reads[r][column[range.layer]] += share * static_cast<float>(range.reads);
      heat.writes[r][column[range.layer]] += share * static_cast<float>(range.writes);
    }
  }
}

}  // namespace

std::string_view name_of(Counted counted) noexcept {
  constexpr std::string_view names[] = {"operands", "layers", "ops", "samples"};
  return names[static_cast<std::size_t>(counted)];
}

Heat heat_of(const Run& run, const ReportOptions& options) {
  Heat heat;
  const Profile* profile = run.shown_profile();
  if (profile == nullptr) return heat;
  heat.page_bytes = profile->trace.page_bytes;
  heat.counted = counted_in(*profile);
  heat.notes = profile->trace.notes;
  heat.ranges = ranges_of(touches(*profile, heat.counted));
  order_tensors(heat, profile->trace);
  order_layers(heat, profile->trace);
  if (!heat.order.empty()) fill_overview(heat, profile->trace, options.heat_rows);
  heat.places = places_of(run, heat);
  if (heat.places.size() > options.most_ranges) heat.places.clear();
  return heat;
}

// Where there are too many ranges to embed, those of the tensors with most of them are left out.
void limit_ranges(Heat& heat, std::size_t most) {
  if (heat.ranges.size() <= most) return;
  std::map<std::uint32_t, std::size_t> count;
  for (const HeatRange& r : heat.ranges) ++count[r.tensor];
  std::vector<std::pair<std::size_t, std::uint32_t>> by_count;
  for (const auto& [tensor, n] : count) by_count.emplace_back(n, tensor);
  std::sort(by_count.begin(), by_count.end());
  std::size_t kept = 0;
  std::map<std::uint32_t, bool> keep;
  for (const auto& [n, tensor] : by_count) keep[tensor] = (kept += n) <= most;
  heat.ranges_left_out = std::erase_if(heat.ranges, [&](const HeatRange& r) { return !keep[r.tensor]; });
}

}  // namespace vedette::report
