// Intervals, the reserved space, and runs of uses.
#include "policy/sentinel/runs.h"

#include <algorithm>

namespace vedette::sentinel {

Demand::Demand(const Problem& problem, const Cut& cut)
    : trace_(problem.trace),
      facts_(problem.facts),
      layered_(problem.facts.layered(cut.ops_per_group)),
      n_(problem.trace.ops.size()) {
  const std::vector<std::uint64_t>& layers = layered_.begins;
  for (std::size_t k = 0; k + 1 < layers.size(); k += cut.layers_per_interval) begins_.push_back(layers[k]);
  begins_.push_back(n_);
  interval_of_.resize(n_);
  for (std::size_t k = 0; k + 1 < begins_.size(); ++k) {
    std::fill(interval_of_.begin() + static_cast<std::ptrdiff_t>(begins_[k]),
              interval_of_.begin() + static_cast<std::ptrdiff_t>(begins_[k + 1]), k);
  }
  // RS is the peak of the short-lived and of workspace; at each op the rest is left to the others.
  const std::uint64_t capacity = problem.machine.tiers[0].capacity.value;
  const bool exact = cut.on_demand || intervals() == 1;  // no prefetch uses the room that the short-lived leave
  reserved_ = exact ? 0 : *std::max_element(layered_.brief.begin(), layered_.brief.end());
  limit_.resize(n_);
  for (std::size_t i = 0; i < n_; ++i) {
    const std::uint64_t kept = exact ? layered_.brief[i] : reserved_;
    limit_[i] = kept <= capacity ? static_cast<std::int64_t>(capacity - kept) : -1;
  }
}

std::vector<Run> Demand::runs() const {
  std::vector<Run> all, found;
  for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
    if (layered_.brief_lived[t] || facts_.uses_of(t).empty()) continue;
    linear_runs({t}, found);
    if (trace_.tensors[t].persistent) {
      wrap_runs(found);
    } else {
      end_runs({t}, found);
    }
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

// Consecutive uses belong to one run while no interval between them does without the tensor.
void Demand::linear_runs(TensorIndex t, std::vector<Run>& found) const {
  found.clear();
  const auto uses = facts_.uses_of(t.value);
  for (std::size_t k = 0; k < uses.size(); ++k) {
    const std::uint32_t use = uses[k];
    const bool joined = !found.empty() && interval_of_[use] <= interval_of_[found.back().last] + 1;
    if (!joined) found.push_back({.tensor = t, .first = use, .fetched = true, .leaves = true});
    found.back().last = use;
    found.back().writes |= facts_.changes(t.value, k);
    ++found.back().uses;
  }
}

// Of a persistent tensor: the last run may go on as the first one of the next step.
void Demand::wrap_runs(std::vector<Run>& found) const {
  const bool wraps = interval_of_[found.front().first] == 0 && interval_of_[found.back().last] + 1 == intervals();
  if (wraps && found.size() == 1) {
    found[0].for_ever = true;
    found[0].fetched = found[0].leaves = false;
  } else if (wraps) {
    found.back().last = found.front().last + n_;
    found.back().uses += found.front().uses;
    found.back().writes |= found.front().writes;
    found.erase(found.begin());
  }
  for (std::size_t r = 0; r < found.size(); ++r) {
    const Run& next = found[(r + 1) % found.size()];
    found[r].latest_due = window(next.first + (r + 1 == found.size() ? n_ : 0));
  }
}

// Of the others: the first run begins with the birth, the last may end with the death.
void Demand::end_runs(TensorIndex t, std::vector<Run>& found) const {
  const std::uint64_t death = facts_.lives[t.value].end.value - 1;
  found.front().fetched = false;
  if (interval_of_[death] == interval_of_[found.back().last]) {
    found.back().last = death;
    found.back().leaves = false;
  }
  for (std::size_t r = 0; r < found.size(); ++r)
    found[r].latest_due = r + 1 < found.size() ? window(found[r + 1].first) : n_;
}

std::uint64_t Demand::window(std::uint64_t op) const {
  const std::uint64_t begin = begin_of(interval_of(op) + intervals() - 1);  // one step ahead, to stay positive
  return begin >= n_ ? begin - n_ : 0;
}

std::vector<std::int64_t> Demand::excess(const std::vector<Run>& runs) const {
  std::vector<std::int64_t> change(2 * n_ + 1), excess(n_);
  for (const Run& run : runs) {
    const auto bytes = static_cast<std::int64_t>(facts_.sizes[run.tensor.value]);
    change[run.first] += bytes;
    change[run.for_ever ? run.first + n_ : run.last + 1] -= bytes;
  }
  for (std::size_t i = 0; i < n_; ++i) excess[i] = -limit_[i];
  std::int64_t now = 0;
  for (std::size_t i = 0; i < n_; ++i) excess[i] += now += change[i];
  for (std::size_t i = 0; i < n_; ++i) excess[i] += now += change[i + n_];
  return excess;
}

}  // namespace vedette::sentinel
