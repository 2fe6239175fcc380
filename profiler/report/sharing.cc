// False sharing: tensors of different habits in one page, or in one chunk, so that moving one drags the other
// (Sentinel, HPCA'21, section 2.2). Two layouts of the same tensors are measured alike. One is that of the plan, as
// recorded. The other is that of an ordinary allocator: first fit at the lowest address, 64 bytes aligned, in the order
// of births.
//
// Living tensors never overlap, so only granules that hold a tensor's edge can be shared; the rest are counted, not
// looked at.
#include <algorithm>
#include <map>
#include <set>

#include "base/arithmetic.h"
#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

struct Habit {  // when a tensor lives, and in which runs of ops of one layer it is touched
  Span<OpIndex> life;
  std::vector<std::uint32_t> runs;  // ascending
  auto operator<=>(const Habit&) const = default;
};

struct Habits {
  std::vector<Habit> of;                  // by tensor
  std::vector<Span<std::uint32_t>> runs;  // ops of each run
};

Habits habits_of(const Trace& trace) {
  Habits habits;
  std::vector<std::uint32_t> run_of(trace.ops.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const bool goes_on = i > 0 && trace.ops[i].layer && trace.ops[i].layer == trace.ops[i - 1].layer;
    if (!goes_on) habits.runs.push_back({i, i});
    habits.runs.back().end = i + 1;
    run_of[i] = static_cast<std::uint32_t>(habits.runs.size() - 1);
  }
  const auto alive = lives(trace);
  const auto used = uses(trace);
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    Habit habit{.life = alive[t]};
    for (const OpIndex op : used[t])
      if (habit.runs.empty() || habit.runs.back() != run_of[op.value]) habit.runs.push_back(run_of[op.value]);
    habits.of.push_back(std::move(habit));
  }
  return habits;
}

bool touched_in(const Habit& habit, std::uint32_t run) {
  return std::binary_search(habit.runs.begin(), habit.runs.end(), run);
}

using Layout = std::vector<std::optional<std::uint64_t>>;  // byte offset of each tensor

// First fit among holes that coalesce.
class FirstFit {
 public:
  std::uint64_t take(std::uint64_t bytes) {
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < bytes) continue;
      const auto [at, size] = *hole;
      holes_.erase(hole);
      if (size > bytes) holes_[at + bytes] = size - bytes;
      return at;
    }
    return std::exchange(end_, end_ + bytes);
  }
  void give(std::uint64_t at, std::uint64_t bytes) {
    auto [hole, fresh] = holes_.emplace(at, bytes);
    const auto next = std::next(hole);
    if (next != holes_.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      holes_.erase(next);
    }
    if (hole == holes_.begin()) return;
    const auto before = std::prev(hole);
    if (before->first + before->second != hole->first) return;
    before->second += hole->second;
    holes_.erase(hole);
  }

 private:
  std::map<std::uint64_t, std::uint64_t> holes_;
  std::uint64_t end_ = 0;
};

Layout ordinary_layout(const Trace& trace, const Habits& habits, const Layout& known) {
  constexpr std::uint64_t alignment = 64;
  Layout layout(trace.tensors.size());
  const auto rounded = [&](std::uint32_t t) { return round_up(trace.tensors[t].bytes.value, alignment); };
  FirstFit heap;
  std::vector<std::vector<std::uint32_t>> born(trace.ops.size() + 1), dead(trace.ops.size() + 1);
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    if (!known[t] || trace.tensors[t].bytes.value == 0) continue;
    if (trace.tensors[t].persistent) {
      layout[t] = heap.take(rounded(t));
    } else {
      born[habits.of[t].life.begin.value].push_back(t);
      dead[habits.of[t].life.end.value].push_back(t);
    }
  }
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const std::uint32_t t : dead[i])
      if (layout[t]) heap.give(*layout[t], rounded(t));
    for (const std::uint32_t t : born[i]) layout[t] = heap.take(rounded(t));
  }
  return layout;
}

bool live_together(const Habit& a, const Habit& b) { return a.life.begin < b.life.end && b.life.begin < a.life.end; }

bool shared_falsely(const std::vector<std::uint32_t>& tensors, const Habits& habits) {
  std::set<Habit> different;
  for (const std::uint32_t t : tensors) different.insert(habits.of[t]);
  for (auto a = different.begin(); a != different.end(); ++a)
    for (auto b = std::next(a); b != different.end(); ++b)
      if (a->runs != b->runs && live_together(*a, *b)) return true;
  return false;
}

struct Granules {
  const Trace& trace;
  const Layout& layout;
  std::uint64_t bytes;                                        // of a granule
  std::map<std::uint64_t, std::vector<std::uint32_t>> edges;  // tensors that lie in a granule and do not fill it

  std::uint64_t overlap(std::uint32_t t, std::uint64_t granule) const {
    const std::uint64_t begin = *layout[t], end = begin + trace.tensors[t].bytes.value;
    return std::min(end, (granule + 1) * bytes) - std::max(begin, granule * bytes);
  }
};

std::uint64_t fill(Granules& granules) {
  std::vector<Span<std::uint64_t>> used;
  for (std::uint32_t t = 0; t < granules.layout.size(); ++t) {
    const std::uint64_t bytes = granules.trace.tensors[t].bytes.value;
    if (!granules.layout[t] || bytes == 0) continue;
    const std::uint64_t first = *granules.layout[t] / granules.bytes,
                        last = (*granules.layout[t] + bytes - 1) / granules.bytes;
    used.push_back({first, last + 1});
    for (const std::uint64_t g : first == last ? std::vector{first} : std::vector{first, last})
      if (granules.overlap(t, g) < granules.bytes) granules.edges[g].push_back(t);
  }
  std::sort(used.begin(), used.end());
  std::uint64_t count = 0, reached = 0;
  for (const auto& span : used) {
    if (span.end > reached) count += span.end - std::max(span.begin, reached);
    reached = std::max(reached, span.end);
  }
  return count;
}

Bytes dragged_in(const Granules& granules, std::uint64_t granule, const std::vector<std::uint32_t>& tensors,
                 const Habits& habits) {
  std::set<std::uint32_t> runs;
  for (const std::uint32_t t : tensors) runs.insert(habits.of[t].runs.begin(), habits.of[t].runs.end());
  Bytes dragged;
  for (const std::uint32_t run : runs) {
    const auto ops = habits.runs[run];
    for (const std::uint32_t t : tensors) {
      const Span<OpIndex> life = habits.of[t].life;
      if (life.begin.value < ops.end && ops.begin < life.end.value && !touched_in(habits.of[t], run))
        dragged += {granules.overlap(t, granule)};
    }
  }
  return dragged;
}

SharingOf measure(const Trace& trace, const Layout& layout, const Habits& habits, Bytes granule) {
  Granules granules{.trace = trace, .layout = layout, .bytes = granule.value};
  SharingOf found{.used = fill(granules)};
  for (const auto& [g, tensors] : granules.edges) {
    if (tensors.size() < 2 || !shared_falsely(tensors, habits)) continue;
    ++found.shared;
    found.dragged += dragged_in(granules, g, tensors, habits);
  }
  return found;
}

}  // namespace

Sharing sharing_of(const Run& run) {
  Sharing sharing;
  const Profile* profile = run.shown_profile();
  if (profile == nullptr || run.chunk.value == 0 || profile->trace.page_bytes.value == 0) return sharing;
  const Trace& trace = profile->trace;
  if (profile->places.size() != trace.tensors.size()) return sharing;
  sharing.known = true;
  const Habits habits = habits_of(trace);
  const Layout before = ordinary_layout(trace, habits, profile->places);
  sharing.pages_before = measure(trace, before, habits, trace.page_bytes);
  sharing.pages_after = measure(trace, profile->places, habits, trace.page_bytes);
  sharing.chunks_before = measure(trace, before, habits, run.chunk);
  sharing.chunks_after = measure(trace, profile->places, habits, run.chunk);
  return sharing;
}

}  // namespace vedette::report
