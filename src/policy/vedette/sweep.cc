// The timed walk. Fetches run one after the other from now on. Evicts are placed back into the idle time of their link
// since the tensor's last use, which is known per op ("slots"). A move that does not end in time stretches the op's
// slot, as the stall will.
#include "policy/vedette/sweep.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "policy/canvas/marks.h"
#include "policy/canvas/room.h"

namespace vedette::planning {
namespace {

constexpr std::uint32_t steps = 3;
constexpr std::uint32_t forever = std::numeric_limits<std::uint32_t>::max();
constexpr int candidates = 12;  // victims that are weighed against each other; flat beyond

struct TensorState {
  bool alive = false, near = false, clean = false, kept = false;
  std::uint32_t last = 0, next = forever;  // uses around now, in ops of the walk
  std::uint32_t key = 0;                   // the next use among all operands of the walk
  std::uint32_t gap = forever;             // the open or latest gap
  std::int64_t arrives = 0;                // when its last fetch ends
};

class Sweep {
 public:
  Sweep(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting, const Knobs& knobs)
      : trace_(trace),
        uses_(uses),
        costs_(costs),
        setting_(setting),
        knobs_(knobs),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        operands_(static_cast<std::uint32_t>(uses.op_of.size())),
        room_(copies(costs.occupied)),
        state_(trace.tensors.size()),
        near_(std::size_t{operands_} * (steps + 1) + trace.tensors.size()),
        away_(std::size_t{operands_} * (steps + 1)) {
    const std::size_t slots = std::size_t{ops_} * steps;
    starts_.resize(slots + 1);
    for (std::size_t i = 0; i < slots; ++i) starts_[i + 1] = starts_[i] + trace.ops[i % ops_].time.value;
    idle_.resize(slots);
    skip_.resize(slots + 1);
    for (std::size_t i = 0; i < slots; ++i) idle_[i] = trace.ops[i % ops_].time.value;
    std::iota(skip_.begin(), skip_.end(), 0U);
    budget_ = setting.budget - knobs.staging;
  }

  std::vector<Stay> run() {
    if (knobs_.kept > 0) choose_kept();
    start_away();
    for (std::uint32_t at = 0, end = end_of_middle(); at < end; ++at) visit(at);
    std::vector<Stay> middle;
    for (const Stay& gap : gaps_) {
      if (gap.last_use < ops_ || gap.last_use >= 2 * ops_ || gap.fetch < gap.gone) continue;
      middle.push_back(gap);
    }
    return middle;
  }

 private:
  static std::vector<std::int64_t> copies(const std::vector<std::int64_t>& one) {
    std::vector<std::int64_t> all;
    for (std::uint32_t i = 0; i < steps; ++i) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
  std::int64_t size(std::uint32_t t) const { return costs_.room[t]; }
  // From here on no gap of the middle step changes: what outlives it has been used in the last one.
  std::uint32_t end_of_middle() const {
    std::uint32_t last = 0;
    for (const TensorUses& tensor : uses_.tensors) {
      if (tensor.persistent && !tensor.uses.empty()) last = std::max(last, tensor.uses.front().op + 1);
    }
    return (steps - 1) * ops_ + last;
  }
  // Time at which slot `at` begins: stalls so far are in, stalls to come are not.
  std::int64_t time_of(std::uint32_t at) const {
    return starts_[std::min<std::size_t>(at, starts_.size() - 1)] + stalled_;
  }

  void start_away();
  void visit(std::uint32_t at);
  void note_uses(std::uint32_t at);
  void make_room(std::uint32_t at);
  void prefetch(std::uint32_t at);
  bool room_for(std::uint32_t at, std::uint32_t tensor);
  std::uint32_t victim(std::uint32_t at, std::uint32_t beyond, bool of_all = false);
  void choose_kept();
  std::int64_t evict(std::uint32_t tensor, std::uint32_t at, bool forced);
  void fetch(std::uint32_t tensor, std::uint32_t at);
  void forget(std::uint32_t tensor, std::uint32_t at);
  void clean_ahead(std::uint32_t tensor, std::uint32_t at);
  std::int64_t place_write(std::uint32_t from, std::int64_t work, std::uint32_t* slot);
  std::uint32_t first_idle(std::uint32_t at);
  void set_next(std::uint32_t tensor, std::uint32_t at, std::uint32_t operand);
  std::uint32_t first_operand(std::uint32_t at) const { return at / ops_ * operands_ + uses_.first_operand[at % ops_]; }
  std::uint32_t tensor_at(std::uint32_t key) const {
    if (key >= operands_ * (steps + 1)) return key - operands_ * (steps + 1);
    while (key >= operands_) key -= operands_;
    return uses_.tensor_of[key];
  }
  void stall(std::uint32_t at, std::int64_t until);

  const Trace& trace_;
  const Uses& uses_;
  const Costs& costs_;
  const Setting& setting_;
  const Knobs& knobs_;
  std::uint32_t ops_, operands_;
  Room room_;
  std::int64_t budget_ = 0, stalled_ = 0;
  std::vector<TensorState> state_;
  std::vector<Stay> gaps_;
  std::vector<std::int64_t> starts_;  // ideal start of each slot
  std::vector<std::int64_t> idle_;    // of each slot, the time that the link out has left
  std::vector<std::uint32_t> skip_;   // union-find: next slot with idle time
  std::int64_t reads_end_ = 0;        // when the link in has done all it was given
  Marks near_;                        // keys of possible victims
  Marks away_;                        // keys of tensors that have to come
  std::uint32_t writes_end_ = 0;      // slot in which the last write ends
};

// The use after the one that is operand number `operand` of op `at`.
void Sweep::set_next(std::uint32_t t, std::uint32_t at, std::uint32_t operand) {
  TensorState& state = state_[t];
  const std::uint32_t next = uses_.next[operand];
  if (next == Uses::never) {
    state.next = forever;
    state.key = operands_ * (steps + 1) + t;
  } else {
    const std::uint32_t laps = at / ops_ + (next >= operands_ ? 1 : 0),
                        there = next >= operands_ ? next - operands_ : next;
    state.next = laps * ops_ + uses_.op_of[there];
    state.key = laps * operands_ + there;
  }
}

void Sweep::choose_kept() {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> by_first_use;
  for (std::uint32_t t = 0; t < state_.size(); ++t) {
    const TensorUses& tensor = uses_.tensors[t];
    if (tensor.persistent && !tensor.uses.empty()) by_first_use.emplace_back(tensor.uses.front().op, t);
  }
  std::sort(by_first_use.rbegin(), by_first_use.rend());
  std::int64_t left = knobs_.kept;
  for (const auto& [op, t] : by_first_use) {
    if ((left -= size(t)) < 0) return;
    state_[t].kept = true;
  }
}

void Sweep::start_away() {
  for (std::uint32_t t = 0; t < state_.size(); ++t) {
    if (!uses_.tensors[t].persistent) continue;
    TensorState& state = state_[t];
    state.alive = state.clean = true;
    state.next = uses_.tensors[t].uses.empty() ? forever : uses_.tensors[t].uses.front().op;
    state.key = operands_ * (steps + 1) + t;
    room_.add(0, state.next, -size(t));
    if (state.next == forever) continue;
    const auto operands = uses_.operands[state.next];
    state.key = uses_.first_operand[state.next] +
                static_cast<std::uint32_t>(std::lower_bound(operands.begin(), operands.end(), t) - operands.begin());
    away_.insert(state.key);
  }
}

std::uint32_t Sweep::first_idle(std::uint32_t at) {
  while (skip_[at] != at) at = skip_[at] = skip_[skip_[at]];
  return at;
}

// Takes `work` ns of idle time of the link out, from slot `from` on; the time at which it ends, and the slot.
std::int64_t Sweep::place_write(std::uint32_t from, std::int64_t work, std::uint32_t* slot) {
  const auto slots = static_cast<std::uint32_t>(idle_.size());
  std::uint32_t at = std::min(from, slots);
  for (;;) {
    at = first_idle(at);
    if (at >= slots) {
      *slot = slots;
      return time_of(slots) + work;
    }
    const std::int64_t taken = std::min(work, idle_[at]);
    idle_[at] -= taken;
    work -= taken;
    if (work == 0) break;
    skip_[at] = at + 1;
  }
  *slot = at;
  return time_of(at + 1) - idle_[at];
}

// The op `at` waits until then. The link out gains the op's wait, the link in has its own clock.
void Sweep::stall(std::uint32_t at, std::int64_t until) {
  const std::int64_t wait = until - time_of(at);
  if (wait <= 0) return;
  stalled_ += wait;
  idle_[at] += wait;
  skip_[at] = at;
}

// Sends the tensor away after its last use; the time at which its room is free. A forced one frees it for op `at`.
std::int64_t Sweep::evict(std::uint32_t t, std::uint32_t at, bool forced) {
  TensorState& state = state_[t];
  near_.erase(state.key);
  const std::uint32_t until = state.next == forever ? forever : state.next;
  if (state.gap != forever && gaps_[state.gap].next_use == state.next && gaps_[state.gap].returns) {
    Stay& open = gaps_[state.gap];  // it was fetched and not used since: the fetch is put off
    room_.add(at, until, -size(t));
    open.fetch = open.next_use;
    state.near = false;
    away_.insert(state.key);
    return time_of(at);
  }
  Stay gap{.tensor = t,
           .last_use = state.last,
           .gone = state.last + 1,
           .fetch = until,
           .next_use = until,
           .returns = until != forever,
           .writes = !state.clean};
  std::int64_t free_at = time_of(std::min(at, gap.gone));
  if (gap.writes) {
    const std::int64_t work = costs_.out_ns[t];
    std::uint32_t slot = 0;
    free_at = place_write(gap.gone, work, &slot) + setting_.write_latency.value;
    if (setting_.shared && slot >= at) reads_end_ = std::max(reads_end_, time_of(at)) + work;
    gap.gone = std::max(gap.gone, slot + 1);
    writes_end_ = std::max(writes_end_, slot + 1);
    if (forced) gap.gone = std::min(gap.gone, at);
  }
  if (until != forever && gap.gone >= until) gap.gone = until;
  std::uint32_t gone_until = until;
  if (until == forever && !uses_.tensors[t].persistent) gone_until = at / ops_ * ops_ + uses_.tensors[t].death + 1;
  room_.add(gap.gone, gone_until, -size(t));
  state.near = false;
  state.gap = static_cast<std::uint32_t>(gaps_.size());
  gaps_.push_back(gap);
  if (until != forever) away_.insert(state.key);
  return free_at;
}

void Sweep::fetch(std::uint32_t t, std::uint32_t at) {
  TensorState& state = state_[t];
  away_.erase(state.key);
  room_.add(at, state.next, size(t));
  if (state.gap != forever) gaps_[state.gap].fetch = at;
  const std::int64_t work = costs_.in_ns[t];
  reads_end_ = std::max(reads_end_, time_of(at) + setting_.read_latency.value) + work;
  state.arrives = reads_end_;
  if (setting_.shared) {
    std::uint32_t slot = 0;
    place_write(at, work, &slot);
  }
  state.near = true;
  state.clean = true;
  near_.insert(state.key);
}

// The resident tensor to send away: needed after `beyond`, the furthest of a few, a clean one counting as further;
// forever: none. Tensors without a next use leave first where that costs no write (gradients that came back for the
// optimizer). Else, where it dies in this step, it counts as needed when it dies: until then it would have to be
// written for nothing, while the room that others leave is wanted beyond.
std::uint32_t Sweep::victim(std::uint32_t at, std::uint32_t beyond, bool of_all) {
  std::uint32_t best = forever;
  std::int64_t best_score = -1;
  int looked = 0;
  for (std::uint32_t key = near_.last(); key != Marks::none && looked < candidates; key = near_.before(key)) {
    const std::uint32_t t = tensor_at(key), next = state_[t].next;
    if (next != forever && next <= beyond) break;
    if (!of_all && state_[t].kept) continue;
    if (next == forever && (uses_.tensors[t].persistent || state_[t].clean)) return t;
    const std::uint32_t seen = next == forever ? at / ops_ * ops_ + uses_.tensors[t].death + 1 : next;
    if (seen <= beyond) continue;
    looked += next == forever ? 0 : 1;
    std::int64_t score = time_of(seen) - time_of(at) + (seen >= ops_ * steps ? seen - ops_ * steps : 0);
    if (state_[t].clean) score = score / 100 * knobs_.clean_percent;
    if (score > best_score) best = t, best_score = score;
  }
  return best;
}

void Sweep::make_room(std::uint32_t at) {
  std::int64_t free_at = time_of(at);
  while (room_.at(at) > budget_) {
    std::uint32_t t = victim(at, at);
    if (t == forever && knobs_.kept > 0) t = victim(at, at, true);
    if (t == forever) break;  // the op alone is too large for the sweep's share; the planner's repair decides
    free_at = std::max(free_at, evict(t, at, true));
  }
  stall(at, free_at);
}

// Evicts tensors needed later than this one until it could come; true when its room is free now.
bool Sweep::room_for(std::uint32_t at, std::uint32_t t) {
  const std::uint32_t due = state_[t].next;
  const std::int64_t bytes = size(t);
  if (room_.most(at, due) + bytes <= budget_) return true;
  const std::int64_t distance = time_of(due) - time_of(at);
  if (distance > knobs_.horizon_ns) return false;
  // by then all that is on its way out has gone
  const std::uint32_t later = std::min(due - 1, std::max(at, writes_end_));
  const std::int64_t wanted = time_of(at) + distance / 100 * knobs_.distance_percent;
  const auto beyond =
      static_cast<std::uint32_t>(std::upper_bound(starts_.begin(), starts_.end(), wanted - stalled_) - starts_.begin());
  while (room_.most(later, due) + bytes > budget_) {
    const std::uint32_t out = victim(at, std::max(due, beyond));
    if (out == forever) return false;
    evict(out, at, false);
  }
  return room_.most(at, due) + bytes <= budget_;
}

void Sweep::prefetch(std::uint32_t at) {
  while (reads_end_ < time_of(at + 1)) {
    const std::uint32_t key = away_.first();
    if (key == Marks::none) return;
    const std::uint32_t t = tensor_at(key);
    if (!room_for(at, t)) return;
    fetch(t, at);
  }
}

void Sweep::forget(std::uint32_t t, std::uint32_t at) {
  TensorState& state = state_[t];
  if (state.near) near_.erase(state.key);
  if (!state.near && state.gap != forever && gaps_[state.gap].next_use == forever)
    gaps_[state.gap].next_use = gaps_[state.gap].fetch = at;
  state = {};
}

// A tensor that was changed just now and is only read next: going out and coming back while both links are idle makes
// it clean. The pressure of the gap after that costs no write. Weights after the optimizer are such, and gradients
// before it, which then leave for nothing as soon as they are used, although they live to the step's end.
void Sweep::clean_ahead(std::uint32_t t, std::uint32_t at) {
  const TensorState& state = state_[t];
  const TensorUses& tensor = uses_.tensors[t];
  const bool unused = !tensor.persistent && tensor.uses.back().op < tensor.death;
  const std::int64_t ahead = tensor.persistent ? knobs_.clean_ahead_ns : unused ? knobs_.clean_after_last_use_ns : -1;
  if (state.clean || ahead < 0 || state.next == forever) return;
  if (time_of(writes_end_) > time_of(at + 1) + ahead) return;
  if (uses_.changes[state.key % operands_]) return;
  const std::int64_t trip = costs_.out_ns[t] + costs_.in_ns[t];
  constexpr std::int64_t trips = 8;  // shorter gaps are left alone: measured at 2 and 8
  if (time_of(state.next) - time_of(at) > trips * trip) evict(t, at + 1, false);
}

void Sweep::note_uses(std::uint32_t at) {
  const std::uint32_t op = at % ops_;
  for (TensorIndex t : trace_.ops[op].writes) state_[t.value].clean = false;
  std::uint32_t operand = uses_.first_operand[op];
  for (std::uint32_t t : uses_.operands[op]) {
    state_[t].last = at;
    set_next(t, at, operand++);
    near_.insert(state_[t].key);
  }
  for (std::uint32_t t : uses_.deaths[op]) forget(t, at + 1);
  if (knobs_.clean_ahead_ns < 0 && knobs_.clean_after_last_use_ns < 0) return;
  for (TensorIndex t : trace_.ops[op].writes) clean_ahead(t.value, at);
}

void Sweep::visit(std::uint32_t at) {
  const std::uint32_t op = at % ops_;
  std::int64_t ready = 0;
  for (std::uint32_t t : uses_.births[op])
    state_[t] = {.alive = true, .near = true, .clean = false, .last = at, .next = at};
  const std::uint32_t first = first_operand(at);
  // operands of this op are no victims
  for (std::uint32_t k = 0; k < uses_.operands[op].size(); ++k) near_.erase(first + k);
  make_room(at);
  for (std::uint32_t t : uses_.operands[op]) {
    if (state_[t].near) continue;
    fetch(t, at);
    near_.erase(state_[t].key);
  }
  for (std::uint32_t t : uses_.operands[op]) ready = std::max(ready, state_[t].arrives);
  stall(at, ready);
  for (std::uint32_t t : uses_.operands[op]) state_[t].arrives = std::numeric_limits<std::int64_t>::min() / 2;
  prefetch(at);
  note_uses(at);
}

std::vector<std::int64_t> rooms_of(const Trace& trace, std::uint64_t granule) {
  std::vector<std::int64_t> rooms;
  rooms.reserve(trace.tensors.size());
  for (const Tensor& tensor : trace.tensors)
    rooms.push_back(static_cast<std::int64_t>(rounded(tensor.bytes.value, granule)));
  return rooms;
}

std::vector<std::int64_t> occupied_by(const Trace& trace, const Uses& uses, const std::vector<std::int64_t>& rooms) {
  std::vector<std::int64_t> occupied(trace.ops.size());
  std::int64_t live = 0;
  for (std::uint32_t t = 0; t < uses.tensors.size(); ++t) live += uses.tensors[t].persistent ? rooms[t] : 0;
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    for (std::uint32_t t : uses.births[op]) live += rooms[t];
    occupied[op] = live + static_cast<std::int64_t>(trace.ops[op].workspace.value);
    for (std::uint32_t t : uses.deaths[op]) live -= rooms[t];
  }
  return occupied;
}

}  // namespace

std::vector<std::int64_t> occupied_without_moves(const Trace& trace, const Uses& uses, std::uint64_t granule) {
  return occupied_by(trace, uses, rooms_of(trace, granule));
}

Costs costs_of(const Trace& trace, const Uses& uses, const Setting& setting) {
  Costs costs{.room = rooms_of(trace, setting.granule)};
  const std::size_t tensors = trace.tensors.size();
  costs.in_ns.resize(tensors), costs.out_ns.resize(tensors);
  for (std::size_t t = 0; t < tensors; ++t) {
    const Bytes bytes = trace.tensors[t].bytes;
    if (t > 0 && bytes == trace.tensors[t - 1].bytes) {  // parts of one tensor, mostly
      costs.in_ns[t] = costs.in_ns[t - 1], costs.out_ns[t] = costs.out_ns[t - 1];
      continue;
    }
    costs.in_ns[t] = transfer_time(bytes, setting.read_bytes_per_s).value;
    costs.out_ns[t] = setting.read_bytes_per_s == setting.write_bytes_per_s
                          ? costs.in_ns[t]
                          : transfer_time(bytes, setting.write_bytes_per_s).value;
  }
  costs.occupied = occupied_by(trace, uses, costs.room);
  return costs;
}

std::vector<Stay> sweep(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting,
                        const Knobs& knobs) {
  if (trace.ops.empty()) return {};
  return Sweep(trace, uses, costs, setting, knobs).run();
}

}  // namespace vedette::planning
