// Occupied bytes per op around the step, and gaps that give and take.
#include "policy/vedette/layout.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "policy/canvas/marks.h"
#include "policy/canvas/room.h"

namespace vedette::planning {
namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

// Bytes in use per op, of a step that repeats.
class Ring {
 public:
  explicit Ring(const Costs& costs) : bytes_(costs.occupied) {}

  // Less the bytes that are away in the gaps. O(ops + gaps), however long they are.
  void leave_out(const Costs& costs, const std::vector<Stay>& gaps) {
    const std::uint32_t n = ops();
    std::vector<std::int64_t> change(std::size_t{n} + 1);
    std::int64_t always = 0;
    for (const Stay& gap : gaps) {
      if (gap.fetch <= gap.gone) continue;
      const std::int64_t room = costs.room[gap.tensor];
      const std::uint32_t length = gap.fetch - gap.gone, begin = gap.gone < n ? gap.gone : gap.gone % n;
      if (length >= n) always += room * (length / n);
      const std::uint32_t end = begin + (length < n ? length : length % n);
      change[begin] += room;
      change[std::min(end, n)] -= room;
      if (end > n) change[0] += room, change[end - n] -= room;
    }
    for (std::uint32_t op = 0; op < n; ++op) bytes_[op] -= (always += change[op]);
  }

  std::uint32_t ops() const { return static_cast<std::uint32_t>(bytes_.size()); }
  const std::vector<std::int64_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::int64_t> bytes_;
};

// Is op inside [begin, end), which may reach into the next step?
bool covers(std::uint32_t begin, std::uint32_t end, std::uint32_t op, std::uint32_t ops) {
  return (begin <= op && op < end) || (begin <= op + ops && op + ops < end);
}

// Ops of [begin, end), counted on past the step's end, as at most two runs of a step's ops.
template <class Visit>
void around(std::uint32_t ops, std::uint32_t begin, std::uint32_t end, Visit&& visit) {
  while (begin < end) {
    const std::uint32_t until = std::min(end, (begin / ops + 1) * ops);
    visit(begin, until);
    begin = until;
  }
}

void add_around(Room& room, std::uint32_t ops, std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
  around(ops, begin, end,
         [&](std::uint32_t from, std::uint32_t to) { room.add(from % ops, from % ops + (to - from), bytes); });
}

// The first op of [begin, end] from which on none before `end` is larger than the limit.
std::uint32_t free_from(const Room& room, std::uint32_t ops, std::uint32_t begin, std::uint32_t end,
                        std::int64_t limit) {
  std::uint32_t first = begin;
  around(ops, begin, end, [&](std::uint32_t from, std::uint32_t to) {
    const auto full = room.last_above(from % ops, from % ops + (to - from), limit);
    if (full) first = from - from % ops + static_cast<std::uint32_t>(*full) + 1;
  });
  return first;
}

// Numbers by op, the latest first.
class Lists {
 public:
  void resize(std::size_t ops, std::size_t numbers) {
    first_.assign(ops, none);
    all_.reserve(numbers);
  }
  void add(std::uint32_t op, std::uint32_t number) {
    all_.push_back({number, first_[op]});
    first_[op] = static_cast<std::uint32_t>(all_.size() - 1);
  }
  template <class Visit>
  void each(std::uint32_t op, const Visit& visit) const {
    for (std::uint32_t at = first_[op]; at != none; at = all_[at].next) visit(all_[at].number);
  }

 private:
  struct Entry {
    std::uint32_t number, next;
  };
  std::vector<std::uint32_t> first_;  // [op]: of all_; none: it has no number
  std::vector<Entry> all_;
};

// A set of which only the least is asked for.
template <class Value>
class Least {
 public:
  bool empty() const { return heap_.empty(); }
  const Value& least() const { return heap_.front(); }
  void insert(const Value& value) {
    heap_.push_back(value);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  Value take() {
    const Value value = heap_.front();
    while (!heap_.empty() && heap_.front() == value) {  // it may have been inserted twice
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
    }
    return value;
  }

 private:
  std::vector<Value> heap_;
};

// Makes the rest of a ring that holds too much fit, op by op. Tensors that could give room at the op at hand are kept
// as the walk goes on: a search among all gaps would make a step of n ops cost n x n.
class Repair {
 public:
  Repair(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting, std::vector<Stay>& gaps)
      : uses_(uses),
        costs_(costs),
        setting_(setting),
        gaps_(gaps),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        operands_(static_cast<std::uint32_t>(uses.op_of.size())),
        near_(0) {}

  bool run() {
    Ring ring(costs_);
    ring.leave_out(costs_, gaps_);
    if (ops_ == 0 || *std::max_element(ring.bytes().begin(), ring.bytes().end()) <= setting_.budget) return true;
    room_.emplace(ring.bytes());
    leaves_at_.resize(ops_, 2 * gaps_.size()), comes_at_.resize(ops_, 2 * gaps_.size());
    away_after_.resize(operands_);
    near_ = Marks(std::size_t{operands_} * 2);
    for (std::uint32_t g = 0; g < gaps_.size(); ++g) watch(g);
    for (std::uint32_t t = 0; t < uses_.tensors.size(); ++t) start(t);
    for (std::uint32_t op = 0; op < ops_; ++op) {
      begin(op);
      while (room_->at(op) > setting_.budget) {
        if (!leave_sooner(op) && !come_later(op) && !send_another(op)) return false;
      }
      end(op);
    }
    return true;
  }

 private:
  std::uint32_t unrolled(std::uint32_t begin, std::uint32_t op) const { return op < begin ? op + ops_ : op; }
  void give(std::uint32_t begin, std::uint32_t end, std::uint32_t tensor) {
    add_around(*room_, ops_, begin, end, -costs_.room[tensor]);
  }

  // The place of tensor t among the operands of all ops, at op `op`; operands_ where it is none of that op's.
  std::uint32_t operand(std::uint32_t t, std::uint32_t op) const {
    const auto all = uses_.operands[op];
    const auto found = std::lower_bound(all.begin(), all.end(), t);
    return found == all.end() || *found != t
               ? operands_
               : uses_.first_operand[op] + static_cast<std::uint32_t>(found - all.begin());
  }

  void watch(std::uint32_t g) {
    const Stay& gap = gaps_[g];
    const std::uint32_t leaves = gap.last_use + 1, last = operand(gap.tensor, gap.last_use % ops_);
    if (last < operands_) away_after_[last] = 1;
    leaves_at_.add(leaves % ops_, g);
    if (covers(leaves, gap.gone, 0, ops_)) leaves_at_.add(0, g);
    if (!gap.returns) return;
    comes_at_.add(gap.fetch % ops_, g);
    if (covers(gap.fetch, gap.next_use, 0, ops_)) comes_at_.add(0, g);
  }

  // Persistent tensors are near from the step before, unless a gap is open.
  void start(std::uint32_t t) {
    const TensorUses& tensor = uses_.tensors[t];
    if (!tensor.persistent || tensor.uses.empty() || away_after_[operand(t, tensor.uses.back().op)] != 0) return;
    near_.insert(operand(t, tensor.uses.front().op));
  }

  void begin(std::uint32_t op) {
    leaves_at_.each(op, [&](std::uint32_t g) { leaving_.insert(g); });
    comes_at_.each(op, [&](std::uint32_t g) {
      const Stay& gap = gaps_[g];
      if (covers(gap.fetch, gap.next_use, op, ops_))
        coming_.insert({-static_cast<std::int64_t>(gap.next_use) + (op < gap.fetch ? ops_ : 0), g});
    });
    for (std::uint32_t k = uses_.first_operand[op]; k < uses_.first_operand[op + 1]; ++k) near_.erase(k);
    std::erase_if(unused_, [&](std::uint32_t t) { return uses_.tensors[t].death < op; });
  }

  void end(std::uint32_t op) {
    for (std::uint32_t k = uses_.first_operand[op]; k < uses_.first_operand[op + 1]; ++k) {
      if (away_after_[k] != 0) continue;
      const std::uint32_t t = uses_.operands[op][k - uses_.first_operand[op]];
      if (uses_.next[k] != Uses::never) {
        near_.insert(uses_.next[k]);
      } else if (uses_.tensors[t].death > op) {
        unused_.push_back(t);
      }
    }
  }

  bool leave_sooner(std::uint32_t op) {
    while (!leaving_.empty()) {
      Stay& gap = gaps_[leaving_.take()];  // whatever it is, it gives nothing from here on
      if (gap.gone <= gap.last_use + 1 || !covers(gap.last_use + 1, gap.gone, op, ops_)) continue;
      const std::uint32_t gone = unrolled(gap.last_use + 1, op);
      give(gone, gap.gone, gap.tensor);
      gap.gone = gone;
      return true;
    }
    return false;
  }

  bool come_later(std::uint32_t op) {
    if (coming_.empty() || -coming_.least().first <= op) return false;
    const std::uint32_t g = coming_.take().second;
    Stay& gap = gaps_[g];
    const std::uint32_t fetch = unrolled(gap.fetch, op) + 1;
    give(gap.fetch, fetch, gap.tensor);
    gap.fetch = fetch;
    if (op + 1 < ops_) comes_at_.add(op + 1, g);
    return true;
  }

  // The gap of the tensor that has op inside and away from its ends; last_use == none where there is none.
  Stay gap_around(std::uint32_t t, std::uint32_t op) const {
    const TensorUses& tensor = uses_.tensors[t];
    const std::vector<Use>& all = tensor.uses;
    Stay gap{.tensor = t, .last_use = none};
    if (all.empty() || (!tensor.persistent && (op <= all.front().op || op > tensor.death))) return gap;
    const auto next =
        std::lower_bound(all.begin(), all.end(), op, [](const Use& use, std::uint32_t at) { return use.op < at; });
    if (next != all.end() && next->op == op) return gap;
    gap.last_use = next == all.begin() ? all.back().op : std::prev(next)->op;
    gap.returns = tensor.persistent || next != all.end();
    const std::uint32_t after = next != all.end() ? next->op : tensor.persistent ? all.front().op : tensor.death + 1;
    gap.next_use = after <= gap.last_use ? after + ops_ : after;
    return gap;
  }

  // Tensors that are near and needed furthest in the future: the next use, or the death, is last.
  std::uint32_t furthest(std::uint32_t op) {
    std::uint32_t best = none, until = op;
    if (const std::uint32_t key = near_.last(); key != Marks::none) {
      const std::uint32_t next = uses_.op_of[key % operands_];
      best = uses_.operands[next][key % operands_ - uses_.first_operand[next]];
      until = next + key / operands_ * ops_;
    }
    for (const std::uint32_t t : unused_) {
      if (uses_.tensors[t].death + 1 > until) best = t, until = uses_.tensors[t].death + 1;
    }
    return best;
  }

  bool send_another(std::uint32_t op) {
    const std::uint32_t t = furthest(op);
    if (t == none) return false;
    Stay gap = gap_around(t, op);
    VEDETTE_ASSERT(gap.last_use != none);
    if (gap.returns) {
      near_.erase(near_.last());
    } else {
      std::erase(unused_, t);
    }
    gap.gone = unrolled(gap.last_use, op);
    gap.fetch = gap.next_use;
    give(gap.gone, gap.fetch, t);
    gaps_.push_back(gap);
    away_after_[operand(t, gap.last_use)] = 1;
    if (gap.last_use + 1 > op && gap.last_use + 1 < ops_)
      leaves_at_.add(gap.last_use + 1, static_cast<std::uint32_t>(gaps_.size() - 1));
    return true;
  }

  const Uses& uses_;
  const Costs& costs_;
  const Setting& setting_;
  std::vector<Stay>& gaps_;
  std::uint32_t ops_, operands_;
  std::optional<Room> room_;
  // [op]: gaps whose evict, or whose fetch, may be under way from there on
  Lists leaves_at_, comes_at_;
  Least<std::uint32_t> leaving_;                          // of them, now; some are void
  Least<std::pair<std::int64_t, std::uint32_t>> coming_;  // the last due first
  std::vector<char> away_after_;                          // [operand]: a gap begins with that use
  // next uses, among all operands of two steps, of tensors that are near for certain
  Marks near_;
  std::vector<std::uint32_t> unused_;  // near, used no more, not dead yet
};

}  // namespace

std::optional<std::vector<Stay>> lay_out(const Trace& trace, const Uses& uses, const Costs& costs,
                                         const Setting& setting, std::vector<Stay> gaps) {
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  for (Stay& gap : gaps) {
    const std::uint32_t base = gap.last_use / ops * ops;
    gap.last_use -= base;
    gap.gone -= base;
    gap.fetch -= base;
    gap.next_use -= base;
  }
  // Persistent tensors that no op uses are at home in the slow tier.
  for (std::uint32_t t = 0; t < uses.tensors.size(); ++t) {
    if (!uses.tensors[t].persistent || !uses.tensors[t].uses.empty()) continue;
    gaps.push_back({.tensor = t, .last_use = 0, .gone = 0, .fetch = ops, .next_use = ops, .returns = false});
  }
  if (!Repair(trace, uses, costs, setting, gaps).run()) return std::nullopt;
  std::erase_if(gaps, [](const Stay& gap) { return gap.fetch <= gap.gone; });
  return gaps;
}

void fetch_early(const Trace& trace, const Costs& costs, const Setting& setting, std::int64_t lead_ns,
                 std::int64_t spare, std::vector<Stay>& gaps) {
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  Ring ring(costs);
  ring.leave_out(costs, gaps);
  Room room(ring.bytes());
  std::vector<std::int64_t> starts(std::size_t{ops} * 2 + 1);
  for (std::uint32_t op = 0; op < 2 * ops; ++op) starts[op + 1] = starts[op] + trace.ops[op % ops].time.value;
  std::vector<std::uint32_t> order;
  for (std::uint32_t g = 0; g < gaps.size(); ++g) {
    if (gaps[g].returns) order.push_back(g);
  }
  const auto due = [&](std::uint32_t g) { return gaps[g].next_use < ops ? gaps[g].next_use : gaps[g].next_use - ops; };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(due(a), gaps[a].fetch) < std::pair(due(b), gaps[b].fetch);
  });
  // Ops are counted from the step in which the fetch is due, and may be negative: a queue works in order, so no fetch
  // is issued before those that are due earlier.
  std::int64_t floor = -static_cast<std::int64_t>(ops);
  for (std::uint32_t g : order) {
    Stay& gap = gaps[g];
    const std::int64_t shift = gap.next_use / ops * ops;
    const std::int64_t bytes = costs.room[gap.tensor];
    // The last op that begins so early, and the moves that may be before it.
    const auto in_time =
        std::upper_bound(starts.begin(), starts.end(), starts[gap.next_use] - lead_ns) - starts.begin() - 1;
    const std::int64_t earliest = std::max({std::int64_t{gap.gone}, floor + shift, std::int64_t{in_time}});
    if (earliest < gap.fetch) {
      const std::uint32_t fetch =
          free_from(room, ops, static_cast<std::uint32_t>(earliest), gap.fetch, setting.budget - bytes - spare);
      add_around(room, ops, fetch, gap.fetch, bytes);
      gap.fetch = fetch;
    }
    floor = std::max(floor, static_cast<std::int64_t>(gap.fetch) - shift);
  }
}

Plan plan_of(const Trace& trace, const Setting& setting, const std::vector<Stay>& gaps) {
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  struct Ordered {
    std::uint32_t issue, lead;  // lead: ops until due, of which the soonest due goes first
    std::uint32_t gap;
    bool fetch;
  };
  std::vector<Ordered> moves;
  moves.reserve(2 * gaps.size());
  const auto gone = [](const Stay& gap) { return std::min(gap.gone, gap.fetch); };
  const auto tier = [&](const Stay& gap) { return gap.tier == 0 ? setting.slow : TierIndex{gap.tier}; };
  for (std::uint32_t g = 0; g < gaps.size(); ++g) {
    const Stay& gap = gaps[g];
    const bool persistent = trace.tensors[gap.tensor].persistent;
    // At home in the slow tier: away, or on its way back, when op 0 begins.
    const std::uint32_t left = gap.last_use + gap.later, back = gap.next_use - gap.sooner;
    const bool back_at_0 = back == ops && gap.fetch < ops;
    if (persistent && gap.gone <= ops && back >= ops && !back_at_0) plan.home[gap.tensor] = tier(gap);
    if (persistent && !gap.returns) continue;
    moves.push_back({.issue = left % ops, .lead = gone(gap) - left, .gap = g, .fetch = false});
    if (gap.returns) moves.push_back({.issue = gap.fetch % ops, .lead = back - gap.fetch, .gap = g, .fetch = true});
  }
  std::stable_sort(moves.begin(), moves.end(), [](const Ordered& a, const Ordered& b) {
    return std::pair(a.issue, a.lead) < std::pair(b.issue, b.lead);
  });
  plan.moves.reserve(moves.size());
  for (const Ordered& each : moves) {
    const Stay& gap = gaps[each.gap];
    const std::uint32_t due = each.fetch ? gap.next_use - gap.sooner : gone(gap);
    plan.moves.push_back({.issue = {each.issue},
                          .due = {due % ops},
                          .extent = {{gap.tensor}, {}},
                          .source = each.fetch ? tier(gap) : TierIndex{0},
                          .target = each.fetch ? TierIndex{0} : tier(gap),
                          .verb = each.fetch ? Verb::fetch : Verb::evict});
  }
  return plan;
}

}  // namespace vedette::planning
