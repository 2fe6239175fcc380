// Which tensors can be recomputed, from what, and the trace that results.
#include "policy/vedette/recompute.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/mixed.h"
#include "model/producers.h"
#include "policy/vedette/sweep.h"

namespace vedette::planning {
namespace {

constexpr std::uint32_t no_op = std::numeric_limits<std::uint32_t>::max();
// producers of dead operands, one behind the other; longer chains cost more than they save
constexpr int most_dead = 6;

}  // namespace

RecomputeRule uniform(double ns_per_byte, std::uint32_t depth) {
  RecomputeRule rule{.depth = depth};
  rule.ns_per_byte.fill(ns_per_byte);
  return rule;
}

bool recomputes(const RecomputeRule& rule) {
  return *std::max_element(rule.ns_per_byte.begin(), rule.ns_per_byte.end()) > 0;
}

Recomputer::Recomputer(const Trace& trace, const Machine& machine)
    : trace_(trace), machine_(machine), uses_(uses_of(trace)) {
  writers_.resize(trace.tensors.size());
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    for (TensorIndex t : trace.ops[op].writes) writers_[t.value].push_back(op);
  }
  if (!machine.can_recompute) return;
  producers_ = vedette::producers(trace);
  for (const Op& op : producers_) replayable_.push_back(replayable(op));
  const std::vector<std::int64_t> occupied =
      occupied_without_moves(trace, uses_, std::max<std::uint64_t>(1, machine.granule.value));
  std::vector<std::uint32_t> full(trace.ops.size() + 1);  // ops before this one that do not fit
  for (std::size_t op = 0; op < trace.ops.size(); ++op)
    full[op + 1] = full[op] + (occupied[op] > static_cast<std::int64_t>(machine.tiers[0].capacity.value) ? 1 : 0);
  std::vector<std::int64_t> starts(trace.ops.size() + 1);
  for (std::size_t op = 0; op < trace.ops.size(); ++op) starts[op + 1] = starts[op] + trace.ops[op].time.value;
  const std::int64_t segment_ns = starts.back() / static_cast<std::int64_t>(RecomputeRule::segments) + 1;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const std::vector<Use>& all = uses_.tensors[t].uses;
    if (trace.tensors[t].persistent) continue;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      const std::uint32_t last = all[i].op, next = all[i + 1].op;
      if (next < last + 2 || full[next] == full[last + 1]) continue;
      const auto& reads = trace.ops[next].reads;
      if (!std::binary_search(reads.begin(), reads.end(), TensorIndex{t})) continue;
      const double ns = cost(t, next, 0);
      if (ns >= 0)
        gaps_.push_back({.tensor = t,
                         .last = last,
                         .next = next,
                         .cost = ns,
                         .ns = starts[next] - starts[last + 1],
                         .segment = static_cast<std::size_t>(starts[last] / segment_ns)});
    }
  }
  std::stable_sort(gaps_.begin(), gaps_.end(), [](const Gap& a, const Gap& b) { return a.last < b.last; });
  std::map<std::pair<std::uint64_t, double>, std::uint32_t> kinds;
  for (Gap& gap : gaps_)
    gap.kind = kinds.try_emplace({trace.tensors[gap.tensor].bytes.value, gap.cost}, kinds.size()).first->second;
  kinds_ = static_cast<std::uint32_t>(kinds.size());
}

void Recomputer::find_shares(Setting setting, std::uint32_t percent) {
  if (priced_.contains(percent)) return;
  std::vector<GapToMakeAgain> gaps;
  for (const Gap& gap : gaps_)
    gaps.push_back({.tensor = gap.tensor, .last = gap.last, .next = gap.next, .ns = gap.cost});
  setting.budget = setting.budget / 100 * percent;
  const auto near = priced_.lower_bound(percent);
  const StretchPrices start = near != priced_.end() ? near->second.prices
                              : priced_.empty()     ? StretchPrices{}
                                                    : std::prev(near)->second.prices;
  priced_[percent] = price(trace_, uses_, setting, gaps, start);
}

std::uint32_t Recomputer::writer(std::uint32_t tensor, std::uint32_t before) const {
  const auto& all = writers_[tensor];
  const auto next = std::lower_bound(all.begin(), all.end(), before);
  return next == all.begin() ? no_op : *std::prev(next);
}

// Operands that live on are taken to be there; dead ones are made first.
double Recomputer::cost(std::uint32_t tensor, std::uint32_t at, int depth) const {
  const std::uint32_t producer = writer(tensor, at);
  if (producer == no_op || !replayable_[producer] || depth > most_dead) return -1;
  double ns = static_cast<double>(producers_[producer].time.value);
  for (TensorIndex u : producers_[producer].reads) {
    if (writer(u.value, at) != writer(u.value, producer)) return -1;
    const TensorUses& uses = uses_.tensors[u.value];
    if (uses.persistent || uses.death >= at) continue;
    const double more = cost(u.value, at, depth + 1);
    if (more < 0) return -1;
    ns += more;
  }
  return ns;
}

// One walk through the step: which tensors are dropped, and when each is recomputed. Its trace is made on demand;
// without it only the ops before which something is made are looked at.
class RecomputeWalk {
 public:
  RecomputeWalk(const Recomputer& recomputer, const RecomputeRule& rule,
                const std::set<std::pair<std::uint32_t, std::uint32_t>>& kept, bool with_trace)
      : r_(recomputer),
        rule_(rule),
        kept_(kept),
        with_trace_(with_trace),
        life_(r_.trace_.tensors.size()),
        away_(r_.trace_.tensors.size(), no_op),
        makes_(r_.trace_.ops.size()) {}

  Recomputed walk() {
    prepare();
    for (std::uint32_t op = 0; op < r_.trace_.ops.size(); ++op) {
      if (with_trace_ || makes_[op] != 0) visit(op);
      for (; dropped_ < drops_.size() && r_.gaps_[drops_[dropped_]].last == op; ++dropped_)
        drop(r_.gaps_[drops_[dropped_]].tensor, op);
    }
    return std::move(made_);
  }
  // (tensor, last use) of tensors that would have to be thrown away no more for the rule, or the room, to hold.
  const std::set<std::pair<std::uint32_t, std::uint32_t>>& excess() const { return excess_; }
  std::int64_t ns() const { return ns_; }  // of producers
  std::uint64_t workspaces() const { return workspaces_; }

 private:
  void prepare() {
    if (rule_.shares_at != 0) {
      drop_shares();
    } else {
      for (std::uint32_t g = 0; g < r_.gaps_.size(); ++g) {
        const double bytes = static_cast<double>(r_.trace_.tensors[r_.gaps_[g].tensor].bytes.value);
        if (r_.gaps_[g].cost <= rule_.ns_per_byte[r_.gaps_[g].segment] * bytes) choose(g);
      }
    }
    const auto tensors = static_cast<std::uint32_t>(r_.trace_.tensors.size());
    if (with_trace_) made_.trace.tensors.reserve(tensors + drops_.size());
    made_.origin.reserve(tensors + drops_.size());
    for (std::uint32_t t = 0; t < tensors; ++t) life_[t] = begin_life(t);
    if (with_trace_) made_.trace.ops.reserve(r_.trace_.ops.size());
  }

  // Equal layers have equal shares: of each kind of gap so many are taken that the sums keep up along the step.
  void drop_shares() {
    const std::vector<double>& shares = r_.priced_.at(rule_.shares_at).shares;
    std::vector<double> due(r_.kinds_);
    for (std::uint32_t g = 0; g < r_.gaps_.size(); ++g) {
      double& sum = due[r_.gaps_[g].kind];
      sum += std::clamp(shares[g] * rule_.ns_per_byte[r_.gaps_[g].segment], 0.0, 1.0);
      if (sum < 0.5) continue;
      sum -= 1;
      choose(g);
    }
  }

  void choose(std::uint32_t g) {
    const Recomputer::Gap& gap = r_.gaps_[g];
    if (gap.ns < rule_.least_gap_ns || (!kept_.empty() && kept_.contains({gap.tensor, gap.last}))) return;
    drops_.push_back(g);
    makes_[gap.next] = 1;
  }

  void drop(std::uint32_t t, std::uint32_t op) {
    away_[t] = op;
    made_.drops.push_back(
        {.issue = {op}, .due = {op + 1}, .extent = {.tensor = {t}}, .source = {0}, .target = {0}, .verb = Verb::drop});
  }

  std::uint32_t begin_life(std::uint32_t t) {
    const Tensor& tensor = r_.trace_.tensors[t];
    if (with_trace_)
      made_.trace.tensors.push_back({.bytes = tensor.bytes, .kind = tensor.kind, .persistent = tensor.persistent});
    made_.origin.push_back(t);
    return static_cast<std::uint32_t>(made_.origin.size() - 1);
  }

  std::uint64_t size(std::uint32_t t) const {
    return rounded(r_.trace_.tensors[t].bytes.value, r_.machine_.granule.value);
  }

  void visit(std::uint32_t op) {
    const Op& traced = r_.trace_.ops[op];
    Op made{.phase = traced.phase, .time = traced.time, .workspace = traced.workspace};
    temporary_.clear();
    temporary_bytes_ = scratch_ = 0;
    recomputed_here_.clear();
    for (TensorIndex t : traced.reads) {
      if (away_[t.value] != no_op) make(t.value, op, 0, made);
    }
    const auto name_lives = [&](const std::vector<TensorIndex>& tensors, std::vector<TensorIndex>& lives) {
      lives.reserve(lives.size() + tensors.size());
      for (TensorIndex t : tensors) lives.push_back({life_[t.value]});
    };
    name_lives(traced.reads, made.reads), name_lives(traced.writes, made.writes), name_lives(traced.frees, made.frees);
    // Nothing here is less than the judge will count.
    if (!recomputed_here_.empty()) {
      made.workspace = {workspace_of(op)};
      workspaces_ = mixed(workspaces_, made.workspace.value);
    }
    for (std::vector<TensorIndex>* list : {&made.reads, &made.writes, &made.frees}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    std::erase_if(made.reads, [&](TensorIndex t) { return born_here(t.value); });
    if (!recomputed_here_.empty()) keep_within_room(op, made);
    ns_ += (made.time - traced.time).value;
    if (with_trace_) made_.trace.ops.push_back(std::move(made));
  }

  // Recomputation ends before the op's births, so these may leave their room to it.
  std::uint64_t workspace_of(std::uint32_t op) const {
    const Op& traced = r_.trace_.ops[op];
    if (rule_.leaves_room) return std::max(traced.workspace.value, scratch_) + temporary_bytes_;
    std::uint64_t born = 0;
    for (TensorIndex t : traced.writes) {
      const TensorUses& uses = r_.uses_.tensors[t.value];
      if (!uses.persistent && uses.uses.front().op == op) born += size(t.value);
    }
    const std::uint64_t before = scratch_ + temporary_bytes_;
    return std::max(traced.workspace.value, before - std::min(before, born));
  }

  bool born_here(std::uint32_t life) const {
    return std::any_of(recomputed_here_.begin(), recomputed_here_.end(),
                       [&](const auto& each) { return life_[each.first] == life; });
  }

  // Makes t, which was thrown away, again before the op, and first the sources of its producer.
  void make(std::uint32_t t, std::uint32_t op, std::uint32_t depth, Op& made) {
    if (depth > rule_.depth) excess_.insert({t, away_[t]});
    const std::uint32_t producer = r_.writer(t, op);
    read_operands(producer, op, depth, made);
    if (away_[t] == no_op) return;  // made as a means of its own means
    run(producer, made, [&](std::uint32_t other) { return away_[other] != no_op && r_.writer(other, op) == producer; });
    for (TensorIndex other : r_.producers_[producer].writes) {
      if (away_[other.value] == no_op || r_.writer(other.value, op) != producer) continue;
      recomputed_here_.emplace_back(other.value, away_[other.value]);
      depth_here_.resize(recomputed_here_.size());
      depth_here_.back() = depth;
      away_[other.value] = no_op;
      life_[other.value] = begin_life(other.value);
      made.writes.push_back({life_[other.value]});
      made_.recomputations.push_back({.before = {op}, .producer = {producer}, .tensor = other});
    }
  }

  void read_operands(std::uint32_t producer, std::uint32_t op, std::uint32_t depth, Op& made) {
    for (TensorIndex u : r_.producers_[producer].reads) {
      const TensorUses& uses = r_.uses_.tensors[u.value];
      if (!uses.persistent && uses.death < op) {
        make_temporary(u.value, op, depth, made);
      } else if (away_[u.value] != no_op) {
        make(u.value, op, depth + 1, made);
      } else {
        made.reads.push_back({life_[u.value]});
      }
    }
  }

  // Dead already: made as a means, and dead again when the op begins.
  void make_temporary(std::uint32_t u, std::uint32_t op, std::uint32_t depth, Op& made) {
    if (!temporary_.insert(u).second) return;
    const std::uint32_t producer = r_.writer(u, op);
    read_operands(producer, op, depth, made);
    run(producer, made, [&](std::uint32_t other) { return other == u; });
    temporary_bytes_ += size(u);
    made_.recomputations.push_back({.before = {op}, .producer = {producer}, .tensor = {u}});
  }

  // `stays`: of a result, whether it is counted where it goes.
  template <class Stays>
  void run(std::uint32_t producer, Op& made, const Stays& stays) {
    made.time += r_.producers_[producer].time;
    std::uint64_t bytes = r_.producers_[producer].workspace.value;
    for (TensorIndex t : r_.producers_[producer].writes)
      bytes += stays(t.value) && !rule_.leaves_room ? 0 : size(t.value);
    scratch_ = std::max(scratch_, bytes);
  }

  // An op that became too large keeps some: first the means, then all.
  void keep_within_room(std::uint32_t, const Op& made) {
    std::uint64_t bytes = made.workspace.value;
    for (TensorIndex t : made.reads) bytes += size(made_.origin[t.value]);
    for (TensorIndex t : made.writes) {
      if (!std::binary_search(made.reads.begin(), made.reads.end(), t)) bytes += size(made_.origin[t.value]);
    }
    if (bytes <= r_.machine_.tiers[0].capacity.value / 8 * 7) return;
    const bool means =
        std::any_of(depth_here_.begin(), depth_here_.end(), [](std::uint32_t depth) { return depth > 0; });
    for (std::size_t i = 0; i < recomputed_here_.size(); ++i) {
      if (!means || depth_here_[i] > 0) excess_.insert(recomputed_here_[i]);
    }
  }

  const Recomputer& r_;
  const RecomputeRule& rule_;
  const std::set<std::pair<std::uint32_t, std::uint32_t>>& kept_;
  const bool with_trace_;
  std::int64_t ns_ = 0;
  std::uint64_t workspaces_ = 0;
  std::vector<std::uint32_t> life_;  // [tensor]: its life now, in the new trace
  // [tensor]: the op after which it was thrown away; no_op: it was not
  std::vector<std::uint32_t> away_;
  std::vector<std::uint32_t> drops_;  // of the gaps, in order
  std::size_t dropped_ = 0;           // of them, so far
  std::vector<char> makes_;           // [op]: a tensor that was dropped is read by it next
  std::set<std::uint32_t> temporary_;
  std::uint64_t temporary_bytes_ = 0, scratch_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> recomputed_here_;
  std::vector<std::uint32_t> depth_here_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> excess_;
  Recomputed made_;
};

Plan plan_of_origin(const Trace& trace, const Recomputed& recomputed, const Plan& lives) {
  Plan whole;
  whole.home.assign(trace.tensors.size(), {0});
  for (std::size_t life = 0; life < recomputed.origin.size(); ++life) {
    if (trace.tensors[recomputed.origin[life]].persistent) whole.home[recomputed.origin[life]] = lives.home[life];
  }
  whole.moves = recomputed.drops;
  for (Move move : lives.moves) {
    move.extent.tensor = {recomputed.origin[move.extent.tensor.value]};
    whole.moves.push_back(move);
  }
  std::stable_sort(whole.moves.begin(), whole.moves.end(),
                   [](const Move& a, const Move& b) { return a.issue < b.issue; });
  whole.recomputations = recomputed.recomputations;
  return whole;
}

Decided Recomputer::decide(const RecomputeRule& rule) const {
  constexpr int most_walks = 12;
  Decided decided{.rule = rule};
  for (int walks = 1;; ++walks) {
    if (walks == most_walks) decided.rule.ns_per_byte.fill(-1);  // never settles: nothing is recomputed
    RecomputeWalk walk(*this, decided.rule, decided.kept, false);
    Recomputed made = walk.walk();
    if (walk.excess().empty() || walks == most_walks) {
      decided.recomputations = std::move(made.recomputations);
      decided.drops = std::move(made.drops);
      decided.ns = walk.ns();
      decided.workspaces = walk.workspaces();
      return decided;
    }
    decided.kept.insert(walk.excess().begin(), walk.excess().end());
  }
}

Recomputed Recomputer::apply(const Decided& decided) const {
  return RecomputeWalk(*this, decided.rule, decided.kept, true).walk();
}

}  // namespace vedette::planning
