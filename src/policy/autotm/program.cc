// The integer program: binaries for "leaves beside op e" and "returns beside op f" of each gap, a time for each op that
// moves run beside.
//
//   minimise   sum of blocking moves + sum over ops of y_i
//   y_i >= t_i,   y_i >= moves beside op i
//   for each gap: sum of its outs = sum of its ins <= 1, and no return before it has left
//   for each op over the limit: load_i - sum of what is away during i <= capacity, or all of them are away
#include "policy/autotm/program.h"

#include <algorithm>
#include <map>
#include <set>

namespace vedette::autotm {

using namespace planning;

namespace {

std::int64_t move_time_of(const Ledger& ledger, const Candidate& candidate, bool out) {
  const Bytes bytes = ledger.bytes(ledger.gaps()[candidate.gap].tensor);
  return out ? move_time(ledger.machine(), {0}, candidate.tier, bytes)
             : move_time(ledger.machine(), candidate.tier, {0}, bytes);
}

// `count` of the positions, the nearest to the user first and then ever further apart: 0, 1, 2, 4, 8, ...
std::vector<std::uint32_t> thinned(const std::vector<std::uint32_t>& all, std::size_t count) {
  if (count == 0 || all.size() <= count) return all;
  std::vector<std::uint32_t> kept;
  for (std::size_t at = 0; at < all.size() && kept.size() + 1 < count; at = at == 0 ? 1 : at * 2)
    kept.push_back(all[at]);
  if (kept.back() != all.back()) kept.push_back(all.back());
  return kept;
}

}  // namespace

std::vector<Candidate> candidates(const Ledger& ledger, std::size_t most, std::size_t positions) {
  // [i]: time of the ops before i that exceed fast memory; whole numbers, so sums are exact
  std::vector<double> over(2 * ledger.ops() + 1);
  for (std::uint32_t i = 0; i + 1 < over.size(); ++i) {
    const std::uint32_t op = i % ledger.ops();
    over[i + 1] =
        over[i] +
        (ledger.load(op) > ledger.capacity() ? static_cast<double>(ledger.trace().ops[op].time.value + 1) : 0.0);
  }
  std::vector<std::pair<double, std::uint32_t>> order;
  for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
    const Gap& gap = ledger.gaps()[g];
    if (gap.dead || ledger.most(gap.after + 1, gap.before) <= ledger.capacity() || !ledger.tier_for(g, gap.after))
      continue;
    const double time = over[gap.before] - over[gap.after + 1];
    order.emplace_back(-time * static_cast<double>(ledger.size(gap.tensor)), g);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > most) order.resize(most);
  std::vector<Candidate> found;
  for (const auto& [value, g] : order) {
    const Gap& gap = ledger.gaps()[g];
    std::vector<std::uint32_t> out, in;
    for (std::uint32_t e = gap.after; e <= gap.after + window && e + 2 <= gap.before; ++e) out.push_back(e);
    for (std::uint32_t f = gap.before; f + window >= gap.before && f >= gap.after + 2; --f) in.push_back(f);
    found.push_back({.gap = g,
                     .tier = *ledger.tier_for(g, gap.after),
                     .out = thinned(out, positions),
                     .in = thinned(in, positions)});
  }
  return found;
}

Absence absence(const Ledger& ledger, const Candidate& candidate, const Chosen& chosen) {
  const Gap& gap = ledger.gaps()[candidate.gap];
  const std::uint32_t leave = chosen.out == gap.after ? gap.after : chosen.out - 1;
  return {.leave = leave, .gone = chosen.out + 1, .back = chosen.in, .tier = candidate.tier};
}

double objective(const Ledger& ledger, const std::vector<Candidate>& candidates, const std::vector<Chosen>& chosen) {
  std::vector<std::int64_t> beside(ledger.ops());
  double blocking = 0;
  for (const Chosen& each : chosen) {
    const Candidate& candidate = candidates[each.candidate];
    const Gap& gap = ledger.gaps()[candidate.gap];
    const auto add = [&](std::uint32_t op, bool blocks, bool out) {
      const std::int64_t time = move_time_of(ledger, candidate, out);
      if (blocks)
        blocking += static_cast<double>(time);
      else
        beside[op % ledger.ops()] += time;
    };
    add(each.out, each.out == gap.after, true);
    add(each.in, each.in == gap.before, false);
  }
  double sum = blocking;
  for (std::uint32_t i = 0; i < ledger.ops(); ++i)
    sum += static_cast<double>(std::max(ledger.trace().ops[i].time.value, beside[i]));
  return sum;
}

namespace {

// Columns: for each candidate its outs, then its ins; then one y for each op that moves may run beside.
class Program {
 public:
  Program(const Ledger& ledger, const std::vector<Candidate>& candidates) : ledger_(ledger), candidates_(candidates) {
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const Gap& gap = ledger.gaps()[candidates[c].gap];
      first_.push_back(static_cast<int>(program_.cost.size()));
      for (const std::uint32_t e : candidates[c].out) add_move(c, e, e == gap.after, true);
      for (const std::uint32_t f : candidates[c].in) add_move(c, f, f == gap.before, false);
    }
    program_.binaries = static_cast<int>(program_.cost.size());
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) fixed_ += millis(ledger.trace().ops[i].time.value);
    for (const auto& [op, moves] : beside_) add_op(op, moves);
    for (std::size_t c = 0; c < candidates.size(); ++c) add_gap(c);
    add_limits();
  }

  std::optional<Solution> solve(int most_nodes, double gap) {
    const auto solved = autotm::solve(program_, most_nodes, gap);
    if (!solved) return std::nullopt;
    Solution found = read(solved->x.data());
    found.proven = solved->proven;
    found.bound = std::min((solved->bound + fixed_) * 1e6, found.time);
    return found;
  }

 private:
  void add_move(std::size_t c, std::uint32_t op, bool blocks, bool out) {
    const double time = millis(move_time_of(ledger_, candidates_[c], out));
    if (!blocks) beside_[op % ledger_.ops()].emplace_back(static_cast<int>(program_.cost.size()), time);
    program_.cost.push_back(blocks ? time : 0);
    program_.columns.emplace_back();
  }

  int add_row(double low, double high) {
    program_.row_low.push_back(low);
    program_.row_high.push_back(high);
    return static_cast<int>(program_.row_low.size()) - 1;
  }

  // y_i is the time of moves beside op i beyond the op's.
  void add_op(std::uint32_t op, const std::vector<std::pair<int, double>>& moves) {
    const int row = add_row(-1e12, millis(ledger_.trace().ops[op].time.value));
    for (const auto& [column, time] : moves) program_.columns[static_cast<std::size_t>(column)].emplace_back(row, time);
    program_.columns.push_back({{row, -1.0}});
    program_.cost.push_back(1);
  }

  void add_gap(std::size_t c) {
    const Candidate& candidate = candidates_[c];
    const int balance = add_row(0, 0), once = add_row(-1e12, 1);
    const auto outs = static_cast<int>(candidate.out.size()), ins = static_cast<int>(candidate.in.size());
    for (int k = 0; k < outs; ++k) {
      column(first_[c] + k).emplace_back(balance, 1.0);
      column(first_[c] + k).emplace_back(once, 1.0);
    }
    for (int k = 0; k < ins; ++k) column(first_[c] + outs + k).emplace_back(balance, -1.0);
    for (int k = 0; k < outs; ++k) {  // beside op e it leaves, so it can return beside e + 2 first
      const std::uint32_t e = candidate.out[static_cast<std::size_t>(k)];
      if (std::all_of(candidate.in.begin(), candidate.in.end(), [&](std::uint32_t f) { return f >= e + 2; })) continue;
      const int row = add_row(-1e12, 1);
      column(first_[c] + k).emplace_back(row, 1.0);
      for (int l = 0; l < ins; ++l) {
        if (candidate.in[static_cast<std::size_t>(l)] < e + 2) column(first_[c] + outs + l).emplace_back(row, 1.0);
      }
    }
  }

  // Between two ops at which a move may begin or end all ops ask for the same of the same moves, so the fullest of them
  // stands for all. A program is as large as its gaps have places, however many ops there are.
  void add_limits() {
    std::set<std::uint32_t> cuts = {0, ledger_.ops()};
    const auto cut = [&](std::uint32_t at) { cuts.insert(at % ledger_.ops()); };
    for (const Candidate& each : candidates_) {
      cut(ledger_.gaps()[each.gap].after + 1);
      cut(ledger_.gaps()[each.gap].before);
      for (const std::uint32_t e : each.out) cut(e + 1);
      for (const std::uint32_t f : each.in) cut(f);
    }
    for (auto begin = cuts.begin(); std::next(begin) != cuts.end(); ++begin) {
      const std::int64_t load = ledger_.most(*begin, *std::next(begin));
      if (load > ledger_.capacity()) add_limit(*begin, load);
    }
  }

  void add_limit(std::uint32_t op, std::int64_t load) {
    const int row = add_row(0, 1e12);
    double most = 0;  // that these gaps can give
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      const Candidate& candidate = candidates_[c];
      const Gap& gap = ledger_.gaps()[candidate.gap];
      const std::uint32_t at = op > gap.after ? op : op + ledger_.ops();
      if (at >= gap.before) continue;
      const double size = megabytes(static_cast<std::int64_t>(ledger_.size(gap.tensor)));
      most += size;
      for (std::size_t k = 0; k < candidate.out.size(); ++k) {
        if (candidate.out[k] < at) column(first_[c] + static_cast<int>(k)).emplace_back(row, size);
      }
      for (std::size_t k = 0; k < candidate.in.size(); ++k) {
        if (candidate.in[k] <= at)
          column(first_[c] + static_cast<int>(candidate.out.size() + k)).emplace_back(row, -size);
      }
    }
    program_.row_low[static_cast<std::size_t>(row)] = std::min(megabytes(load - ledger_.capacity()), most);
  }

  Solution read(const double* solution) const {
    Solution found;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      const Candidate& candidate = candidates_[c];
      const double* x = solution + first_[c];
      for (std::size_t k = 0; k < candidate.out.size(); ++k) {
        if (x[k] < 0.5) continue;
        for (std::size_t l = 0; l < candidate.in.size(); ++l) {
          if (x[candidate.out.size() + l] > 0.5)
            found.chosen.push_back({.candidate = c, .out = candidate.out[k], .in = candidate.in[l]});
        }
      }
    }
    found.time = objective(ledger_, candidates_, found.chosen);
    return found;
  }

  std::vector<std::pair<int, double>>& column(int index) { return program_.columns[static_cast<std::size_t>(index)]; }

  const Ledger& ledger_;
  const std::vector<Candidate>& candidates_;
  std::vector<int> first_;  // [candidate]: its first column
  BinaryProgram program_;
  double fixed_ = 0;  // ms of ops
  std::map<std::uint32_t, std::vector<std::pair<int, double>>> beside_;
};

}  // namespace

std::optional<Solution> solve(const Ledger& ledger, const std::vector<Candidate>& candidates, int most_nodes,
                              double gap) {
  return Program(ledger, candidates).solve(most_nodes, gap);
}

}  // namespace vedette::autotm
