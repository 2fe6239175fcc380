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
  double cost = 0, worth = 0;
  double read_cost = 0, write_cost = 0;  // the parts of `cost`
  std::uint32_t from() const { return writes ? written : last_use + 1; }
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
  void weigh(const std::vector<double>& memory);
  void see_what_is_written();
  void choose_by_worth(const std::vector<double>& memory, std::vector<std::int64_t>& away);
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
  std::vector<double> memory_;         // [op]: price of a byte
  std::vector<double> sums_;           // of two steps, up to each op
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

void Cover::sum_up(const std::vector<double>& memory) {
  sums_.resize(2 * std::size_t{ops_} + 1);
  for (std::uint32_t op = 0; op < ops_; ++op) sums_[op + 1] = sums_[op] + memory[op];
  for (std::uint32_t op = 0; op < ops_; ++op) sums_[ops_ + op + 1] = sums_[ops_ + op] + memory[op];
}

void Cover::weigh(const std::vector<double>& memory) {
  sum_up(memory);
  see_what_is_written();
  for (Gap& gap : gaps_) {
    gap.cost = gap.read_cost;
    if (gap.writes) gap.cost += gap.write_cost;
    gap.worth = static_cast<double>(gap.bytes) * (sums_[gap.until] - sums_[gap.from()]);
  }
}

// Chooses each gap that is worth more than it costs; `away`: the bytes that this has away at each op. What is written
// depends on what was chosen before.
void Cover::choose_by_worth(const std::vector<double>& memory, std::vector<std::int64_t>& away) {
  sum_up(memory);
  away.assign(std::size_t{ops_} + 1, 0);
  for (std::size_t first = 0, end = 0; first < gaps_.size(); first = end) {
    const TensorUses& tensor = uses_.tensors[gaps_[first].tensor];
    end = first + tensor.uses.size();
    bool clean = tensor.persistent;
    if (clean) {
      for (std::size_t g = first; g < end; ++g) clean = (clean && !gaps_[g].changed) || gaps_[g].chosen;
    }
    for (std::size_t g = first; g < end; ++g) {
      Gap& gap = gaps_[g];
      clean = clean && !gap.changed;
      gap.writes = !clean;
      clean = clean || gap.chosen;
      const std::uint32_t from = gap.from();
      const double cost = gap.writes ? gap.read_cost + gap.write_cost : gap.read_cost;
      gap.chosen = static_cast<double>(gap.bytes) * (sums_[gap.until] - sums_[from]) > cost;
      if (!gap.chosen || from >= gap.until) continue;
      around(gap, [&](std::uint32_t begin, std::uint32_t until) {
        away[begin] += gap.bytes;
        away[until] -= gap.bytes;
      });
    }
  }
  for (std::uint32_t op = 1; op < ops_; ++op) away[op] += away[op - 1];
}

void Cover::price_memory() {
  const double first = 1e9 / static_cast<double>(std::max<std::uint64_t>(setting_.read_bytes_per_s, 1)) / ops_;
  std::vector<double> memory(ops_);
  std::vector<std::int64_t> away;
  for (std::uint32_t op = 0; op < ops_; ++op) memory[op] = missing_[op] > 0 ? first : 0;
  memory_.assign(ops_, 0);
  for (int round = 0; round < rounds; ++round) {
    choose_by_worth(memory, away);
    const double slower = rate * slows_from / std::max(round, slows_from);
    for (std::uint32_t op = 0; op < ops_; ++op) {
      if (missing_[op] <= 0) continue;
      const double lack = static_cast<double>(missing_[op] - away[op]) / static_cast<double>(missing_[op]);
      memory[op] = std::clamp(memory[op] * std::exp(slower * std::clamp(lack, -1.0, 1.0)), first * 1e-6, first * 1e12);
      if (round >= rounds / 2) memory_[op] += memory[op] / (rounds - rounds / 2);
    }
  }
}

void Cover::choose() {
  weigh(memory_);
  std::vector<std::uint32_t> order;
  std::vector<double> ratio;
  for (Gap& gap : gaps_) {
    gap.chosen = false;
    ratio.push_back(gap.worth / gap.cost);
    if (gap.from() < gap.until) order.push_back(static_cast<std::uint32_t>(ratio.size() - 1));
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
