// Gaps, prices of memory, a cover by them, and the times of its transfers.
#include "policy/vedette/cover.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policy/canvas/room.h"

namespace vedette::planning {
namespace {

constexpr int rounds = 40;  // of updates; prices are the mean of the latter half
constexpr double rate = 0.5;
constexpr int slows_from = 20;  // rounds

// A tensor between two uses, or between its last use and its death. Ops count on into the next step.
struct Gap {
  std::uint32_t tensor = 0, last_use = 0, next_use = 0;
  bool returns = true, changed = false;  // changed: by the last use
  std::int64_t bytes = 0, read_ns = 0, write_ns = 0;
  std::uint32_t written = 0, until = 0;  // it gives room from the op at which it is written to this one
  double wait_ns = 0;                    // by which both transfers take longer than the gap
  bool chosen = false, writes = true;
  double read_cost = 0, write_cost = 0;
  std::uint32_t from() const { return writes ? written : last_use + 1; }
};

struct Candidate {  // a gap that may give room where it is missing
  double bytes = 0, cost = 0, cost_written = 0;
  std::uint32_t gap = 0, from = 0, from_written = 0, until = 0;  // places among the ops where room is missing
  bool changed = false, chosen = false;                          // changed: since the candidate before
};

// Time that a link has left, op by op, of a step that repeats.
class IdleTime {
 public:
  explicit IdleTime(const Trace& trace) {
    for (const Op& op : trace.ops) left_.push_back(op.time.value);
    later_.resize(2 * left_.size() + 1);
    std::iota(later_.begin(), later_.end(), 0U);
    sooner_ = later_;
  }
  // Takes `work` from op `from` on; one past the op in which it ends, `until` at most.
  std::uint32_t take_after(std::uint32_t from, std::uint32_t until, std::int64_t work) {
    std::uint32_t at = from;
    while (work > 0 && (at = find(later_, at)) < until) {
      work -= take(at, work);
      ++at;
    }
    return work > 0 ? until : std::max(at, from);
  }
  // Takes `work` before op `until`, the latest first; the op in which it begins, `from` at least.
  std::uint32_t take_before(std::uint32_t from, std::uint32_t until, std::int64_t work) {
    std::uint32_t at = until;
    while (work > 0 && at > from) {
      const std::uint32_t next = find(sooner_, at);  // position p stands for op p - 1
      if (next <= from) return from;
      at = next - 1;
      work -= take(at, work);
    }
    return at;
  }

 private:
  static std::uint32_t find(std::vector<std::uint32_t>& parents, std::uint32_t at) {
    while (parents[at] != at) at = parents[at] = parents[parents[at]];
    return at;
  }
  std::int64_t take(std::uint32_t op, std::int64_t work) {
    const auto n = static_cast<std::uint32_t>(left_.size());
    const std::uint32_t i = op % n;
    const std::int64_t taken = std::min(work, left_[i]);
    if ((left_[i] -= taken) > 0) return taken;
    for (const std::uint32_t at : {i, i + n}) {
      later_[at] = at + 1;
      sooner_[at + 1] = at;
    }
    return taken;
  }

  std::vector<std::int64_t> left_;
  std::vector<std::uint32_t> later_;   // union-find: the next op with time left
  std::vector<std::uint32_t> sooner_;  // of op p - 1: the latest one with time left
};

class Cover {
 public:
  Cover(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting, const LinkPrices& prices)
      : trace_(trace),
        uses_(uses),
        costs_(costs),
        setting_(setting),
        prices_(prices),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        missing_(costs.occupied) {
    gaps_.reserve(uses.op_of.size());
    starts_.resize(2 * std::size_t{ops_} + 1);
    for (std::uint32_t op = 0; op < 2 * ops_; ++op) starts_[op + 1] = starts_[op] + trace.ops[op % ops_].time.value;
  }

  std::vector<Stay> run() {
    cut_into_stretches();
    std::int64_t unused = 0;  // bytes of tensors that no op uses, which are away always
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      for (std::size_t use = 0; use < uses_.tensors[t].uses.size(); ++use) add_gap(t, use);
      if (uses_.tensors[t].persistent && uses_.tensors[t].uses.empty()) unused += costs_.room[t];
    }
    for (std::int64_t& bytes : missing_) bytes -= setting_.budget + unused;
    price_memory();
    choose();
    return with_times();
  }

 private:
  void cut_into_stretches();
  void add_gap(std::uint32_t tensor, std::size_t use);
  void see_what_is_written();
  void find_candidates();
  void choose_by_worth(std::vector<std::int64_t>& away);
  void sum_up(const std::vector<double>& memory);
  void price_memory();
  void choose();
  std::vector<Stay> with_times();
  double price_at(std::uint32_t op) const { return prices_.of[stretch_[op < ops_ ? op : (op - ops_) % ops_]]; }

  // The gap's ops that count, around the step, as one or two runs of [0, ops).
  template <class Visit>
  void around(const Gap& gap, Visit&& visit) const {
    const std::uint32_t from = gap.from(), begin = from < ops_ ? from : from - ops_,
                        end = begin + std::min(gap.until - from, ops_);
    visit(begin, std::min(end, ops_));
    if (end > ops_) visit(0U, end - ops_);
  }

  const Trace& trace_;
  const Uses& uses_;
  const Costs& costs_;
  const Setting& setting_;
  const LinkPrices& prices_;
  const std::uint32_t ops_;
  std::vector<std::int64_t> missing_;  // [op]: bytes that have to be away
  std::vector<std::int64_t> starts_;   // [op of two steps]: ideal begin
  std::vector<std::size_t> stretch_;   // [op]
  std::vector<Gap> gaps_;              // of each tensor one after the other
  struct OfTensor {
    std::size_t begin = 0, end = 0;  // of candidates_
    bool persistent = false;
  };
  std::vector<std::uint32_t> short_;   // ops where room is missing
  std::vector<Candidate> candidates_;  // of each tensor one after the other
  std::vector<OfTensor> tensors_;      // that have candidates
  std::vector<double> sums_;           // prices of a byte, of two steps, up to each place of short_
};

void Cover::cut_into_stretches() {
  double all = 0;
  std::vector<double> operands(ops_);
  for (std::uint32_t op = 0; op < ops_; ++op) {
    for (const std::uint32_t t : uses_.operands[op]) operands[op] += static_cast<double>(trace_.tensors[t].bytes.value);
    all += operands[op];
  }
  const auto step = static_cast<double>(std::max<std::int64_t>(starts_[ops_], 1));
  double place = 0;
  for (std::uint32_t op = 0; op < ops_; ++op) {
    stretch_.push_back(std::min(static_cast<std::size_t>(place * LinkPrices::stretches), LinkPrices::stretches - 1));
    place += (static_cast<double>(trace_.ops[op].time.value) / step + operands[op] / std::max(all, 1.0)) / 2;
  }
}

void Cover::add_gap(std::uint32_t t, std::size_t use) {
  const TensorUses& tensor = uses_.tensors[t];
  const bool last = use + 1 == tensor.uses.size();
  Gap gap{.tensor = t,
          .last_use = tensor.uses[use].op,
          .next_use = !last               ? tensor.uses[use + 1].op
                      : tensor.persistent ? tensor.uses.front().op + ops_
                                          : tensor.death + 1,
          .returns = !last || tensor.persistent,
          .changed = tensor.uses[use].write,
          .bytes = costs_.room[t],
          .write_ns = costs_.out_ns[t]};
  if (gap.returns) gap.read_ns = costs_.in_ns[t];
  gap.written = gap.last_use + 1;
  gap.until = gap.next_use;
  const std::int64_t gone = starts_[gap.written] + gap.write_ns, comes = starts_[gap.until] - gap.read_ns;
  if (gone < comes) {
    while (starts_[gap.written] < gone) ++gap.written;
    while (starts_[gap.until] > comes) --gap.until;
  } else {
    gap.wait_ns = static_cast<double>(gone - comes);
  }
  gap.written = std::min(gap.written, gap.until);
  gap.read_cost = 1 + static_cast<double>(gap.read_ns) * price_at(gap.until);
  gap.write_cost = static_cast<double>(gap.write_ns) * price_at(gap.written - 1) + gap.wait_ns;
  gaps_.push_back(gap);
}

// A gap is written first where its tensor changed since the chosen one before.
void Cover::see_what_is_written() {
  for (std::size_t first = 0, end = 0; first < gaps_.size(); first = end) {
    const std::uint32_t t = gaps_[first].tensor;
    end = first + uses_.tensors[t].uses.size();
    bool clean = uses_.tensors[t].persistent;
    for (int lap = clean ? 0 : 1; lap < 2; ++lap) {
      for (std::size_t g = first; g < end; ++g) {
        clean &= !gaps_[g].changed;
        gaps_[g].writes = !clean;
        clean |= gaps_[g].chosen;
      }
    }
  }
}

// Of two steps, up to each place.
void Cover::sum_up(const std::vector<double>& memory) {
  sums_.resize(2 * memory.size() + 1);
  double sum = 0, *next = sums_.data();
  for (int lap = 0; lap < 2; ++lap) {
    for (const double price : memory) *++next = sum += price;
  }
}

// Ops at which nothing has to be away have no price, and a gap over such ops alone is never worth its cost. So prices
// are found on the others: a gap's ops become places among them, and what changed since the gap before is noted.
void Cover::find_candidates() {
  std::vector<std::uint32_t> place(2 * std::size_t{ops_} + 1);
  for (std::uint32_t op = 0; op < ops_; ++op) {
    place[op + 1] = place[op] + (missing_[op] > 0 ? 1 : 0);
    if (missing_[op] > 0) short_.push_back(op);
  }
  for (std::uint32_t op = 0; op < ops_; ++op) place[ops_ + op + 1] = place[ops_] + place[op + 1];
  for (std::size_t first = 0, end = 0; first < gaps_.size(); first = end) {
    end = first + uses_.tensors[gaps_[first].tensor].uses.size();
    const bool persistent = uses_.tensors[gaps_[first].tensor].persistent;
    const std::size_t before = candidates_.size();
    bool changed = false;
    for (std::size_t g = first; g < end; ++g) {
      const Gap& gap = gaps_[g];
      changed = changed || gap.changed;
      if (place[gap.last_use + 1] == place[gap.until]) continue;
      candidates_.push_back({.bytes = static_cast<double>(gap.bytes),
                             .cost = gap.read_cost,
                             .cost_written = gap.read_cost + gap.write_cost,
                             .gap = static_cast<std::uint32_t>(g),
                             .from = place[gap.last_use + 1],
                             .from_written = place[gap.written],
                             .until = place[gap.until],
                             .changed = changed});
      changed = false;
    }
    if (candidates_.size() == before) continue;
    candidates_[before].changed = candidates_[before].changed || changed;  // around the step
    tensors_.push_back({.begin = before, .end = candidates_.size(), .persistent = persistent});
  }
}

// Chooses each gap that is worth more than it costs, by `sums_`; `away`: the bytes that this has away at each place.
// What is written depends on what was chosen before.
void Cover::choose_by_worth(std::vector<std::int64_t>& away) {
  const auto places = static_cast<std::uint32_t>(short_.size());
  away.assign(std::size_t{places} + 1, 0);
  for (const OfTensor& tensor : tensors_) {
    bool clean = tensor.persistent;
    if (clean) {
      for (std::size_t c = tensor.begin; c < tensor.end; ++c)
        clean = (clean && !candidates_[c].changed) || candidates_[c].chosen;
    }
    for (std::size_t c = tensor.begin; c < tensor.end; ++c) {
      Candidate& each = candidates_[c];
      clean = clean && !each.changed;
      const std::uint32_t from = clean ? each.from : each.from_written;
      each.chosen = each.bytes * (sums_[each.until] - sums_[from]) > (clean ? each.cost : each.cost_written);
      clean = clean || each.chosen;
      if (!each.chosen) continue;
      const auto bytes = static_cast<std::int64_t>(each.bytes);
      const std::uint32_t begin = from < places ? from : from - places,
                          end = begin + std::min(each.until - from, places);
      away[begin] += bytes;
      away[std::min(end, places)] -= bytes;
      if (end > places) away[0] += bytes, away[end - places] -= bytes;
    }
  }
  for (std::uint32_t place = 1; place < places; ++place) away[place] += away[place - 1];
}

void Cover::price_memory() {
  find_candidates();
  const double first = 1e9 / static_cast<double>(std::max<std::uint64_t>(setting_.read_bytes_per_s, 1)) / ops_;
  std::vector<double> memory(short_.size(), first), mean(short_.size());
  std::vector<std::int64_t> away;
  for (int round = 0; round < rounds; ++round) {
    sum_up(memory);
    choose_by_worth(away);
    const double slower = rate * slows_from / std::max(round, slows_from);
    for (std::size_t place = 0; place < short_.size(); ++place) {
      const std::int64_t missing = missing_[short_[place]];
      const double lack = static_cast<double>(missing - away[place]) / static_cast<double>(missing);
      memory[place] =
          std::clamp(memory[place] * std::exp(slower * std::clamp(lack, -1.0, 1.0)), first * 1e-6, first * 1e12);
      if (round >= rounds / 2) mean[place] += memory[place] / (rounds - rounds / 2);
    }
  }
  sum_up(mean);
  for (const Candidate& each : candidates_) gaps_[each.gap].chosen = each.chosen;
}

void Cover::choose() {
  see_what_is_written();
  std::vector<std::uint32_t> order;
  std::vector<double> ratio(gaps_.size());
  for (Gap& gap : gaps_) gap.chosen = false;
  for (const Candidate& each : candidates_) {
    const Gap& gap = gaps_[each.gap];
    if (gap.from() >= gap.until) continue;
    const double worth = each.bytes * (sums_[each.until] - sums_[gap.writes ? each.from_written : each.from]);
    ratio[each.gap] = worth / (gap.writes ? each.cost_written : each.cost);
    order.push_back(each.gap);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return ratio[a] > ratio[b]; });
  Room missing(missing_);
  const auto most = [&](const Gap& gap) {
    std::int64_t largest = 0;
    around(gap, [&](std::uint32_t begin, std::uint32_t end) { largest = std::max(largest, missing.most(begin, end)); });
    return largest;
  };
  const auto add = [&](const Gap& gap, std::int64_t bytes) {
    around(gap, [&](std::uint32_t begin, std::uint32_t end) { missing.add(begin, end, bytes); });
  };
  for (const std::uint32_t g : order) {
    if (missing.largest() <= 0) break;
    if (most(gaps_[g]) <= 0) continue;
    gaps_[g].chosen = true;
    add(gaps_[g], -gaps_[g].bytes);
  }
  for (auto g = order.rbegin(); g != order.rend(); ++g) {
    Gap& gap = gaps_[*g];
    if (!gap.chosen) continue;
    add(gap, gap.bytes);
    gap.chosen = most(gap) > 0;
    if (gap.chosen) add(gap, -gap.bytes);
  }
}

// Reads as late as their link allows, the latest first; writes as soon as it has time left.
std::vector<Stay> Cover::with_times() {
  see_what_is_written();
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t g = 0; g < gaps_.size(); ++g)
    if (gaps_[g].chosen) chosen.push_back(g);
  IdleTime in(trace_), out(trace_);
  std::vector<Stay> stays(gaps_.size());
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::uint32_t a, std::uint32_t b) {
    return gaps_[a].next_use % ops_ > gaps_[b].next_use % ops_;
  });
  for (const std::uint32_t g : chosen) {
    const Gap& gap = gaps_[g];
    stays[g] = {.tensor = gap.tensor,
                .last_use = gap.last_use,
                .gone = gap.last_use + 1,
                .fetch = in.take_before(gap.last_use + 1, gap.next_use, gap.read_ns),
                .next_use = gap.next_use,
                .returns = gap.returns,
                .writes = gap.writes};
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return gaps_[a].last_use < gaps_[b].last_use; });
  std::vector<Stay> made;
  for (const std::uint32_t g : chosen) {
    Stay& stay = stays[g];
    if (stay.writes)
      stay.gone = (setting_.shared ? in : out).take_after(stay.last_use + 1, stay.next_use, gaps_[g].write_ns);
    if (stay.fetch <= stay.gone) stay.gone = stay.last_use + 1, stay.fetch = stay.next_use;  // and waits
    if (stay.fetch > stay.gone) made.push_back(stay);
  }
  return made;
}

}  // namespace

std::vector<Stay> cover(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting,
                        const LinkPrices& prices) {
  if (trace.ops.empty()) return {};
  return Cover(trace, uses, costs, setting, prices).run();
}

}  // namespace vedette::planning
