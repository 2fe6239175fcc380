// Columns are tensors, 1 for slow memory. Rows are stretches of ops in which the same tensors live, and ask that so
// much of them is in slow memory. Only rows that a solution has broken are in the program.
//
//   minimise   sum over tensors of their time in place
//   for each stretch: sum of the sizes that lie in slow memory >= what lives + workspace - capacity
#include "policy/autotm/one_tier.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/arithmetic.h"
#include "model/liveness.h"
#include "policy/autotm/solver.h"

namespace vedette::autotm {
namespace {

std::optional<TierIndex> usable_tier(const Machine& machine) {
  for (std::uint32_t k = 1; k < machine.tiers.size(); ++k)
    if (machine.tiers[k].addressable && machine.link({k}, {0}) != nullptr && machine.link({0}, {k}) != nullptr)
      return TierIndex{k};
  return std::nullopt;
}

struct Stretch {
  std::vector<std::uint32_t> live;  // tensors
  std::int64_t excess = 0;          // bytes that have to be in slow memory
};

class Choice {
 public:
  Choice(const Trace& trace, const Machine& machine, TierIndex tier) : trace_(trace), machine_(machine) {
    in_place_.resize(trace.tensors.size());
    for (const Op& op : trace.ops) {
      for (const TensorIndex t : op.reads)
        in_place_[t.value] += machine.time_in_place(op.name, tier, bytes(t.value), {}).value;
      for (const TensorIndex t : op.writes)
        in_place_[t.value] += machine.time_in_place(op.name, tier, {}, bytes(t.value)).value;
    }
    find_stretches();
  }

  std::optional<OneTier> best(int most_nodes, double gap);

 private:
  Bytes bytes(std::uint32_t t) const { return trace_.tensors[t].bytes; }
  std::int64_t size(std::uint32_t t) const {
    const std::uint64_t granule = machine_.whole_tensors ? 1 : std::max<std::uint64_t>(machine_.granule.value, 1);
    return static_cast<std::int64_t>(round_up(bytes(t).value, granule));
  }
  void find_stretches();
  std::int64_t missing(const Stretch& stretch, const std::vector<char>& far) const;
  std::optional<Solved> solve(const std::vector<std::size_t>& rows, int most_nodes, double gap) const;
  void add_cheapest(const Stretch& stretch, std::vector<char>& far) const;

  const Trace& trace_;
  const Machine& machine_;
  std::vector<std::int64_t> in_place_;  // [t]: ns of all its uses
  std::vector<Stretch> stretches_;      // that do not fit
};

void Choice::find_stretches() {
  const auto alive = lives(trace_);
  std::vector<std::uint32_t> cuts{0, static_cast<std::uint32_t>(trace_.ops.size())};
  for (const Span<OpIndex>& life : alive) cuts.insert(cuts.end(), {life.begin.value, life.end.value});
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    Stretch stretch;
    for (std::uint32_t t = 0; t < alive.size(); ++t)
      if (alive[t].begin.value <= cuts[k] && cuts[k] < alive[t].end.value) stretch.live.push_back(t);
    std::uint64_t workspace = 0;
    for (std::uint32_t i = cuts[k]; i < cuts[k + 1]; ++i)
      workspace = std::max(workspace, trace_.ops[i].workspace.value);
    stretch.excess = static_cast<std::int64_t>(workspace) - static_cast<std::int64_t>(machine_.tiers[0].capacity.value);
    for (const std::uint32_t t : stretch.live) stretch.excess += size(t);
    if (stretch.excess > 0) stretches_.push_back(std::move(stretch));
  }
}

std::int64_t Choice::missing(const Stretch& stretch, const std::vector<char>& far) const {
  std::int64_t missing = stretch.excess;
  for (const std::uint32_t t : stretch.live) missing -= far[t] != 0 ? size(t) : 0;
  return missing;
}

std::optional<Solved> Choice::solve(const std::vector<std::size_t>& rows, int most_nodes, double gap) const {
  BinaryProgram program;
  for (const std::int64_t ns : in_place_) program.cost.push_back(millis(ns));
  program.columns.resize(in_place_.size());
  program.binaries = static_cast<int>(in_place_.size());
  for (const std::size_t r : rows) {
    const auto row = static_cast<int>(program.row_low.size());
    program.row_low.push_back(megabytes(stretches_[r].excess));
    program.row_high.push_back(1e12);
    for (const std::uint32_t t : stretches_[r].live) program.columns[t].emplace_back(row, megabytes(size(t)));
  }
  return autotm::solve(program, most_nodes, gap);
}

// A solution is right within the solver's tolerance, and there may be none within its nodes.
void Choice::add_cheapest(const Stretch& stretch, std::vector<char>& far) const {
  std::vector<std::uint32_t> order = stretch.live;
  std::ranges::sort(order, {}, [&](std::uint32_t t) {
    return static_cast<double>(in_place_[t]) / static_cast<double>(std::max<std::int64_t>(size(t), 1));
  });
  std::int64_t left = missing(stretch, far);
  for (const std::uint32_t t : order) {
    if (left <= 0) return;
    if (far[t] == 0) left -= size(t);
    far[t] = 1;
  }
}

std::optional<OneTier> Choice::best(int most_nodes, double gap) {
  constexpr int most_rounds = 12;
  OneTier found{.far = std::vector<char>(in_place_.size())};
  std::vector<std::size_t> rows;
  for (int round = 0; round < most_rounds; ++round) {
    const std::size_t before = rows.size();
    std::vector<std::size_t> broken;  // the fullest of them join the program
    for (std::size_t r = 0; r < stretches_.size(); ++r)
      if (missing(stretches_[r], found.far) > 0) broken.push_back(r);
    std::ranges::stable_sort(broken, std::greater{}, [&](std::size_t r) { return missing(stretches_[r], found.far); });
    constexpr std::size_t most_rows = 8;
    for (std::size_t k = 0; k < std::min(broken.size(), most_rows); ++k)
      if (std::ranges::find(rows, broken[k]) == rows.end()) rows.push_back(broken[k]);
    if (rows.size() == before) break;
    const auto solved = solve(rows, most_nodes, gap);
    if (!solved) break;
    found.proven = solved->proven;
    for (std::size_t t = 0; t < found.far.size(); ++t) found.far[t] = solved->x[t] > 0.5 ? 1 : 0;
  }
  for (const Stretch& stretch : stretches_) {
    if (missing(stretch, found.far) <= 0) continue;
    found.proven = false;
    add_cheapest(stretch, found.far);
    if (missing(stretch, found.far) > 0) return std::nullopt;
  }
  for (std::size_t t = 0; t < found.far.size(); ++t) found.in_place.value += found.far[t] != 0 ? in_place_[t] : 0;
  return found;
}

}  // namespace

std::optional<OneTier> one_tier(const Trace& trace, const Machine& machine, int most_nodes, double gap) {
  const auto tier = usable_tier(machine);
  return tier ? Choice(trace, machine, *tier).best(most_nodes, gap) : std::nullopt;
}

Plan plan_of(const Trace& trace, const Machine& machine, const OneTier& chosen) {
  const TierIndex tier = usable_tier(machine).value();
  Plan plan{.home = std::vector<TierIndex>(trace.tensors.size())};
  for (std::size_t t = 0; t < chosen.far.size(); ++t)
    if (chosen.far[t] != 0) plan.home[t] = tier;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    for (const TensorIndex t : operands(trace.ops[i]))
      if (chosen.far[t.value] != 0) plan.in_place.push_back({.op = {i}, .tensor = t, .tier = tier});
  return plan;
}

}  // namespace vedette::autotm
