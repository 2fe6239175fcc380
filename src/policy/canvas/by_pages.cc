// Tensors to runs of pages, and a plan's runs back to tensors. O((page accesses + runs) log) to split.
#include "policy/canvas/by_pages.h"

#include <algorithm>
#include <map>

namespace vedette {
namespace {

struct Runs {
  Trace trace;                  // of runs
  std::vector<Extent> extents;  // of each of its tensors, in those of the trace that was split
  std::vector<Span<std::uint32_t>> of_tensor;
};

class Splitter {
 public:
  explicit Splitter(const Trace& trace) : trace_(trace), accesses_(trace.tensors.size()) {
    for (const PageAccess& access : trace.pages) accesses_[access.tensor.value].push_back(&access);
  }

  Runs split() {
    runs_.trace = {.name = trace_.name,
                   .source = trace_.source,
                   .device = trace_.device,
                   .layers = trace_.layers,
                   .page_bytes = trace_.page_bytes};
    touched_.resize(trace_.ops.size());
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      const auto begin = static_cast<std::uint32_t>(runs_.extents.size());
      cut(t);
      runs_.of_tensor.push_back({begin, static_cast<std::uint32_t>(runs_.extents.size())});
    }
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) add_op(i);
    return std::move(runs_);
  }

 private:
  struct Use {
    std::uint32_t op = 0;
    bool written = false;
    bool operator==(const Use&) const = default;
  };

  void add_run(std::uint32_t t, std::uint64_t begin, std::uint64_t end) {
    const Tensor& tensor = trace_.tensors[t];
    const bool whole = begin == 0 && end == tensor.bytes.value;
    runs_.extents.push_back({.tensor = {t}});
    if (!whole) runs_.extents.back().part = Span<Bytes>{{begin}, {end}};
    runs_.trace.tensors.push_back(
        {.name = tensor.name, .bytes = {end - begin}, .kind = tensor.kind, .persistent = tensor.persistent});
  }

  // Between two neighbouring ends of accesses the same ops touch every page; where that equals the run before, it goes
  // on.
  void cut(std::uint32_t t) {
    const std::uint64_t bytes = trace_.tensors[t].bytes.value, page = trace_.page_bytes.value;
    std::map<std::uint64_t, std::vector<const PageAccess*>> begins, ends;
    std::vector<std::uint64_t> at = {0, bytes};
    for (const PageAccess* access : accesses_[t]) {
      const std::uint64_t begin = std::min(bytes, access->pages.begin * page),
                          end = std::min(bytes, access->pages.end * page);
      if (begin >= end) continue;
      begins[begin].push_back(access);
      ends[end].push_back(access);
      at.insert(at.end(), {begin, end});
    }
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> open;  // by op: accesses, writing ones
    std::vector<Use> before;
    std::uint64_t from = 0;
    for (std::size_t k = 0; k + 1 < at.size(); ++k) {
      for (const PageAccess* access : ends[at[k]]) {
        auto& [all, writing] = open[access->op.value];
        writing -= access->written ? 1 : 0;
        if (--all == 0) open.erase(access->op.value);
      }
      for (const PageAccess* access : begins[at[k]])
        ++open[access->op.value].first, open[access->op.value].second += access->written ? 1 : 0;
      std::vector<Use> uses;
      for (const auto& [op, count] : open) uses.push_back({op, count.second > 0});
      if (k > 0 && uses != before) finish(t, from, at[k], before), from = at[k];
      before = std::move(uses);
    }
    finish(t, from, bytes, before);
  }

  void finish(std::uint32_t t, std::uint64_t begin, std::uint64_t end, const std::vector<Use>& uses) {
    for (const Use& use : uses)
      touched_[use.op].push_back({static_cast<std::uint32_t>(runs_.extents.size()), use.written});
    add_run(t, begin, end);
  }

  void add_op(std::uint32_t i) {
    const Op& op = trace_.ops[i];
    Op made = op;
    std::sort(touched_[i].begin(), touched_[i].end());
    made.reads = operands(i, op.reads, false);
    made.writes = operands(i, op.writes, true);
    made.frees.clear();
    for (const TensorIndex t : op.frees) {
      for (std::uint32_t r = runs_.of_tensor[t.value].begin; r < runs_.of_tensor[t.value].end; ++r)
        made.frees.push_back({r});
    }
    runs_.trace.ops.push_back(std::move(made));
  }

  // Of a tensor whose pages were seen in this op, the runs that were; else all of it.
  std::vector<TensorIndex> operands(std::uint32_t i, const std::vector<TensorIndex>& tensors, bool written) const {
    std::vector<TensorIndex> found;
    for (const TensorIndex t : tensors) {
      const Span<std::uint32_t> range = runs_.of_tensor[t.value];
      const auto first = std::lower_bound(touched_[i].begin(), touched_[i].end(), std::pair{range.begin, false});
      const auto last = std::lower_bound(first, touched_[i].end(), std::pair{range.end, false});
      for (auto seen = first; seen != last; ++seen) {
        if (!written || seen->second) found.push_back({seen->first});
      }
      for (std::uint32_t r = range.begin; first == last && r < range.end; ++r) found.push_back({r});
    }
    return found;
  }

  const Trace& trace_;
  std::vector<std::vector<const PageAccess*>> accesses_;
  std::vector<std::vector<std::pair<std::uint32_t, bool>>> touched_;  // [op]: runs, and whether written
  Runs runs_;
};

// The home that all runs of a tensor share, and the moves that follow where the planner gave them several.
Plan joined(const Trace& trace, const Runs& runs, Plan plan) {
  const std::vector<TierIndex> homes = std::move(plan.home);
  const auto lives = lifetimes(runs.trace);
  const auto last_op = static_cast<std::uint32_t>(trace.ops.size() - 1);
  plan.home.assign(trace.tensors.size(), {0});
  std::vector<Move> fetched, left;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const Span<std::uint32_t> range = runs.of_tensor[t];
    const TierIndex home = *std::max_element(homes.begin() + range.begin, homes.begin() + range.end);
    plan.home[t] = home;
    for (std::uint32_t r = range.begin; r < range.end; ++r) {
      if (homes[r] == home || !lives[r]) continue;
      fetched.push_back({.issue = {0},
                         .due = lives[r]->begin,
                         .extent = runs.extents[r],
                         .source = home,
                         .target = {0},
                         .verb = Verb::fetch});
      left.push_back({.issue = {last_op},
                      .due = {0},
                      .extent = runs.extents[r],
                      .source = {0},
                      .target = home,
                      .verb = Verb::evict});
    }
  }
  for (Move& move : plan.moves) move.extent = runs.extents[move.extent.tensor.value];
  std::vector<InPlace> in_place;
  for (InPlace each : plan.in_place) {
    each.tensor = runs.extents[each.tensor.value].tensor;
    if (std::find(in_place.begin(), in_place.end(), each) == in_place.end()) in_place.push_back(each);
  }
  plan.in_place = std::move(in_place);
  plan.moves.insert(plan.moves.begin(), fetched.begin(), fetched.end());
  plan.moves.insert(plan.moves.end(), left.begin(), left.end());
  return plan;
}

// All that lives at once, each tensor whole: then nothing need move, and no tensor need be cut.
bool fits(const Trace& trace, const Machine& machine) {
  const std::uint64_t granule = std::max<std::uint64_t>(1, machine.granule.value);
  const auto lives = lifetimes(trace);
  std::vector<std::uint64_t> last(trace.tensors.size()), dies(trace.ops.size() + 1);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const TensorIndex t : trace.ops[i].frees) last[t.value] = i + 1;
  }
  std::uint64_t now = 0;
  std::vector<std::uint64_t> born(trace.ops.size() + 1);
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    const std::uint64_t bytes = (trace.tensors[t].bytes.value + granule - 1) / granule * granule;
    if (trace.tensors[t].persistent || !lives[t]) {
      now += bytes;
    } else {
      born[lives[t]->begin.value] += bytes;
      dies[std::max<std::uint64_t>(lives[t]->end.value, last[t])] += bytes;
    }
  }
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    now += born[i];
    now -= dies[i];
    if (now + trace.ops[i].workspace.value > machine.tiers[0].capacity.value) return false;
  }
  return true;
}

class ByPages final : public Policy {
 public:
  explicit ByPages(std::unique_ptr<Policy> planner) : planner_(std::move(planner)) {}
  std::string_view name() const noexcept override { return planner_->name(); }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    runs_ = {};
    if (trace.pages.empty() || trace.ops.size() < 2 || machine.tiers.empty() || fits(trace, machine))
      return planner_->prepare(trace, machine);
    runs_ = Splitter(trace).split();
    auto plan = planner_->prepare(runs_.trace, machine);
    if (!plan || plan->home.empty()) return plan;
    return joined(trace, runs_, *std::move(plan));
  }

  Reaction react(const Event& event, const View& view) override {
    if (runs_.extents.empty() || event.kind != Event::Kind::step_ended || event.measured == nullptr)
      return planner_->react(event, view);
    StepMeasured measured = *event.measured;
    measured.late.clear();  // their numbers are those of the joined plan
    Event told = event;
    told.measured = &measured;
    return planner_->react(told, {.trace = runs_.trace, .machine = view.machine, .room = view.room});
  }

 private:
  const std::unique_ptr<Policy> planner_;
  Runs runs_;
};

}  // namespace

std::unique_ptr<Policy> by_pages(std::unique_ptr<Policy> planner) {
  return std::make_unique<ByPages>(std::move(planner));
}

}  // namespace vedette
