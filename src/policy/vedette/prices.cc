// Stretches, the lives of tensors in them, the least cost of each, and the prices.
#include "policy/vedette/prices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "policy/canvas/op_times.h"

namespace vedette::planning {
namespace {

// Of equal times. Fewer are faster; with 36 the choices leave out peaks that the moves then have to go around.
constexpr std::uint32_t most_stretches = 72;
constexpr int passes = 120, warm_passes = 40;  // warm: from prices of nearly the same memory
// of a price's unit, which becomes shorter with each pass
constexpr double first_step = 0.08, first_warm_step = 0.03, last_step = 0.006;
constexpr double kept_mean = 0.5, kept_square = 0.9;  // of slopes, by a pass
constexpr double early_part = 0.3;  // of the mean way that a pass replaces; in the second half all count the same
constexpr double infinite = 1e300;
constexpr std::uint32_t no_gap = std::numeric_limits<std::uint32_t>::max();

// At the first op of a stretch a tensor is near and nowhere else, near and copied, away, or gone.
enum State : std::uint8_t { near, copied, away, gone, states };
enum Event : std::uint8_t { fetched = 1, written = 2, made = 4 };

struct Slot {  // a stretch in the life of a tensor
  std::uint32_t stretch = 0;
  bool held = false, held_write = false;                   // by the stretch's first op
  bool used = false, reads_first = false, writes = false;  // by later ones
  std::uint32_t gap_before = no_gap;                       // that ends with the first use after the stretch's first op
  bool may_go = false;  // the gap after the last use in it can be bridged by a producer
};

struct Life {
  double bytes = 0, in_ns = 0, out_ns = 0;
  std::size_t first = 0, end = 0;  // slots
  bool persistent = false;
  double count = 1;  // of tensors with the same life
};

struct Wants {  // of a stretch
  std::vector<double> bytes, in_ns, out_ns, made_ns;
  explicit Wants(std::size_t stretches) : bytes(stretches), in_ns(stretches), out_ns(stretches), made_ns(stretches) {}
};

struct Slope {  // of the dual in one price: means over passes
  double mean = 0, square = 0;
};

struct Slopes {  // [stretch]
  std::vector<Slope> byte, in, out;
  explicit Slopes(std::size_t stretches) : byte(stretches), in(stretches), out(stretches) {}
};

using Prices = StretchPrices;

struct Back {  // of each state at a stretch's end: the one at its beginning, and what happened
  std::array<std::uint8_t, states> from{}, events{};
};

class Pricing {
 public:
  Pricing(const Trace& trace, const Uses& uses, const Setting& setting, const std::vector<GapToMakeAgain>& gaps)
      : trace_(trace), uses_(uses), setting_(setting), gaps_(gaps), ops_(static_cast<std::uint32_t>(trace.ops.size())) {
    cut();
    unit_ = 6e9 / static_cast<double>(std::max<std::uint64_t>(setting_.read_bytes_per_s, 1)) /
            static_cast<double>(check_.size());
    as_.resize(gaps_.size());
    std::iota(as_.begin(), as_.end(), 0U);
    for (std::uint32_t g = 0; g < gaps_.size(); ++g) gap_at_[{gaps_[g].tensor, gaps_[g].last}] = g;
    for (std::uint32_t t = 0; t < uses_.tensors.size(); ++t) add_life(t);
  }

  Priced run(const Prices& start);

 private:
  void cut();
  void add_life(std::uint32_t tensor);
  bool joins_another(const Life& life);
  void find_uses(const TensorUses& tensor, std::uint32_t t, std::uint32_t first, std::size_t at);
  double least(const Life& life, const Prices& prices, Wants& wants, std::vector<double>& chosen);
  double walk(const Life& life, const Prices& prices, State start);
  std::array<double, 3> around(const Life& life, const Prices& prices) const;
  void step(const Life& life, const Slot& slot, const Prices& prices, std::array<double, states>& cost, std::size_t k);
  void trace_back(const Life& life, State end, Wants& wants, std::vector<double>& chosen) const;
  void idle(const Life& life, const Slot& slot, const Prices& prices, std::array<double, states>& cost, Back& back);
  double made_again(const Slot& slot, const Prices& prices) const {
    if (slot.gap_before == no_gap) return infinite;
    const double links = prices.in[slot.stretch] + (setting_.shared ? 0 : prices.out[slot.stretch]);
    return gaps_[slot.gap_before].ns * std::max(0.0, 1 - links);
  }
  double solve(const Prices& prices, Wants& wants, std::vector<double>& chosen);
  void raise(Prices& now, Slopes& slopes, const Wants& wants, int pass, double step) const;
  double made_ns(const Slot& slot) const { return slot.gap_before == no_gap ? infinite : gaps_[slot.gap_before].ns; }

  const Trace& trace_;
  const Uses& uses_;
  const Setting& setting_;
  const std::vector<GapToMakeAgain>& gaps_;
  const std::uint32_t ops_;
  std::vector<std::uint32_t> check_, stretch_of_;  // [stretch]: its first op; [op]
  std::vector<double> time_, room_;                // [stretch]
  double unit_ = 0;  // of a byte's price: half of it for a byte to go and come in a few stretches
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> gap_at_;
  std::vector<Slot> slots_;
  std::vector<Life> lives_;
  std::map<std::vector<std::uint64_t>, std::size_t> alike_;  // of lives_, by what they are
  std::vector<std::uint32_t> as_;                            // [gap]: the one of the same life that stands for it
  std::vector<Back> back_;                                   // [slot]
  State ends_ = near;                                        // of a life that was walked
};

// Of equal times each begins with the op at which most lives.
void Pricing::cut() {
  const std::vector<std::int64_t> occupied = occupied_without_moves(trace_, uses_, setting_.granule);
  const std::int64_t all = time_of_ops(trace_).value;
  std::int64_t now = 0;
  std::uint32_t piece = no_gap;
  for (std::uint32_t op = 0; op < ops_; ++op) {
    const auto here = static_cast<std::uint32_t>(static_cast<double>(now) /
                                                 static_cast<double>(std::max<std::int64_t>(all, 1)) * most_stretches);
    if (here != piece) check_.push_back(op);
    piece = here;
    if (occupied[op] > occupied[check_.back()]) check_.back() = op;
    now += trace_.ops[op].time.value;
  }
  stretch_of_.resize(ops_);
  time_.resize(check_.size());
  for (std::uint32_t op = 0, s = static_cast<std::uint32_t>(check_.size()) - 1; op < ops_; ++op) {
    if (const std::uint32_t next = s + 1 == check_.size() ? 0 : s + 1; op == check_[next]) s = next;
    stretch_of_[op] = s;
    time_[s] += static_cast<double>(trace_.ops[op].time.value);
  }
  for (const std::uint32_t op : check_) {
    double room = static_cast<double>(setting_.budget) - static_cast<double>(trace_.ops[op].workspace.value);
    for (const std::uint32_t t : uses_.operands[op])
      room -= static_cast<double>(rounded(trace_.tensors[t].bytes.value, setting_.granule));
    room_.push_back(room);
  }
}

void Pricing::add_life(std::uint32_t t) {
  const TensorUses& tensor = uses_.tensors[t];
  if (tensor.uses.empty()) return;
  const auto count = static_cast<std::uint32_t>(check_.size());
  const std::uint32_t begin = tensor.persistent ? 0 : stretch_of_[tensor.uses.front().op];
  // ops before the first check belong to the last stretch, of the step before; lives do not go round, so they begin
  // late
  std::uint32_t first = begin, length = count;
  if (!tensor.persistent) {
    const std::uint32_t last = stretch_of_[tensor.uses.back().op];
    if (tensor.uses.front().op < check_.front()) {
      if (tensor.uses.back().op < check_.front()) return;
      first = count - 1;
      length = last + 2;
      if (last == count - 1) length = count;
    } else {
      length = last - first + 1;
    }
    if (length == 1) return;
  }
  const Bytes bytes = trace_.tensors[t].bytes;
  Life life{.bytes = static_cast<double>(rounded(bytes.value, setting_.granule)),
            .in_ns = static_cast<double>(transfer_time(bytes, setting_.read_bytes_per_s).value),
            .out_ns = static_cast<double>(transfer_time(bytes, setting_.write_bytes_per_s).value),
            .first = slots_.size(),
            .end = slots_.size() + length,
            .persistent = tensor.persistent};
  for (std::uint32_t k = 0; k < length; ++k) slots_.push_back({.stretch = (first + k) % count});
  find_uses(tensor, t, first, life.first);
  if (!joins_another(life)) lives_.push_back(life);
  back_.resize(slots_.size());
}

// Tensors of one size that are used in the same stretches, and made again in the same time, have one way together.
bool Pricing::joins_another(const Life& life) {
  std::vector<std::uint64_t> key{std::bit_cast<std::uint64_t>(life.bytes), life.persistent ? 1U : 0U,
                                 slots_[life.first].stretch};
  for (std::size_t k = life.first; k < life.end; ++k) {
    const Slot& slot = slots_[k];
    key.push_back((slot.held ? 1U : 0U) + (slot.held_write ? 2U : 0U) + (slot.used ? 4U : 0U) +
                  (slot.reads_first ? 8U : 0U) + (slot.writes ? 16U : 0U) + (slot.may_go ? 32U : 0U));
    key.push_back(std::bit_cast<std::uint64_t>(made_ns(slot)));
  }
  const auto [found, is_new] = alike_.try_emplace(std::move(key), lives_.size());
  if (is_new) return false;
  Life& other = lives_[found->second];
  other.count += 1;
  for (std::size_t k = 0; k < life.end - life.first; ++k) {
    if (const std::uint32_t gap = slots_[life.first + k].gap_before; gap != no_gap)
      as_[gap] = slots_[other.first + k].gap_before;
  }
  slots_.resize(life.first);
  return true;
}

void Pricing::find_uses(const TensorUses& tensor, std::uint32_t t, std::uint32_t first, std::size_t at) {
  const auto count = static_cast<std::uint32_t>(check_.size());
  const std::size_t length = slots_.size() - at;
  for (std::uint32_t u = 0; u < tensor.uses.size(); ++u) {
    const std::uint32_t op = tensor.uses[u].op, s = stretch_of_[op];
    std::size_t k = (s + count - first) % count;
    if (!tensor.persistent && op >= check_.front() && k < length && first == count - 1 && s == count - 1)
      k = length - 1;
    if (k >= length) continue;
    Slot& slot = slots_[at + k];
    const auto& reads = trace_.ops[op].reads;
    const bool read = std::binary_search(reads.begin(), reads.end(), TensorIndex{t});
    if (op == check_[s]) {
      slot.held = true;
      slot.held_write = tensor.uses[u].write;
    } else {
      if (!slot.used) slot.reads_first = read;
      slot.used = true;
      slot.writes = slot.writes || tensor.uses[u].write;
    }
    const auto gap = gap_at_.find({t, op});
    slot.may_go = gap != gap_at_.end();
    if (gap == gap_at_.end()) continue;
    const std::uint32_t until = stretch_of_[gaps_[gap->second].next];
    const std::size_t end = (until + count - first) % count;
    for (std::size_t k2 = k + (op == check_[s] ? 0 : 1); k2 <= std::min(end, length - 1); ++k2)
      slots_[at + k2].gap_before = gap->second;
    if (end < length && gaps_[gap->second].next == check_[until] && end > 0 &&
        slots_[at + end].gap_before == gap->second)
      slots_[at + end].gap_before = no_gap;
  }
}

void Pricing::step(const Life& life, const Slot& slot, const Prices& prices, std::array<double, states>& cost,
                   std::size_t k) {
  Back& back = back_[k];
  for (std::uint8_t s = 0; s < states; ++s) back.from[s] = s, back.events[s] = 0;
  const double fetch = life.in_ns * prices.in[slot.stretch], write = life.out_ns * prices.out[slot.stretch];
  if (!slot.held && !slot.used) {
    const double charge = life.bytes * prices.byte[slot.stretch];
    cost[near] += charge, cost[copied] += charge;
    return idle(life, slot, prices, cost, back);
  }
  const double again = made_again(slot, prices);
  const auto better = [&](State to, State from, double more, std::uint8_t event) {
    if (cost[from] + more >= cost[to]) return;
    cost[to] = cost[from] + more;
    back.events[to] = back.events[from] | event;
    back.from[to] = back.from[from];
  };
  const auto forbid = [&](State state) { cost[state] = infinite; };
  if (slot.held) {
    forbid(away), forbid(gone);
    if (slot.held_write) better(near, copied, 0, 0), forbid(copied);
  } else {
    const double charge = life.bytes * prices.byte[slot.stretch];
    cost[near] += charge, cost[copied] += charge;
  }
  if (slot.used) {
    if (slot.reads_first) {
      better(copied, away, std::min(fetch, again), fetch <= again ? fetched : made);
      if (again < infinite) better(near, gone, again, made);
    } else {
      better(near, away, 0, 0), better(near, gone, 0, 0);
    }
    forbid(away), forbid(gone);
    if (slot.writes) better(near, copied, 0, 0), forbid(copied);
    if (slot.may_go) better(gone, near, 0, 0);
    better(away, copied, 0, 0);
    better(away, near, write, written);
    return;
  }
  idle(life, slot, prices, cost, back);
}

// A stretch without uses: a tensor may leave, come back, both, or neither.
void Pricing::idle(const Life& life, const Slot& slot, const Prices& prices, std::array<double, states>& cost,
                   Back& back) {
  const std::uint32_t s = slot.stretch;
  const double fetch = life.in_ns * prices.in[s], write = life.out_ns * prices.out[s];
  const double n = cost[near], c = cost[copied], a = cost[away];
  const auto take = [&](State to, State from, double value, std::uint8_t event) {
    if (value < cost[to]) cost[to] = value, back.from[to] = from, back.events[to] = event;
  };
  take(away, copied, c, 0);
  take(away, near, n + write, written);
  take(copied, near, n + write, written);
  take(copied, away, a + fetch, fetched);
  if (slot.gap_before == no_gap) return;
  const double again = made_again(slot, prices), g = cost[gone];
  take(gone, near, n, 0);
  take(copied, away, a + again, made);
  take(near, gone, g + again, made);
}

double Pricing::walk(const Life& life, const Prices& prices, State start) {
  std::array<double, states> cost{infinite, infinite, infinite, infinite};
  cost[start] = 0;
  for (std::size_t k = life.first; k < life.end; ++k) {
    Slot slot = slots_[k];
    if (!life.persistent && k == life.first) {  // born in it: no charge, and never fetched
      slot.held = true;
      slot.held_write = slot.reads_first = false;
    }
    if (k + 1 == life.end && !life.persistent) slot.may_go = false;
    step(life, slot, prices, cost, k);
  }
  const auto least = std::min_element(cost.begin(), cost.end());
  ends_ = static_cast<State>(least - cost.begin());
  return *least;
}

// The least cost of a tensor that outlives the step, from near, copied or away to the same: as walk() has it, all three
// at once and without the way. It is never made again.
std::array<double, 3> Pricing::around(const Life& life, const Prices& prices) const {
  std::array<std::array<double, 3>, 3> starts{
      {{0, infinite, infinite}, {infinite, 0, infinite}, {infinite, infinite, 0}}};
  for (std::size_t k = life.first; k < life.end; ++k) {
    const Slot& slot = slots_[k];
    const double charge = life.bytes * prices.byte[slot.stretch], fetch = life.in_ns * prices.in[slot.stretch],
                 write = life.out_ns * prices.out[slot.stretch];
    for (auto& [n, c, a] : starts) {
      if (slot.held) a = infinite;
      if (!slot.held) n += charge, c += charge;
      if (slot.held_write) n = std::min(n, c), c = infinite;
      if (slot.used) {
        if (slot.reads_first) c = std::min(c, a + fetch);
        if (!slot.reads_first) n = std::min(n, a);
        if (slot.writes) n = std::min(n, c), c = infinite;
        a = std::min(c, n + write);
        continue;
      }
      const double was_copied = c;
      c = std::min({c, n + write, a + fetch});
      a = std::min({a, was_copied, n + write});
    }
  }
  return {starts[near][near], starts[copied][copied], starts[away][away]};
}

void Pricing::trace_back(const Life& life, State end, Wants& wants, std::vector<double>& chosen) const {
  std::uint8_t state = end;
  for (std::size_t k = life.end; k-- > life.first;) {
    const Slot& slot = slots_[k];
    const std::uint32_t s = slot.stretch;
    const std::uint8_t events = back_[k].events[state];
    if ((events & fetched) != 0) wants.in_ns[s] += life.count * life.in_ns;
    if ((events & written) != 0) wants.out_ns[s] += life.count * life.out_ns;
    if ((events & made) != 0) {
      wants.made_ns[s] += life.count * made_ns(slot);
      chosen[slot.gap_before] = 1;
    }
    state = back_[k].from[state];
    const bool charged = !slot.held && (life.persistent || k != life.first);
    if (charged && (state == near || state == copied)) wants.bytes[s] += life.count * life.bytes;
  }
}

double Pricing::least(const Life& life, const Prices& prices, Wants& wants, std::vector<double>& chosen) {
  if (life.persistent) {
    const std::array<double, 3> costs = around(life, prices);
    const auto start = static_cast<State>(std::min_element(costs.begin(), costs.end()) - costs.begin());
    walk(life, prices, start);
    trace_back(life, start, wants, chosen);
    return costs[start];
  }
  const double best = walk(life, prices, near);
  trace_back(life, ends_, wants, chosen);
  return best;
}

double Pricing::solve(const Prices& prices, Wants& wants, std::vector<double>& chosen) {
  double sum = 0;
  for (const Life& life : lives_) sum += life.count * least(life, prices, wants, chosen);
  for (std::size_t s = 0; s < check_.size(); ++s)
    sum -= prices.byte[s] * room_[s] + (prices.in[s] + (setting_.shared ? 0 : prices.out[s])) * time_[s];
  return sum;
}

// Each price has steps of its own length, by the size of its slopes so far, which become shorter.
void Pricing::raise(Prices& now, Slopes& slopes, const Wants& wants, int pass, double step) const {
  const std::size_t count = check_.size();
  const auto follow = [&](Slope& slope, double value) {
    slope.mean += (value - slope.mean) * (1 - kept_mean);
    slope.square += (value * value - slope.square) * (1 - kept_square);
    return slope.square;
  };
  double bytes = 0, links = 0;  // squares
  for (std::size_t s = 0; s < count; ++s) {
    bytes += follow(slopes.byte[s], wants.bytes[s] - room_[s]);
    links += follow(slopes.in[s], wants.in_ns[s] - time_[s] - wants.made_ns[s]);
    links += follow(slopes.out[s], wants.out_ns[s] - time_[s] - wants.made_ns[s]);
  }
  const double least_bytes = 0.1 * std::sqrt(bytes / static_cast<double>(count)),
               least_links = 0.1 * std::sqrt(links / static_cast<double>(2 * count));
  const double correction = std::sqrt(1 - std::pow(kept_square, pass + 1)) / (1 - std::pow(kept_mean, pass + 1));
  const auto moved = [&](double price, const Slope& slope, double unit, double least) {
    const double length = std::sqrt(slope.square) + least;
    return length > 0 ? std::max(0.0, price + step * unit * correction * slope.mean / length) : price;
  };
  for (std::size_t s = 0; s < count; ++s) {
    now.byte[s] = moved(now.byte[s], slopes.byte[s], unit_, least_bytes);
    double p = moved(now.in[s], slopes.in[s], 1, least_links), q = moved(now.out[s], slopes.out[s], 1, least_links);
    if (setting_.shared) {
      p = q = std::min(1.0, (p + q) / 2);
    } else if (const double over = p + q - 1; over > 0) {
      p -= over / 2, q -= over / 2;
      if (p < 0) p = 0, q = 1;
      if (q < 0) q = 0, p = 1;
    }
    now.in[s] = p, now.out[s] = q;
  }
}

Priced Pricing::run(const Prices& start) {
  const std::size_t count = check_.size();
  const bool warm = start.byte.size() == count;
  Prices now{std::vector<double>(count, unit_ / 20), std::vector<double>(count, 0.025),
             std::vector<double>(count, 0.025)};
  if (warm) now = start;
  Slopes slopes(count);
  Prices best = now;
  std::vector<double> shares(gaps_.size());
  double most = -infinite;
  const int all = warm ? warm_passes : passes;
  const double first = warm ? first_warm_step : first_step;
  for (int pass = 0; pass < all; ++pass) {
    Wants wants(count);
    std::vector<double> chosen(gaps_.size());
    const double value = solve(now, wants, chosen);
    if (value > most) most = value, best = now;
    const double part = pass < all / 2 ? early_part : 1.0 / (pass - all / 2 + 1);
    for (std::size_t g = 0; g < shares.size(); ++g) shares[g] += (chosen[g] - shares[g]) * part;
    raise(now, slopes, wants, pass, first * std::pow(last_step / first, static_cast<double>(pass) / all));
  }
  for (std::size_t g = 0; g < shares.size(); ++g) shares[g] = shares[as_[g]];
  return {.prices = best, .shares = std::move(shares), .waiting_ns = most};
}

}  // namespace

Priced price(const Trace& trace, const Uses& uses, const Setting& setting, const std::vector<GapToMakeAgain>& gaps,
             const StretchPrices& start) {
  if (trace.ops.empty()) return {};
  return Pricing(trace, uses, setting, gaps).run(start);
}

}  // namespace vedette::planning
