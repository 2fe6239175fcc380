// The driver that G10's artifact simulates (platformxlab/G10, MICRO'23: src/simulationEvents.cc,
// simulationComponents.cc), in blocks of Plan::block in place of pages of 4 KiB. It differs from the simulator next
// door in what its authors decided:
//
// - Every tick moves one block's worth a link. First what was told to leave, then what the op at hand faulted on,
//   slowest tier first, then its births, then fetches ahead, then births ahead; each queue in order. What is queued
//   stays queued, whoever wants something else.
// - A block is in one place. The victim of a full fast tier is the block that *arrived* first, operands of the op at
//   hand included: those come back as faults of it. With a window, what the driver was asked for ahead throws out
//   nothing that the next ops use, and waits.
// - An op that misses nothing but what is on its way runs meanwhile: it ends at the later of the last arrival and its
//   begin plus its own time. What it misses and nobody asked for adds its bytes over the link, births included (the
//   artifact's performance_model; its kernels' times with page faults come out as 0 there, so the bytes alone count).
//
// Changed: ops' workspaces that are no tensors (workspaces_as_tensors) take room for the op and cost nothing else; a
// full host changes places with what comes from it, where the artifact sends one page of a batch of 50 to the disk;
// latencies do not exist there, nor here.
#include "sim/pager.h"

#include <algorithm>
#include <deque>
#include <string>

namespace vedette::sim {
namespace {

constexpr std::uint32_t none = ~0U;
constexpr std::uint8_t nowhere = 0xFF;

struct Block {
  std::uint32_t tensor = 0;
  Span<std::uint64_t> bytes;                  // of the tensor
  std::uint32_t before = none, after = none;  // in the order of arrival, while it lies in the fastest tier
  std::uint8_t tier = nowhere;
  bool queued = false;   // in one of the queues: nobody else moves it
  bool awaited = false;  // and the op at hand waits for it

  std::uint64_t size() const { return bytes.end - bytes.begin; }
};

// What a link, or the bus that several share, may still carry in this tick; a block that begins may overdraw it.
struct Meter {
  std::uint64_t bytes_per_s = 0;  // 0: no limit
  std::int64_t left = 0;
};

class Pager {
 public:
  Pager(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan, const ReplayOptions& options,
        Policy* policy)
      : trace_(trace),
        step_(step),
        machine_(machine),
        plan_(plan),
        options_(options),
        policy_(policy),
        used_(machine.tiers.size()) {}

  Result<Replayed> run(bool* replan);

 private:
  using Queue = std::deque<std::uint32_t>;

  std::optional<Error> prepare();
  void prepare_links();
  void cut_blocks();
  void find_runs();
  std::optional<Error> run_step(bool measured);
  std::optional<Error> run_op(std::uint32_t op);
  std::optional<Error> wait(std::uint32_t op);
  void look_at(std::uint32_t op);
  Reaction tell(const Event& event);
  void hint(const Move& move);
  bool arrived(std::uint32_t op) const;
  std::int64_t fault(std::uint32_t op);
  void bury(std::uint32_t op);
  void draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end);
  void draw_move(const Block& block, std::uint8_t source, std::uint8_t target);

  // The driver.
  static bool any(const std::vector<Queue>& queues);
  bool faulting() const { return !faulted_births_.empty() || any(faulted_); }
  bool busy() const;
  void advance_to(std::int64_t time);
  bool tick();
  void evict_as_told();
  void fetch_from(Queue& queue, std::uint8_t tier, bool faulted);
  void bear(Queue& queue, bool faulted);
  bool make_room(std::uint64_t bytes, bool faulted);
  std::uint32_t victim(bool faulted);
  bool may_evict() const;
  std::uint8_t place_for(std::uint64_t bytes, std::uint8_t wanted) const;
  void evict(std::uint32_t index, std::uint8_t target);
  void enqueue(std::uint32_t index, Queue& queue, bool awaited);
  void settle(std::uint32_t index);
  void await(Block& block);
  void await_no_more(Block& block);
  void arrives(std::uint32_t index);
  void leaves(std::uint32_t index);
  bool alive(std::uint32_t tensor) const {
    return persistent(tensor) || (born_[tensor] <= op_ && op_ <= dies_[tensor]);
  }
  bool persistent(std::uint32_t tensor) const {
    return tensor < trace_.tensors.size() && trace_.tensors[tensor].persistent;
  }
  bool fits(std::uint64_t bytes) const { return used_[0] + bytes <= machine_.tiers[0].capacity.value; }
  Meter* meter(std::uint8_t source, std::uint8_t target, bool bus) const;
  bool open(std::uint8_t source, std::uint8_t target) const;
  void carry(const Block& block, std::uint8_t source, std::uint8_t target);

  const Trace& trace_;
  const Step& step_;
  const Machine& machine_;
  const Plan& plan_;
  const ReplayOptions& options_;
  Policy* policy_;

  std::vector<Block> blocks_;
  std::vector<Span<std::uint32_t>> of_tensor_;
  std::vector<std::vector<std::uint32_t>> needs_;       // [op]: tensors, read ones first; a workspace last
  std::vector<std::vector<Span<std::uint32_t>>> runs_;  // [op]: blocks of those that it touches, in the same order
  std::vector<std::uint32_t> born_, dies_;              // [tensor]: first and last op
  std::vector<std::uint64_t> used_;                     // [tier]
  // of the blocks in the fastest tier, by arrival; where the next victim is looked for
  std::uint32_t first_ = none, last_ = none, base_ = none;
  std::vector<Queue> leaving_, faulted_, fetched_;  // [tier]: to it, from it, from it
  Queue faulted_births_, births_;
  // [block]: the serial number of the op at hand, where it or its window needs it
  std::vector<std::uint64_t> needed_at_, window_at_;
  std::uint64_t serial_ = 0, awaited_ = 0;
  std::uint32_t op_ = 0;
  bool waiting_ = false, moved_ = false;

  mutable std::vector<Meter> meters_;
  std::vector<std::uint32_t> link_meter_, bus_meter_;  // [source x target]
  std::int64_t now_ = 0, next_tick_ = 0, tick_ns_ = 1;

  bool measuring_ = false;
  std::uint64_t step_number_ = 0;
  std::int64_t step_began_ = 0;
  std::vector<TierIndex> where_;
  std::vector<Bytes> room_;
  Replayed result_;
};

// ---- before the first step ----

void Pager::prepare_links() {
  const std::size_t tiers = machine_.tiers.size();
  link_meter_.assign(tiers * tiers, none);
  bus_meter_.assign(tiers * tiers, none);
  std::uint64_t fastest = 0;
  for (const Link& link : machine_.links) {
    const std::size_t at = link.source.value * tiers + link.target.value;
    link_meter_[at] = static_cast<std::uint32_t>(meters_.size());
    meters_.push_back({.bytes_per_s = link.bytes_per_s});
    fastest = std::max(fastest, link.bytes_per_s);
  }
  for (const Link& link : machine_.links) {
    if (!link.shared) continue;
    std::uint64_t speed = 0;
    std::uint32_t bus = static_cast<std::uint32_t>(meters_.size());
    for (const Link& other : machine_.links) {
      if (other.shared != link.shared) continue;
      speed = std::max(speed, other.bytes_per_s);
      const std::uint32_t known = bus_meter_[other.source.value * tiers + other.target.value];
      if (known != none) bus = known;
    }
    if (bus == meters_.size()) meters_.push_back({.bytes_per_s = speed});
    bus_meter_[link.source.value * tiers + link.target.value] = bus;
  }
  if (fastest != 0) tick_ns_ = std::max<std::int64_t>(1, transfer_time(plan_.block, fastest).value);
}

void Pager::cut_blocks() {
  const auto cut = [&](std::uint32_t tensor, std::uint64_t bytes, std::uint64_t block) {
    of_tensor_.push_back({static_cast<std::uint32_t>(blocks_.size()), 0});
    for (std::uint64_t at = 0; at < bytes; at += block)
      blocks_.push_back({.tensor = tensor, .bytes = {at, std::min(bytes, at + block)}});
    of_tensor_.back().end = static_cast<std::uint32_t>(blocks_.size());
  };
  for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) cut(t, trace_.tensors[t].bytes.value, plan_.block.value);
  const auto tensors = static_cast<std::uint32_t>(trace_.tensors.size());
  born_.assign(tensors, 0);
  dies_.assign(tensors, none);
  for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
    for (const std::uint32_t t : step_.births[i]) born_[t] = i;
    for (const std::uint32_t t : step_.deaths[i]) dies_[t] = i;
    needs_.emplace_back();
    for (const bool read : {true, false}) {
      for (const Operand& each : step_.operands[i]) {
        if (each.read == read) needs_[i].push_back(each.tensor);
      }
    }
    const std::uint64_t workspace = trace_.ops[i].workspace.value;
    if (workspace == 0) continue;
    needs_[i].push_back(static_cast<std::uint32_t>(of_tensor_.size()));
    cut(needs_[i].back(), workspace, plan_.block.value);
    born_.push_back(i);
    dies_.push_back(i);
  }
}

// Where pages were tracked, an op touches the blocks that hold them; else all of each operand.
void Pager::find_runs() {
  runs_.resize(trace_.ops.size());
  std::size_t first = 0;
  for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
    while (first < trace_.pages.size() && trace_.pages[first].op.value < i) ++first;
    for (const std::uint32_t t : needs_[i]) {
      bool tracked = false;
      std::uint32_t from = of_tensor_[t].begin;
      for (std::size_t a = first; a < trace_.pages.size() && trace_.pages[a].op.value == i; ++a) {
        if (trace_.pages[a].tensor.value != t) continue;
        tracked = true;
        const std::uint64_t page = trace_.page_bytes.value, block = plan_.block.value;
        const auto begin = static_cast<std::uint32_t>(trace_.pages[a].pages.begin * page / block),
                   end = static_cast<std::uint32_t>((trace_.pages[a].pages.end * page + block - 1) / block);
        const Span<std::uint32_t> run{std::max(from, of_tensor_[t].begin + begin),
                                      std::min(of_tensor_[t].end, of_tensor_[t].begin + end)};
        if (run.begin >= run.end) continue;
        runs_[i].push_back(run);
        from = run.end;
      }
      if (!tracked) runs_[i].push_back(of_tensor_[t]);
    }
  }
}

std::optional<Error> Pager::prepare() {
  const bool supported =
      plan_.order.empty() && plan_.recomputations.empty() && plan_.in_place.empty() && plan_.moves.empty();
  if (!supported) return Error{Cause::unsupported, "replay: a plan that leaves paging to the driver says nothing else"};
  if (plan_.block.value == 0)
    return Error{Cause::malformed_input,
                 "replay: a plan that leaves paging to the driver names the size of its blocks"};
  if (!plan_.home.empty() && plan_.home.size() != trace_.tensors.size())
    return Error{Cause::malformed_input, "replay: the plan's home does not name each tensor of the trace"};
  prepare_links();
  cut_blocks();
  find_runs();
  leaving_.resize(machine_.tiers.size());
  faulted_.resize(machine_.tiers.size());
  fetched_.resize(machine_.tiers.size());
  needed_at_.assign(blocks_.size(), 0);
  window_at_.assign(blocks_.size(), 0);
  where_.resize(trace_.tensors.size());
  room_.resize(machine_.tiers.size());
  for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
    std::uint64_t bytes = 0;
    for (const Span<std::uint32_t>& run : runs_[i]) {
      for (std::uint32_t b = run.begin; b < run.end; ++b) bytes += blocks_[b].size();
    }
    if (bytes > machine_.tiers[0].capacity.value)
      return Error{Cause::infeasible, "replay: op " + std::to_string(i) + " '" + trace_.ops[i].name +
                                          "' needs more than the fastest tier has"};
  }
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    if (!persistent(blocks_[b].tensor)) continue;
    auto home = static_cast<std::uint8_t>(plan_.home.empty() ? 0 : plan_.home[blocks_[b].tensor].value);
    while (home + 1U < machine_.tiers.size() && used_[home] + blocks_[b].size() > machine_.tiers[home].capacity.value)
      ++home;
    blocks_[b].tier = home;
    used_[home] += blocks_[b].size();
    if (home == 0) arrives(b);
  }
  return std::nullopt;
}

// ---- the order of arrival ----

void Pager::arrives(std::uint32_t index) {
  Block& block = blocks_[index];
  block.before = last_;
  block.after = none;
  (last_ == none ? first_ : blocks_[last_].after) = index;
  last_ = index;
}

void Pager::leaves(std::uint32_t index) {
  const Block& block = blocks_[index];
  (block.before == none ? first_ : blocks_[block.before].after) = block.after;
  (block.after == none ? last_ : blocks_[block.after].before) = block.before;
  if (base_ == index) base_ = first_;
}

// ---- links ----

Meter* Pager::meter(std::uint8_t source, std::uint8_t target, bool bus) const {
  const std::uint32_t at = (bus ? bus_meter_ : link_meter_)[source * machine_.tiers.size() + target];
  return at == none || meters_[at].bytes_per_s == 0 ? nullptr : &meters_[at];
}

bool Pager::open(std::uint8_t source, std::uint8_t target) const {
  if (link_meter_[source * machine_.tiers.size() + target] == none) return false;
  const Meter *link = meter(source, target, false), *bus = meter(source, target, true);
  return (link == nullptr || link->left > 0) && (bus == nullptr || bus->left > 0);
}

void Pager::carry(const Block& block, std::uint8_t source, std::uint8_t target) {
  for (const bool bus : {false, true}) {
    if (Meter* each = meter(source, target, bus)) each->left -= static_cast<std::int64_t>(block.size());
  }
  moved_ = true;
  if (!measuring_) return;
  if (target == 0) result_.bytes_in += Bytes{block.size()};
  if (source == 0) result_.bytes_out += Bytes{block.size()};
  for (std::size_t l = 0; l < machine_.links.size(); ++l) {
    if (machine_.links[l].source.value == source && machine_.links[l].target.value == target)
      result_.link_busy[l] += transfer_time({block.size()}, machine_.links[l].bytes_per_s);
  }
  draw_move(block, source, target);
}

// ---- the driver's tick ----

bool Pager::any(const std::vector<Queue>& queues) {
  return std::any_of(queues.begin(), queues.end(), [](const Queue& queue) { return !queue.empty(); });
}

bool Pager::busy() const { return faulting() || !births_.empty() || any(leaving_) || any(fetched_); }

void Pager::advance_to(std::int64_t time) {
  for (; next_tick_ <= time && busy(); next_tick_ += tick_ns_) tick();
  if (next_tick_ <= time) next_tick_ += (time - next_tick_ + tick_ns_) / tick_ns_ * tick_ns_;
  now_ = time;
}

// False where nothing moved although every link was free to.
bool Pager::tick() {
  bool free = true;
  for (Meter& each : meters_) {
    const auto more = static_cast<std::int64_t>(static_cast<long double>(each.bytes_per_s) *
                                                static_cast<long double>(tick_ns_) / 1e9L);
    each.left = std::min(each.left, std::int64_t{0}) + std::max<std::int64_t>(1, more);
    free = free && (each.left > 0 || each.bytes_per_s == 0);
  }
  moved_ = false;
  evict_as_told();
  for (std::size_t k = faulted_.size(); k-- > 1;) fetch_from(faulted_[k], static_cast<std::uint8_t>(k), true);
  bear(faulted_births_, true);
  for (std::size_t k = fetched_.size(); k-- > 1;) fetch_from(fetched_[k], static_cast<std::uint8_t>(k), false);
  bear(births_, false);
  if (plan_.paging->window != 0 && waiting_ && awaited_ > 0 && !moved_ && free) {  // locked up: the window gives way
    for (std::size_t k = fetched_.size(); k-- > 1;) fetch_from(fetched_[k], static_cast<std::uint8_t>(k), true);
    bear(births_, true);
  }
  return moved_ || !free;
}

void Pager::evict_as_told() {
  for (std::size_t k = leaving_.size(); k-- > 1;) {
    Queue& queue = leaving_[k];
    while (!queue.empty()) {
      const std::uint8_t target = place_for(blocks_[queue.front()].size(), static_cast<std::uint8_t>(k));
      if (target == nowhere || !open(0, target)) break;
      const std::uint32_t index = queue.front();
      queue.pop_front();
      blocks_[index].queued = false;
      evict(index, target);
    }
  }
}

// The tier asked for, or the next slower one that has room.
std::uint8_t Pager::place_for(std::uint64_t bytes, std::uint8_t wanted) const {
  for (std::size_t k = wanted; k < machine_.tiers.size(); ++k) {
    if (used_[k] + bytes <= machine_.tiers[k].capacity.value && link_meter_[k] != none)
      return static_cast<std::uint8_t>(k);
  }
  return nowhere;
}

bool Pager::may_evict() const {
  const std::uint8_t target = place_for(plan_.block.value, 1);
  return target != nowhere && open(0, target);
}

void Pager::fetch_from(Queue& queue, std::uint8_t tier, bool faulted) {
  while (!queue.empty() && open(tier, 0)) {
    const std::uint32_t index = queue.front();
    const Block& block = blocks_[index];
    used_[tier] -= block.size();  // it changes places with who leaves for it
    const bool room =
        fits(block.size()) || (may_evict() && make_room(block.size(), faulted || needed_at_[index] == serial_));
    if (!room) {
      used_[tier] += block.size();
      return;
    }
    queue.pop_front();
    carry(block, tier, 0);
    if (measuring_ && faulted) ++result_.unplanned;
    settle(index);
  }
}

void Pager::bear(Queue& queue, bool faulted) {
  while (!queue.empty()) {
    const std::uint32_t index = queue.front();
    const Block& block = blocks_[index];
    if (!fits(block.size()) && !(may_evict() && make_room(block.size(), faulted || needed_at_[index] == serial_)))
      return;
    queue.pop_front();
    moved_ = true;
    settle(index);
  }
}

// Out of its queue, into the fastest tier.
void Pager::settle(std::uint32_t index) {
  Block& block = blocks_[index];
  used_[0] += block.size();
  result_.peak = std::max(result_.peak, Bytes{used_[0]});
  block.tier = 0;
  block.queued = false;
  await_no_more(block);
  arrives(index);
}

void Pager::await(Block& block) {
  if (!block.awaited) ++awaited_;
  block.awaited = true;
}

void Pager::await_no_more(Block& block) {
  if (block.awaited) --awaited_;
  block.awaited = false;
}

bool Pager::make_room(std::uint64_t bytes, bool faulted) {
  while (!fits(bytes)) {
    const std::uint32_t index = victim(faulted);
    if (index == none) return false;
    const bool dies = plan_.after_life == AfterLife::dropped && !alive(blocks_[index].tensor);
    const std::uint8_t target = dies ? nowhere : place_for(blocks_[index].size(), 1);
    if (!dies && target == nowhere) return false;
    if (measuring_ && !dies) ++result_.unplanned;
    if (measuring_ && dies) result_.bytes_dropped += Bytes{blocks_[index].size()};
    evict(index, target);
  }
  return true;
}

// Who arrived first. With a window: for a fault, whoever that is; else who the window does not need, from where the
// last look ended.
std::uint32_t Pager::victim(bool faulted) {
  const bool windowed = plan_.paging->window != 0 && !faulted;
  const auto spared = [&](std::uint32_t index) {
    return blocks_[index].queued || (windowed && window_at_[index] == serial_);
  };
  std::uint32_t at = plan_.paging->window != 0 && faulted ? first_ : base_;
  while (at != none && spared(at)) at = blocks_[at].after;
  if (at == none && !windowed) {
    for (at = first_; at != none && spared(at);) at = blocks_[at].after;
  }
  if (at == none || plan_.paging->window == 0 || windowed || at == base_) base_ = at == none ? none : blocks_[at].after;
  return at;
}

// What the op at hand needs comes back as a fault of it.
void Pager::evict(std::uint32_t index, std::uint8_t target) {
  Block& block = blocks_[index];
  leaves(index);
  used_[0] -= block.size();
  block.tier = target;
  if (target != nowhere) {
    used_[target] += block.size();
    carry(block, 0, target);
  }
  if (needed_at_[index] != serial_) {
    await_no_more(block);
  } else {
    enqueue(index, target == nowhere ? faulted_births_ : faulted_[target], true);
  }
}

void Pager::enqueue(std::uint32_t index, Queue& queue, bool awaited) {
  Block& block = blocks_[index];
  block.queued = true;
  if (awaited) await(block);
  queue.push_back(index);
}

// ---- an op ----

Reaction Pager::tell(const Event& event) {
  if (policy_ == nullptr) return {};
  for (std::uint32_t t = 0; t < where_.size(); ++t) {
    const Span<std::uint32_t> range = of_tensor_[t];
    if (range.begin < range.end && blocks_[range.begin].tier != nowhere) where_[t] = {blocks_[range.begin].tier};
  }
  for (std::size_t k = 0; k < room_.size(); ++k)
    room_[k] = {machine_.tiers[k].capacity.value - std::min(used_[k], machine_.tiers[k].capacity.value)};
  return policy_->react(event, {.trace = trace_, .machine = machine_, .where = where_, .room = room_});
}

void Pager::hint(const Move& move) {
  if (move.extent.tensor.value >= trace_.tensors.size() || move.target.value >= machine_.tiers.size()) return;
  const Span<std::uint32_t> range = of_tensor_[move.extent.tensor.value];
  for (std::uint32_t b = range.begin; b < range.end; ++b) {
    Block& block = blocks_[b];
    if (block.queued || (move.extent.part && (block.bytes.begin >= move.extent.part->end.value ||
                                              move.extent.part->begin.value >= block.bytes.end)))
      continue;
    if (move.verb == Verb::fetch && block.tier != 0)
      enqueue(b, block.tier == nowhere ? births_ : fetched_[block.tier], false);
    if (move.verb == Verb::evict && block.tier == 0 && move.target.value != 0)
      enqueue(b, leaving_[move.target.value], false);
  }
}

void Pager::look_at(std::uint32_t op) {
  op_ = op;
  ++serial_;
  const auto mark = [&](const std::vector<Span<std::uint32_t>>& runs, std::vector<std::uint64_t>& at) {
    for (const Span<std::uint32_t>& run : runs) std::fill(at.begin() + run.begin, at.begin() + run.end, serial_);
  };
  mark(runs_[op], needed_at_);
  for (std::size_t i = 0; i < std::min<std::size_t>(plan_.paging->window, needs_.size()); ++i) {
    mark(runs_[(op + i) % runs_.size()], window_at_);
  }
  base_ = first_;
  for (const Move& move : tell({.kind = Event::Kind::op_begins, .op = {op}, .tensor = {}}).moves) hint(move);
}

bool Pager::arrived(std::uint32_t op) const {
  if (faulting()) return false;
  for (const Span<std::uint32_t>& run : runs_[op]) {
    for (std::uint32_t b = run.begin; b < run.end; ++b) {
      if (blocks_[b].queued || blocks_[b].tier != 0) return false;
    }
  }
  return true;
}

// Asks for what the op misses. The time that this costs by the artifact's model: bytes over each link, those of the
// fastest with births and beside the busiest other one.
std::int64_t Pager::fault(std::uint32_t op) {
  std::vector<std::uint64_t> bytes(machine_.tiers.size());
  for (const Span<std::uint32_t>& run : runs_[op]) {
    for (std::uint32_t b = run.begin; b < run.end; ++b) {
      Block& block = blocks_[b];
      if (block.queued) {
        await(block);
      } else if (block.tier != 0) {
        if (block.tier != nowhere || block.tensor < trace_.tensors.size())
          bytes[block.tier == nowhere ? 1 % bytes.size() : block.tier] += block.size();
        enqueue(b, block.tier == nowhere ? faulted_births_ : faulted_[block.tier], true);
      }
    }
  }
  if (measuring_ && std::any_of(bytes.begin(), bytes.end(), [](std::uint64_t each) { return each != 0; }))
    ++result_.faults;
  std::int64_t longest = 0;
  std::uint64_t beside = 0;
  for (std::size_t k = bytes.size(); k-- > 1;) {
    const Link* link = machine_.link({static_cast<std::uint8_t>(k)}, {0});
    if (link == nullptr || bytes[k] == 0 || link->bytes_per_s == 0) continue;
    const bool shares = k == 1 && link->shared && link->bytes_per_s > beside;
    longest = std::max(longest, transfer_time({bytes[k]}, link->bytes_per_s - (shares ? beside : 0)).value);
    beside = std::max(beside, link->bytes_per_s);
  }
  return longest;
}

std::optional<Error> Pager::wait(std::uint32_t op) {
  waiting_ = true;
  for (bool stuck = false; !arrived(op);) {
    fault(op);
    while ((faulting() || awaited_ > 0) && !stuck) {
      now_ = std::max(now_, next_tick_);
      stuck = !tick();
      next_tick_ += tick_ns_;
    }
    if (stuck)
      return Error{Cause::infeasible, "replay: op " + std::to_string(op) + " '" + trace_.ops[op].name +
                                          "' waits for room that nobody can make"};
  }
  waiting_ = false;
  return std::nullopt;
}

std::optional<Error> Pager::run_op(std::uint32_t op) {
  const std::int64_t begins = now_, time = noisy_time(trace_.ops[op], op, step_number_, options_);
  look_at(op);
  std::int64_t ends = begins + time;
  if (!arrived(op)) {
    ends += fault(op);
    if (auto error = wait(op)) return error;
    ends = std::max(ends, now_);
  }
  advance_to(ends);
  const std::int64_t stall = ends - begins - time;
  draw(Bar::Kind::wait, op, begins, begins + stall);
  draw(Bar::Kind::op, op, begins + stall, ends);
  bury(op);
  if (measuring_) {
    result_.measured.op_stall[op] = {stall};
    result_.measured.stall += Nanoseconds{stall};
  }
  return std::nullopt;
}

// What is queued stays: nobody takes it from the driver.
void Pager::bury(std::uint32_t op) {
  const auto forget = [&](std::uint32_t tensor) {
    for (std::uint32_t b = of_tensor_[tensor].begin; b < of_tensor_[tensor].end; ++b) {
      Block& block = blocks_[b];
      if (block.queued || block.tier == nowhere) continue;
      used_[block.tier] -= block.size();
      if (block.tier == 0) leaves(b);
      block.tier = nowhere;
    }
  };
  if (!needs_[op].empty() && needs_[op].back() >= trace_.tensors.size()) forget(needs_[op].back());
  if (plan_.after_life != AfterLife::freed) return;
  for (const std::uint32_t t : step_.deaths[op]) forget(t);
}

void Pager::draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end) {
  if (!measuring_ || !options_.timeline || begin == end) return;
  result_.timeline.push_back({.kind = kind,
                              .op = {op},
                              .tensor = {},
                              .source = {},
                              .target = {},
                              .bytes = {},
                              .time = {{begin - step_began_}, {end - step_began_}}});
}

// Blocks of one tensor that follow each other are one bar.
void Pager::draw_move(const Block& block, std::uint8_t source, std::uint8_t target) {
  if (!options_.timeline || block.tensor >= trace_.tensors.size()) return;
  const Span<Nanoseconds> time{{std::max<std::int64_t>(0, next_tick_ - step_began_)},
                               {std::max<std::int64_t>(0, next_tick_ - step_began_) + tick_ns_}};
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, result_.timeline.size()); ++back) {
    Bar& bar = result_.timeline[result_.timeline.size() - back];
    if (bar.kind != Bar::Kind::move || bar.tensor.value != block.tensor || bar.source.value != source ||
        bar.target.value != target || bar.time.end < time.begin)
      continue;
    bar.bytes += Bytes{block.size()};
    bar.time.end = time.end;
    return;
  }
  result_.timeline.push_back({.kind = Bar::Kind::move,
                              .op = {},
                              .tensor = {block.tensor},
                              .source = {source},
                              .target = {target},
                              .bytes = {block.size()},
                              .time = time});
}

std::optional<Error> Pager::run_step(bool measured) {
  measuring_ = measured || policy_ != nullptr;
  Replayed fresh;
  fresh.step_times = std::move(result_.step_times);
  fresh.peak = result_.peak;
  result_ = std::move(fresh);
  result_.link_busy.assign(machine_.links.size(), {});
  result_.measured.op_stall.assign(trace_.ops.size(), {});
  step_began_ = now_;
  for (std::uint32_t op = 0; op < trace_.ops.size(); ++op) {
    if (auto error = run_op(op)) return error;
  }
  result_.step_times.push_back({now_ - step_began_});
  result_.measured.time = result_.step_times.back();
  ++step_number_;
  return std::nullopt;
}

Result<Replayed> Pager::run(bool* replan) {
  if (auto error = prepare()) return *error;
  const std::uint32_t steps = std::max(1U, options_.steps);
  for (std::uint32_t number = 0; number < steps; ++number) {
    if (auto error = run_step(number + 1 == steps)) return *error;
    if (policy_ == nullptr) continue;
    const Reaction reaction =
        tell({.kind = Event::Kind::step_ended, .op = {}, .tensor = {}, .bytes = {}, .measured = &result_.measured});
    if (reaction.replan && replan != nullptr) {
      *replan = true;
      return result_;
    }
  }
  for (const Op& op : trace_.ops) result_.ideal += op.time;
  return result_;
}

}  // namespace

Result<Replayed> page(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan,
                      const ReplayOptions& options, Policy* policy, bool* replan) {
  return Pager(trace, step, machine, plan, options, policy).run(replan);
}

}  // namespace vedette::sim
