// The lower bound of vedette/bound.h.
//
// Cut the machine between tiers 0..j and the rest: `capacity` bytes lie on the near side at any instant, and links
// cross the cut with `in` and `out` bytes a second. Take the ops [b, e).
// In: bytes that existed before b and are used in [b, e) are on the near side when they are used. While b runs, its
//      workspace and operands lie there too. So of all others at most capacity less those is near when b ends, and the
//      rest crosses the cut before op e - 1 begins. Thus waits before b+1 .. e-1 plus the times of b+1 .. e-2 are at
//      least (bytes - capacity) / in. The same holds from the end of op b - 1, without b's workspace and operands, with
//      the wait before b and its time.
//      Only bytes that are read next count: those that are written over may be thrown away.
// Out: a tensor changed in [b, e) and read after it is near when e - 1 ends, or has crossed the cut after it was
//      changed, beside e - 1's workspace and operands. Thus waits before b+1 .. e-1 plus the times of b+1 .. e-1 are at
//      least (bytes - capacity) / out. A tensor that was changed before e - 1 and is none of its operands has made room
//      for it when it begins: the same without e - 1's own changes and its time.
// Both: links that cross share a bus, or the host's memory, so that all together carry `together` bytes a second both
//      ways. Then waits and times of the two together are at least (bytes that come + bytes that go) / together.
// Recomputation: bytes that a producer can recompute need not come, at the price of its time, which is waiting of its
//      kind. With x_i of tensor i recomputed, more >= sum x_i t_i and more >= (bytes - sum x_i s_i - capacity) / in -
//      time, so for any weight m in [0, 1] more >= (1 - m) sum x_i t_i + m ((...) / in - time) >= sum_i min(m s_i / in,
//      (1 - m) t_i) - m (capacity / in + time). A producer's time is split among its results by size. A producer reads
//      what may have died before b: that has to be had as well (near when b starts, or moved) or recomputed in turn. So
//      the price of a run of a producer is its time and a part of the price of each dead source, divided among the
//      producers that read that source, and the price of having anything is that of its bytes: prices add up because
//      none is charged twice. Sources that live are free here. A recomputable tensor need not be written out,
//      unless its sources die with its making: then they, or it, are near or have crossed.
// Operands in place (addressable tiers) cost their bytes over the link beside the op, so such links count twice.
// Waits of runs of ops that do not overlap add up; over two steps, because persistent tensors may be away over the
// border, and halved.
#include "vedette/bound.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "model/producers.h"
#include "sim/bound.h"
#include "sim/cut.h"
#include "sim/step.h"
#include "vedette/machine.h"

namespace vedette {
namespace {

using sim::Cut;

// pairs of begin and end that are looked at; fewer begins are still a bound
constexpr std::size_t most_work = 6'000'000, most_coarse_work = 200'000;
constexpr std::array<double, 6> weights{1.0, 0.97, 0.9, 0.75, 0.5, 0.25};
constexpr int most_sources = 32;  // dead, one behind the other; the rest is free, which is still a bound

class Bound {
 public:
  Bound(const Trace& trace, const Machine& machine)
      : trace_(trace), machine_(machine), step_(sim::flatten(trace)), ops_(trace.ops.size()) {
    best_.assign(2 * ops_ + 1, 0);
    begin_of_.assign(2 * ops_ + 1, 0);
    for (std::uint32_t j = 0; j + 1 < machine.tiers.size(); ++j) {
      const Cut cut = sim::cut_behind(machine, j);
      if (cut.capacity < static_cast<double>(peak_bytes(trace).value) && cut.in > 0 && cut.out > 0)
        cuts_.push_back(cut);
    }
    for (std::size_t k = 1; k < machine.tiers.size(); ++k) in_place_ = in_place_ || machine.tiers[k].addressable;
    for (const PageAccess& access : trace.pages) paged_.insert(access.tensor.value);  // ops need but a part of it
    find_next_reads();
    find_producers();
    find_what_goes_out();
  }

  double waiting(std::size_t most) {
    if (ops_ == 0 || cuts_.empty()) return 0;
    const std::size_t stride = 1 + 2 * ops_ * ops_ / most;
    for (std::size_t begin = 0; begin < 2 * ops_; ++begin) {
      if (begin > 0) best_[begin] = std::max(best_[begin], best_[begin - 1]);
      if (begin % stride == 0) from(begin, std::min(2 * ops_, begin + ops_));
    }
    best_[2 * ops_] = std::max(best_[2 * ops_], best_[2 * ops_ - 1]);
    return best_[2 * ops_] / 2;
  }

  // After waiting(): the runs of ops whose waits it added up, as sums over tensors.
  void explain(MemoryPrices& prices) {
    for (std::size_t end = cuts_.empty() ? 0 : 2 * ops_; end > 0;) {
      if (best_[end] == best_[end - 1]) {
        --end;
        continue;
      }
      explain(begin_of_[end], end - 1, prices);
      end = begin_of_[end];
    }
  }

 private:
  double size(std::uint32_t t) const { return static_cast<double>(trace_.tensors[t].bytes.value); }

  // next_read_[op][i]: the next op after it that uses operand i, in this step or the next, reads it.
  void find_next_reads() {
    std::vector<char> next(trace_.tensors.size());
    next_read_.resize(ops_);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t op = ops_; op-- > 0;) {
        next_read_[op].clear();
        for (const sim::Operand& each : step_.operands[op]) {
          const bool ends = !trace_.tensors[each.tensor].persistent && step_.uses[each.tensor].back() == op;
          next_read_[op].push_back(next[each.tensor] && !ends);
          next[each.tensor] = each.read;
        }
      }
    }
  }

  // producers_[t]: the ops that can recompute it; takers_[t]: how many could make something of it.
  void find_producers() {
    producers_.resize(trace_.tensors.size());
    takers_.resize(trace_.tensors.size());
    death_.assign(trace_.tensors.size(), ops_);
    if (machine_.can_recompute) again_ = producers(trace_);
    for (std::size_t op = 0; op < ops_; ++op) {
      for (std::uint32_t t : step_.deaths[op]) death_[t] = op;
      if (!machine_.can_recompute || !replayable(again_[op])) continue;
      for (TensorIndex t : again_[op].writes) producers_[t.value].push_back(op);
      for (TensorIndex t : again_[op].reads) ++takers_[t.value];
    }
    prices_.resize(trace_.tensors.size());
    priced_.resize(trace_.tensors.size());
  }

  double share_of(std::uint32_t t, std::size_t producer) const {
    double all = 0;
    for (TensorIndex other : again_[producer].writes) all += size(other.value);
    return all == 0 ? 0 : size(t) / all;
  }
  bool dies_before(std::uint32_t t, std::size_t op) const { return death_[t] < op && !paged_.contains(t); }

  // out_bytes_[t]: at least so many bytes, of t or of its sources, are near or have crossed. That holds once t has been
  // made and as long as it is read again, if they all were made since op oldest_[t]. In order of making, so that
  // sources come first.
  void find_what_goes_out() {
    out_bytes_.assign(trace_.tensors.size(), 0);
    oldest_.assign(trace_.tensors.size(), ops_);
    std::vector<char> known(trace_.tensors.size());
    for (std::size_t op = 0; op < ops_; ++op) {
      for (TensorIndex t : trace_.ops[op].writes) {
        if (known[t.value] || trace_.tensors[t.value].persistent) continue;
        known[t.value] = 1;
        settle_out_bytes(t.value, op);
      }
    }
  }

  void settle_out_bytes(std::uint32_t t, std::size_t birth) {
    out_bytes_[t] = size(t);
    oldest_[t] = birth;
    for (const std::size_t producer : producers_[t]) {
      double bytes = 0;
      for (TensorIndex u : again_[producer].reads) {
        if (!dies_before(u.value, producer + 1)) continue;
        bytes += out_bytes_[u.value] / takers_[u.value];
        oldest_[t] = std::min(oldest_[t], oldest_[u.value]);
      }
      out_bytes_[t] = std::min(out_bytes_[t], bytes * share_of(t, producer));
    }
  }

  // The least cost of t when the run begins at op `begin` of its step, for each cut and weight: its bytes, or
  // recomputing it.
  const std::vector<double>& price(std::uint32_t t, std::size_t begin, int depth) {
    std::vector<double>& found = prices_[t];
    if (priced_[t] == begin + 1) return found;
    priced_[t] = begin + 1;
    found.assign(cuts_.size() * weights.size(), 0);  // of a circle, nothing
    std::vector<double> least(found.size());
    for (std::size_t k = 0; k < least.size(); ++k)
      least[k] = weights[k % weights.size()] * size(t) * cuts_[k / weights.size()].in;
    for (const std::size_t producer : producers_[t]) {
      std::vector<double> run(found.size());
      for (std::size_t k = 0; k < run.size(); ++k)
        run[k] = (1 - weights[k % weights.size()]) * static_cast<double>(again_[producer].time.value);
      for (TensorIndex u : again_[producer].reads) {
        if (trace_.tensors[t].persistent || depth == most_sources || !dies_before(u.value, begin)) continue;
        const std::vector<double>& source = price(u.value, begin, depth + 1);
        for (std::size_t k = 0; k < run.size(); ++k) run[k] += source[k] / takers_[u.value];
      }
      for (std::size_t k = 0; k < run.size(); ++k) least[k] = std::min(least[k], run[k] * share_of(t, producer));
    }
    return prices_[t] = std::move(least);
  }

  struct Sums {
    std::array<double, weights.size()> in{}, out{}, out_before{};  // before the last op has changed anything
  };
  struct Run {
    std::size_t begin, last;  // ops
    // of the last one, beside the bytes that have to go: when it begins, and when it ends
    double room_before = 0, room = 0;
    double times_before = 0, last_time = 0, times_after = 0;  // of begin .. last - 1, of last, of begin + 1 .. last
  };

  struct Term {  // the most that one run proves
    double ns = 0;
    std::size_t cut = 0, weight = 0;
    enum Part : std::uint8_t { none, whole, less } in = none, out = none;  // less: without its first op, or its last
    bool together = false;
  };

  void add_in(std::vector<Sums>& sums, std::uint32_t t, std::size_t begin) {
    const std::vector<double>& prices = price(t, begin % ops_, 0);
    for (std::size_t k = 0; k < prices.size(); ++k) sums[k / weights.size()].in[k % weights.size()] += prices[k];
  }

  // A tensor made before the run began may have crossed before; a second step is after that.
  double goes_out(std::uint32_t t, std::size_t begin, std::size_t at) const {
    const bool made_since = (begin < ops_ && at >= ops_) || oldest_[t] >= begin % ops_;
    return producers_[t].empty() ? size(t) : made_since ? out_bytes_[t] : 0;
  }
  void add_out(std::vector<Sums>& sums, double bytes) const {
    for (std::size_t c = 0; c < cuts_.size(); ++c) {
      for (std::size_t w = 0; w < weights.size(); ++w) sums[c].out[w] += weights[w] * bytes * cuts_[c].out;
    }
  }

  Term from(std::size_t begin, std::size_t end) {
    std::vector<Sums> sums(cuts_.size());
    std::vector<char> used(trace_.tensors.size()), changed(trace_.tensors.size()), counted(trace_.tensors.size());
    const std::vector<double> begin_room = room_of(begin % ops_);
    Run run{.begin = begin, .last = begin};
    Term term;  // of the last run
    for (std::size_t at = begin; at < end; ++at) {
      const std::size_t op = at % ops_;
      run.last = at;
      run.last_time = static_cast<double>(trace_.ops[op].time.value);
      if (at > begin) run.times_after += run.last_time;
      run.room_before = run.room = static_cast<double>(trace_.ops[op].workspace.value);
      for (Sums& each : sums) each.out_before = each.out;
      for (std::size_t i = 0; i < step_.operands[op].size(); ++i) {
        const sim::Operand& each = step_.operands[op][i];
        if (paged_.contains(each.tensor)) continue;
        if (!used[each.tensor] && each.read) add_in(sums, each.tensor, begin);
        used[each.tensor] = 1;
        changed[each.tensor] = changed[each.tensor] || each.write;
        const char counts = changed[each.tensor] && next_read_[op][i];
        const double bytes = goes_out(each.tensor, begin, at);
        if (!in_place_) run.room_before += size(each.tensor) - (counted[each.tensor] ? bytes : 0);
        if (counts != counted[each.tensor]) add_out(sums, counts ? bytes : -bytes), counted[each.tensor] = counts;
        if (!in_place_) run.room += size(each.tensor) - (counts ? bytes : 0);  // near, whichever needs to go out
      }
      term = weigh(sums, run, begin_room);
      if (best_[run.last + 1] < best_[begin] + term.ns)
        best_[run.last + 1] = best_[begin] + term.ns, begin_of_[run.last + 1] = begin;
      run.times_before += run.last_time;
    }
    return term;
  }

  // The room that the op's workspace and operands, which are near when it begins, take from others; less the charge for
  // reading them.
  std::vector<double> room_of(std::size_t op) {
    std::vector<double> room(cuts_.size() * weights.size());
    const auto add = [&](double bytes) {
      for (std::size_t k = 0; k < room.size(); ++k)
        room[k] += weights[k % weights.size()] * bytes * cuts_[k / weights.size()].in;
    };
    add(static_cast<double>(trace_.ops[op].workspace.value));
    for (const sim::Operand& each : step_.operands[op]) {
      if (paged_.contains(each.tensor) || in_place_) continue;
      add(size(each.tensor));
      if (!each.read) continue;
      const std::vector<double>& charged = price(each.tensor, op, 0);
      for (std::size_t k = 0; k < room.size(); ++k) room[k] -= charged[k];
    }
    return room;
  }

  Term weigh(const std::vector<Sums>& sums, const Run& run, const std::vector<double>& begin_room) const {
    const double between = run.times_after - run.last_time;  // of begin + 1 .. last - 1
    Term most;
    for (std::size_t c = 0; c < cuts_.size(); ++c) {
      const Cut& cut = cuts_[c];
      for (std::size_t w = 0; w < weights.size(); ++w) {
        const double m = weights[w], all = m * cut.capacity;
        const double comes = sums[c].in[w] - all * cut.in, comes_after = comes + begin_room[c * weights.size() + w];
        const double goes = sums[c].out[w] + (m * run.room - all) * cut.out,
                     goes_before = sums[c].out_before[w] + (m * run.room_before - all) * cut.out;
        const auto proves = [&](double ns, Term::Part in, Term::Part out) {
          if (ns > most.ns) most = {.ns = ns, .cut = c, .weight = w, .in = in, .out = out};
        };
        proves(comes - m * run.times_before, Term::whole, Term::none);
        proves(goes - m * run.times_after, Term::none, Term::whole);
        if (run.last > run.begin) {
          proves(comes_after - m * between, Term::less, Term::none);
          proves(goes_before - m * between, Term::none, Term::less);
        }
        if (cut.part_in == 0) continue;
        const auto both = [&](double in, double out, double times, Term::Part of_in, Term::Part of_out) {
          const double ns = cut.part_in * in + cut.part_out * out - m * times;
          if (in > 0 && out > 0 && ns > most.ns)
            most = {.ns = ns, .cut = c, .weight = w, .in = of_in, .out = of_out, .together = true};
        };
        both(comes, goes, run.times_before + run.last_time, Term::whole, Term::whole);
        if (run.last == run.begin) continue;
        both(comes, goes_before, run.times_before, Term::whole, Term::less);
        both(comes_after, goes, run.times_after, Term::less, Term::whole);
        both(comes_after, goes_before, between, Term::less, Term::less);
      }
    }
    return most;
  }

  // The terms of weigh(), tensor by tensor. All are linear in bytes; two steps count half each.
  void explain(std::size_t begin, std::size_t last, MemoryPrices& prices) {
    const Term term = from(begin, last + 1);
    const Cut& cut = cuts_[term.cut];
    const double part_in = term.in == Term::none ? 0
                           : term.together       ? cut.part_in
                                                 : 1,
                 part_out = term.out == Term::none ? 0
                            : term.together        ? cut.part_out
                                                   : 1;
    const double in = part_in * weights[term.weight] * cut.in / 2, out = part_out * weights[term.weight] * cut.out / 2;
    const auto having = [&](std::uint32_t t) {
      return part_in == 0 ? 0 : part_in * price(t, begin % ops_, 0)[term.cut * weights.size() + term.weight] / 2;
    };
    std::vector<char> used(trace_.tensors.size()), changed(used), counted(used);
    std::vector<double> goes(used.size());  // bytes
    for (std::size_t at = begin; at <= last; ++at) {
      const std::size_t op = at % ops_;
      const std::vector<double> before = at == last && term.out == Term::less ? goes : std::vector<double>{};
      for (std::size_t i = 0; i < step_.operands[op].size(); ++i) {
        const sim::Operand& each = step_.operands[op][i];
        const std::uint32_t t = each.tensor;
        if (paged_.contains(t)) continue;
        if (!used[t] && each.read) prices.tensor_ns[t] += having(t);
        used[t] = 1;
        changed[t] = changed[t] || each.write;
        const char counts = changed[t] && next_read_[op][i];
        const double bytes = goes_out(t, begin, at);
        const bool stays = term.out == Term::less ? counted[t] : counts;  // in what has to go
        if (at == last && !in_place_) prices.tensor_ns[t] += out * (size(t) - (stays ? bytes : 0));
        if (counts != counted[t]) goes[t] += counts ? bytes : -bytes, counted[t] = counts;
        if (at == begin && term.in == Term::less && !in_place_)
          prices.tensor_ns[t] += in * size(t) - (each.read ? having(t) : 0);
      }
      if (at == last && term.out == Term::less) goes = before;
    }
    for (std::size_t t = 0; t < goes.size(); ++t) prices.tensor_ns[t] += out * goes[t];
    prices.op_ns_per_byte[begin % ops_] += in;
    prices.op_ns_per_byte[last % ops_] += out;
    prices.runs.push_back({{static_cast<std::uint32_t>(begin % ops_)}, {static_cast<std::uint32_t>(last % ops_)}});
  }

  const Trace& trace_;
  const Machine& machine_;
  sim::Step step_;
  std::size_t ops_ = 0;
  std::vector<Cut> cuts_;
  std::vector<Op> again_;  // [op], as a producer
  std::vector<std::vector<std::size_t>> producers_;
  std::vector<std::uint32_t> takers_;
  std::vector<std::size_t> death_, oldest_, priced_;
  std::vector<double> out_bytes_;
  std::vector<std::vector<double>> prices_;
  std::set<std::uint32_t> paged_;
  bool in_place_ = false;  // ops may use operands that are not near
  std::vector<std::vector<char>> next_read_;
  std::vector<double> best_;           // [e]: the most waiting that is proven before op e
  std::vector<std::size_t> begin_of_;  // [e]: of the run that ends there and proves most
};

Nanoseconds bound(const Trace& trace, const Machine& machine, std::size_t most) {
  Nanoseconds time;
  for (const Op& op : trace.ops) time += op.time;
  if (machine.tiers.size() < 2) return time;
  const Machine as_it_runs = on_its_bus(machine);
  const double waiting = Bound(trace, as_it_runs).waiting(most);
  // rounding never makes it too much
  return time + Nanoseconds{static_cast<std::int64_t>(std::max(0.0, waiting * (1 - 1e-9)))};
}

}  // namespace

Nanoseconds lower_bound(const Trace& trace, const Machine& machine) { return bound(trace, machine, most_work); }
Nanoseconds sim::coarse_bound(const Trace& trace, const Machine& machine) {
  return bound(trace, machine, most_coarse_work);
}

MemoryPrices memory_prices(const Trace& trace, const Machine& machine) {
  MemoryPrices prices;
  prices.tensor_ns.resize(trace.tensors.size());
  prices.op_ns_per_byte.resize(trace.ops.size());
  if (machine.tiers.size() < 2) return prices;
  const Machine as_it_runs = on_its_bus(machine);
  Bound bound(trace, as_it_runs);
  prices.waiting_ns = bound.waiting(most_work);
  bound.explain(prices);
  return prices;
}

}  // namespace vedette
