// Occupied bytes per op around the step, and gaps that give and take.
#include "policy/vedette_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/assert.h"

namespace vedette::planning {
namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

// Bytes in use per op, of a step that repeats.
class Ring {
 public:
  Ring(const Trace& trace, const Uses& uses, std::uint64_t granule) : bytes_(occupied_without_moves(trace, uses, granule)) {}

  // Less what is away in the gaps. O(ops + gaps), however long they are.
  void leave_out(const Trace& trace, std::uint64_t granule, const std::vector<Stay>& gaps) {
    const std::uint32_t n = ops();
    std::vector<std::int64_t> change(std::size_t{n} + 1);
    std::int64_t always = 0;
    for (const Stay& gap : gaps) {
      if (gap.fetch <= gap.gone) continue;
      const auto room = static_cast<std::int64_t>(rounded(trace.tensors[gap.tensor].bytes.value, granule));
      always += room * ((gap.fetch - gap.gone) / n);
      const std::uint32_t begin = gap.gone % n, end = begin + (gap.fetch - gap.gone) % n;
      change[begin] += room;
      change[std::min(end, n)] -= room;
      if (end > n) change[0] += room, change[end - n] -= room;
    }
    for (std::uint32_t op = 0; op < n; ++op) bytes_[op] -= (always += change[op]);
  }

  std::uint32_t ops() const { return static_cast<std::uint32_t>(bytes_.size()); }
  std::int64_t at(std::uint32_t op) const { return bytes_[op % ops()]; }
  void add(std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
    for (std::uint32_t op = begin; op < end; ++op) bytes_[op % ops()] += bytes;
  }

 private:
  std::vector<std::int64_t> bytes_;
};

std::int64_t room_of(const Trace& trace, const Setting& setting, std::uint32_t tensor) {
  return static_cast<std::int64_t>(rounded(trace.tensors[tensor].bytes.value, setting.granule));
}

// Is op inside [begin, end), which may reach into the next step?
bool covers(std::uint32_t begin, std::uint32_t end, std::uint32_t op, std::uint32_t ops) {
  return (begin <= op && op < end) || (begin <= op + ops && op + ops < end);
}

class Repair {
 public:
  Repair(const Trace& trace, const Uses& uses, const Setting& setting, std::vector<Stay>& gaps)
      : trace_(trace), uses_(uses), setting_(setting), gaps_(gaps), ring_(trace, uses, setting.granule), ops_(ring_.ops()) {
    ring_.leave_out(trace, setting.granule, gaps_);
  }

  bool run() {
    for (std::uint32_t op = 0; op < ops_; ++op) {
      while (ring_.at(op) > setting_.budget) {
        if (!leave_sooner(op) && !come_later(op) && !send_another(op)) return false;
      }
    }
    return true;
  }

 private:
  std::uint32_t unrolled(std::uint32_t begin, std::uint32_t op) const { return op < begin ? op + ops_ : op; }

  bool leave_sooner(std::uint32_t op) {
    for (Stay& gap : gaps_) {
      if (gap.gone <= gap.last_use + 1 || !covers(gap.last_use + 1, gap.gone, op, ops_)) continue;
      const std::uint32_t gone = unrolled(gap.last_use + 1, op);
      ring_.add(gone, gap.gone, -room_of(trace_, setting_, gap.tensor));
      gap.gone = gone;
      return true;
    }
    return false;
  }

  bool come_later(std::uint32_t op) {
    Stay* latest = nullptr;
    std::uint32_t best = 0;
    for (Stay& gap : gaps_) {
      if (!gap.returns || !covers(gap.fetch, gap.next_use, op, ops_)) continue;
      const std::uint32_t distance = gap.next_use - unrolled(gap.fetch, op);
      if (latest == nullptr || distance > best) latest = &gap, best = distance;
    }
    if (latest == nullptr) return false;
    const std::uint32_t fetch = unrolled(latest->fetch, op) + 1;
    ring_.add(latest->fetch, fetch, -room_of(trace_, setting_, latest->tensor));
    latest->fetch = fetch;
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

  bool send_another(std::uint32_t op) {
    Stay best{.last_use = none};
    std::uint32_t furthest = 0;
    for (std::uint32_t t = 0; t < uses_.tensors.size(); ++t) {
      Stay gap = gap_around(t, op);
      if (gap.last_use == none) continue;
      const bool already = std::any_of(gaps_.begin(), gaps_.end(),
                                       [&](const Stay& each) { return each.tensor == t && each.last_use == gap.last_use; });
      const std::uint32_t distance = gap.next_use - unrolled(gap.last_use, op);
      if (already || distance <= furthest) continue;
      gap.gone = unrolled(gap.last_use, op);
      gap.fetch = gap.next_use;
      best = gap;
      furthest = distance;
    }
    if (best.last_use == none) return false;
    ring_.add(best.gone, best.fetch, -room_of(trace_, setting_, best.tensor));
    gaps_.push_back(best);
    return true;
  }

  const Trace& trace_;
  const Uses& uses_;
  const Setting& setting_;
  std::vector<Stay>& gaps_;
  Ring ring_;
  std::uint32_t ops_;
};

}  // namespace

std::optional<std::vector<Stay>> lay_out(const Trace& trace, const Uses& uses, const Setting& setting, std::vector<Stay> gaps) {
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
  if (!Repair(trace, uses, setting, gaps).run()) return std::nullopt;
  std::erase_if(gaps, [](const Stay& gap) { return gap.fetch <= gap.gone; });
  return gaps;
}

void fetch_early(const Trace& trace, const Uses& uses, const Setting& setting, std::int64_t lead_ns, std::int64_t spare,
                 std::vector<Stay>& gaps) {
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  Ring ring(trace, uses, setting.granule);
  ring.leave_out(trace, setting.granule, gaps);
  std::vector<std::int64_t> starts(std::size_t{ops} + 1);
  for (std::uint32_t op = 0; op < ops; ++op) starts[op + 1] = starts[op] + trace.ops[op].time.value;
  const auto time_until = [&](std::uint32_t op) { return starts[ops] * (op / ops) + starts[op % ops]; };
  std::vector<std::uint32_t> order;
  for (std::uint32_t g = 0; g < gaps.size(); ++g) {
    if (gaps[g].returns) order.push_back(g);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(gaps[a].next_use % ops, gaps[a].fetch) < std::pair(gaps[b].next_use % ops, gaps[b].fetch);
  });
  // Ops are counted from the step in which the fetch is due, and may be negative: a queue works in order, so nobody is issued
  // before those that are due earlier.
  std::int64_t floor = -static_cast<std::int64_t>(ops);
  for (std::uint32_t g : order) {
    Stay& gap = gaps[g];
    const std::int64_t shift = gap.next_use / ops * ops;
    const std::int64_t bytes = room_of(trace, setting, gap.tensor);
    std::int64_t lead = time_until(gap.next_use) - time_until(gap.fetch);
    while (gap.fetch > gap.gone && static_cast<std::int64_t>(gap.fetch) - shift > floor && lead < lead_ns) {
      const std::uint32_t before = gap.fetch - 1;
      if (ring.at(before) + bytes + spare > setting.budget) break;
      ring.add(before, gap.fetch, bytes);
      gap.fetch = before;
      lead += trace.ops[before % ops].time.value;
    }
    floor = std::max(floor, static_cast<std::int64_t>(gap.fetch) - shift);
  }
}

Plan plan_of(const Trace& trace, const Setting& setting, const std::vector<Stay>& gaps) {
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  struct Ordered {
    std::uint32_t lead;  // ops until due: what is due sooner goes first
    Move move;
  };
  std::vector<Ordered> moves;
  for (const Stay& gap : gaps) {
    const TensorIndex t{gap.tensor};
    const TierIndex slow = gap.tier == 0 ? setting.slow : TierIndex{gap.tier};
    const bool persistent = trace.tensors[gap.tensor].persistent;
    // At home in the slow tier: away, or on its way back, when op 0 begins.
    const bool back_at_0 = gap.next_use == ops && gap.fetch < ops;
    if (persistent && gap.gone <= ops && gap.next_use >= ops && !back_at_0) plan.home[t.value] = slow;
    if (persistent && !gap.returns) continue;
    const std::uint32_t gone = std::min(gap.gone, gap.fetch);
    moves.push_back({gone - gap.last_use,
                     {.issue = {gap.last_use},
                      .due = {gone % ops},
                      .extent = {t, {}},
                      .source = {0},
                      .target = slow,
                      .verb = Verb::evict}});
    if (!gap.returns) continue;
    moves.push_back({gap.next_use - gap.fetch,
                     {.issue = {gap.fetch % ops},
                      .due = {gap.next_use % ops},
                      .extent = {t, {}},
                      .source = slow,
                      .target = {0},
                      .verb = Verb::fetch}});
  }
  std::stable_sort(moves.begin(), moves.end(), [](const Ordered& a, const Ordered& b) {
    return std::pair(a.move.issue, a.lead) < std::pair(b.move.issue, b.lead);
  });
  for (Ordered& each : moves) plan.moves.push_back(each.move);
  return plan;
}

}  // namespace vedette::planning
