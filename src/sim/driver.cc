// Ticks, queues and victims.
#include "sim/driver.h"

#include <string>

namespace vedette::sim {

constexpr std::int64_t latest = std::int64_t{1} << 62;  // of the clock: sums are far from overflow

Driver::Driver(const Inputs& in)
    : in_(in),
      blocks_(cut_blocks(in.trace, in.step, in.plan.block)),
      meters_(in.machine, in.plan.block),
      arrivals_(blocks_.all.size()),
      used_(in.machine.tiers.size()),
      leaving_(in.machine.tiers.size()),
      faulted_(in.machine.tiers.size()),
      fetched_(in.machine.tiers.size()),
      needed_at_(blocks_.all.size()),
      window_at_(blocks_.all.size()) {}

std::uint8_t Driver::tier_of(std::uint32_t tensor) const {
  const Blocks::Run run = blocks_.of_tensor[tensor];
  return run.begin < run.end ? blocks_.all[run.begin].tier : nowhere;
}

Bytes Driver::room(std::size_t tier) const {
  const std::uint64_t capacity = in_.machine.tiers[tier].capacity.value;
  return {capacity - std::min(used_[tier], capacity)};
}

std::optional<Error> Driver::start() {
  for (std::uint32_t i = 0; i < in_.trace.ops.size(); ++i) {
    std::uint64_t bytes = 0;
    for (const Blocks::Run& run : blocks_.runs[i]) {
      for (std::uint32_t b = run.begin; b < run.end; ++b) bytes += blocks_.all[b].size();
    }
    if (bytes > in_.machine.tiers[0].capacity.value)
      return Error{Cause::infeasible, "replay: op " + std::to_string(i) + " '" + in_.trace.ops[i].name +
                                          "' needs more than the fastest tier has"};
  }
  for (std::uint32_t b = 0; b < blocks_.all.size(); ++b) {
    Block& block = blocks_.all[b];
    if (!persistent(block.tensor)) continue;
    auto home = static_cast<std::uint8_t>(in_.plan.home.empty() ? 0 : in_.plan.home[block.tensor].value);
    while (home + 1U < in_.machine.tiers.size() && used_[home] + block.size() > in_.machine.tiers[home].capacity.value)
      ++home;
    block.tier = home;
    used_[home] += block.size();
    if (home == 0) arrivals_.arrives(b);
  }
  return std::nullopt;
}

void Driver::measure(Replayed* into) {
  into_ = into;
  measured_from_ = now_;
  if (into != nullptr) into->link_busy.assign(in_.machine.links.size(), {});
}

// ---- links ----

void Driver::carry(const Block& block, std::uint8_t source, std::uint8_t target) {
  meters_.carry(block.size(), source, target);
  moved_ = true;
  if (into_ == nullptr) return;
  if (target == 0) into_->bytes_in += Bytes{block.size()};
  if (source == 0) into_->bytes_out += Bytes{block.size()};
  for (std::size_t l = 0; l < in_.machine.links.size(); ++l) {
    if (in_.machine.links[l].source.value == source && in_.machine.links[l].target.value == target)
      into_->link_busy[l] += transfer_time({block.size()}, in_.machine.links[l].bytes_per_s);
  }
  draw(block, source, target);
}

// Blocks of one tensor that follow each other are one bar.
void Driver::draw(const Block& block, std::uint8_t source, std::uint8_t target) {
  if (!in_.options.timeline || block.tensor >= in_.trace.tensors.size()) return;
  const Span<Nanoseconds> time{{std::max<std::int64_t>(0, next_tick_ - measured_from_)},
                               {std::max<std::int64_t>(0, next_tick_ - measured_from_) + meters_.tick_ns()}};
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, into_->timeline.size()); ++back) {
    Bar& bar = into_->timeline[into_->timeline.size() - back];
    if (bar.kind != Bar::Kind::move || bar.tensor.value != block.tensor || bar.source.value != source ||
        bar.target.value != target || bar.time.end < time.begin)
      continue;
    bar.bytes += Bytes{block.size()};
    bar.time.end = time.end;
    return;
  }
  into_->timeline.push_back({.kind = Bar::Kind::move,
                             .tensor = {block.tensor},
                             .source = {source},
                             .target = {target},
                             .bytes = {block.size()},
                             .time = time});
}

// ---- the driver's tick ----

bool Driver::any(const std::vector<Queue>& queues) {
  return std::any_of(queues.begin(), queues.end(), [](const Queue& queue) { return !queue.empty(); });
}

void Driver::advance_to(std::int64_t time) {
  idle_.begin(arrivals_.base());
  while (next_tick_ <= time && busy()) {
    tick();
    next_tick_ += meters_.tick_ns();
    if (next_tick_ <= time) pass_idle_ticks((time - next_tick_) / meters_.tick_ns() + 1);
  }
  if (next_tick_ <= time) next_tick_ += (time - next_tick_ + meters_.tick_ns()) / meters_.tick_ns() * meters_.tick_ns();
  now_ = time;
}

// False where nothing moved although every link was free to.
bool Driver::tick() {
  const auto [free, opened] = meters_.refill();
  moved_ = changed_ = false;
  if (opened) idle_.begin(arrivals_.base());
  evict_as_told();
  for (std::size_t k = faulted_.size(); k-- > 1;) fetch_from(faulted_[k], static_cast<std::uint8_t>(k), true);
  bear(faulted_births_, true);
  for (std::size_t k = fetched_.size(); k-- > 1;) fetch_from(fetched_[k], static_cast<std::uint8_t>(k), false);
  bear(births_, false);
  if (windowed() && waiting_ && awaited_ > 0 && !moved_ && free) {  // locked up: the window gives way
    for (std::size_t k = fetched_.size(); k-- > 1;) fetch_from(fetched_[k], static_cast<std::uint8_t>(k), true);
    bear(births_, true);
  }
  return moved_ || !free;
}

// After a tick: those that would do nothing, at most so many.
void Driver::pass_idle_ticks(std::int64_t most) {
  if (moved_ || changed_) return idle_.begin(arrivals_.base());
  const std::int64_t period = idle_.period(arrivals_.base());
  if (period == 0) return;
  std::int64_t ticks = std::min(most, meters_.ticks_alike());
  ticks -= ticks % period;
  meters_.pass(ticks);
  next_tick_ += ticks * meters_.tick_ns();
  idle_.begin(arrivals_.base());
}

void Driver::evict_as_told() {
  for (std::size_t k = leaving_.size(); k-- > 1;) {
    Queue& queue = leaving_[k];
    while (!queue.empty()) {
      const std::uint8_t target = place_for(blocks_.all[queue.front()].size(), static_cast<std::uint8_t>(k));
      if (target == nowhere || !meters_.open(0, target)) break;
      const std::uint32_t index = queue.front();
      queue.pop_front();
      blocks_.all[index].queued = false;
      evict(index, target);
    }
  }
}

// The tier asked for, or the next slower one that has room.
std::uint8_t Driver::place_for(std::uint64_t bytes, std::uint8_t wanted) const {
  for (std::size_t k = wanted; k < in_.machine.tiers.size(); ++k) {
    if (used_[k] + bytes <= in_.machine.tiers[k].capacity.value && meters_.joined(0, static_cast<std::uint8_t>(k)))
      return static_cast<std::uint8_t>(k);
  }
  return nowhere;
}

bool Driver::may_evict() const {
  const std::uint8_t target = place_for(in_.plan.block.value, 1);
  return target != nowhere && meters_.open(0, target);
}

void Driver::fetch_from(Queue& queue, std::uint8_t tier, bool faulted) {
  while (!queue.empty() && meters_.open(tier, 0)) {
    const std::uint32_t index = queue.front();
    const Block& block = blocks_.all[index];
    used_[tier] -= block.size();  // it swaps places with the block that leaves for it
    const bool room =
        fits(block.size()) || (may_evict() && make_room(block.size(), faulted || needed_at_[index] == serial_));
    if (!room) {
      used_[tier] += block.size();
      return;
    }
    queue.pop_front();
    carry(block, tier, 0);
    if (into_ != nullptr && faulted) ++into_->unplanned;
    settle(index);
  }
}

void Driver::bear(Queue& queue, bool faulted) {
  while (!queue.empty()) {
    const std::uint32_t index = queue.front();
    const Block& block = blocks_.all[index];
    if (!fits(block.size()) && !(may_evict() && make_room(block.size(), faulted || needed_at_[index] == serial_)))
      return;
    queue.pop_front();
    moved_ = true;
    settle(index);
  }
}

// Out of its queue, into the fastest tier.
void Driver::settle(std::uint32_t index) {
  Block& block = blocks_.all[index];
  used_[0] += block.size();
  peak_ = std::max(peak_, used_[0]);
  block.tier = 0;
  block.queued = false;
  await_no_more(block);
  arrivals_.arrives(index);
}

void Driver::await(Block& block) {
  if (!block.awaited) ++awaited_;
  block.awaited = true;
}

void Driver::await_no_more(Block& block) {
  if (block.awaited) --awaited_;
  block.awaited = false;
}

bool Driver::make_room(std::uint64_t bytes, bool faulted) {
  while (!fits(bytes)) {
    const std::uint32_t index = victim(faulted);
    if (index == none) return false;
    const bool dies = in_.plan.after_life == AfterLife::dropped && !alive(blocks_.all[index].tensor);
    const std::uint8_t target = dies ? nowhere : place_for(blocks_.all[index].size(), 1);
    if (!dies && target == nowhere) return false;
    if (into_ != nullptr && !dies) ++into_->unplanned;
    if (into_ != nullptr && dies) into_->bytes_dropped += Bytes{blocks_.all[index].size()};
    evict(index, target);
  }
  return true;
}

// The block that arrived first. With a window: for a fault any block, else one that the window does not need, from
// where the last look ended.
std::uint32_t Driver::victim(bool faulted) {
  const bool ahead = windowed() && !faulted;
  const auto spared = [&](std::uint32_t index) {
    return blocks_.all[index].queued || (ahead && window_at_[index] == serial_);
  };
  std::uint32_t at = windowed() && faulted ? arrivals_.first() : arrivals_.base();
  while (at != none && spared(at)) at = arrivals_.after(at);
  if (at == none && !ahead) {
    for (at = arrivals_.first(); at != none && spared(at);) at = arrivals_.after(at);
  }
  const bool looked_from_base = !windowed() || ahead || at == arrivals_.base();
  if (at == none || looked_from_base) arrivals_.look_from(at == none ? none : arrivals_.after(at));
  return at;
}

// Blocks that the op at hand needs come back as faults of it.
void Driver::evict(std::uint32_t index, std::uint8_t target) {
  Block& block = blocks_.all[index];
  changed_ = true;
  arrivals_.leaves(index);
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

void Driver::enqueue(std::uint32_t index, Queue& queue, bool awaited) {
  Block& block = blocks_.all[index];
  block.queued = true;
  if (awaited) await(block);
  queue.push_back(index);
}

// ---- an op ----

void Driver::hint(const Move& move) {
  if (move.extent.tensor.value >= in_.trace.tensors.size() || move.target.value >= in_.machine.tiers.size()) return;
  const Blocks::Run range = blocks_.of_tensor[move.extent.tensor.value];
  for (std::uint32_t b = range.begin; b < range.end; ++b) {
    Block& block = blocks_.all[b];
    if (block.queued || (move.extent.part && (block.bytes.begin >= move.extent.part->end.value ||
                                              move.extent.part->begin.value >= block.bytes.end)))
      continue;
    if (move.verb == Verb::fetch && block.tier != 0)
      enqueue(b, block.tier == nowhere ? births_ : fetched_[block.tier], false);
    if (move.verb == Verb::evict && block.tier == 0 && move.target.value != 0)
      enqueue(b, leaving_[move.target.value], false);
  }
}

void Driver::begin_op(std::uint32_t op) {
  op_ = op;
  ++serial_;
  const auto mark = [&](const std::vector<Blocks::Run>& runs, std::vector<std::uint64_t>& at) {
    for (const Blocks::Run& run : runs) std::fill(at.begin() + run.begin, at.begin() + run.end, serial_);
  };
  mark(blocks_.runs[op], needed_at_);
  for (std::size_t i = 0; i < std::min<std::size_t>(in_.plan.paging->window, blocks_.runs.size()); ++i) {
    mark(blocks_.runs[(op + i) % blocks_.runs.size()], window_at_);
  }
  arrivals_.look_from(arrivals_.first());
}

bool Driver::arrived(std::uint32_t op) const {
  if (faulting()) return false;
  for (const Blocks::Run& run : blocks_.runs[op]) {
    for (std::uint32_t b = run.begin; b < run.end; ++b) {
      if (blocks_.all[b].queued || blocks_.all[b].tier != 0) return false;
    }
  }
  return true;
}

std::int64_t Driver::fault(std::uint32_t op) {
  std::vector<std::uint64_t> bytes(in_.machine.tiers.size());
  for (const Blocks::Run& run : blocks_.runs[op]) {
    for (std::uint32_t b = run.begin; b < run.end; ++b) {
      Block& block = blocks_.all[b];
      if (block.queued) {
        await(block);
      } else if (block.tier != 0) {
        if (block.tier != nowhere || block.tensor < in_.trace.tensors.size())
          bytes[block.tier == nowhere ? 1 % bytes.size() : block.tier] += block.size();
        enqueue(b, block.tier == nowhere ? faulted_births_ : faulted_[block.tier], true);
      }
    }
  }
  if (into_ != nullptr && std::any_of(bytes.begin(), bytes.end(), [](std::uint64_t each) { return each != 0; }))
    ++into_->faults;
  std::int64_t longest = 0;
  std::uint64_t beside = 0;
  for (std::size_t k = bytes.size(); k-- > 1;) {
    const Link* link = in_.machine.link({static_cast<std::uint8_t>(k)}, {0});
    if (link == nullptr || bytes[k] == 0 || link->bytes_per_s == 0) continue;
    const bool shares = k == 1 && link->shared && link->bytes_per_s > beside;
    longest = std::max(longest, transfer_time({bytes[k]}, link->bytes_per_s - (shares ? beside : 0)).value);
    beside = std::max(beside, link->bytes_per_s);
  }
  return longest;
}

std::optional<Error> Driver::wait(std::uint32_t op) {
  waiting_ = true;
  for (bool stuck = false; !arrived(op);) {
    fault(op);
    idle_.begin(arrivals_.base());
    while ((faulting() || awaited_ > 0) && !stuck) {
      if (next_tick_ > latest)
        return Error{Cause::infeasible, "replay: op " + std::to_string(op) + " '" + in_.trace.ops[op].name +
                                            "' waits longer than a century; is a link's speed in bytes a second?"};
      now_ = std::max(now_, next_tick_);
      stuck = !tick();
      next_tick_ += meters_.tick_ns();
      pass_idle_ticks((latest - std::min(latest, next_tick_)) / meters_.tick_ns() + 1);
    }
    if (stuck)
      return Error{Cause::infeasible, "replay: op " + std::to_string(op) + " '" + in_.trace.ops[op].name +
                                          "' waits for room that nobody can make"};
  }
  waiting_ = false;
  return std::nullopt;
}

void Driver::forget(std::uint32_t tensor) {
  for (std::uint32_t b = blocks_.of_tensor[tensor].begin; b < blocks_.of_tensor[tensor].end; ++b) {
    Block& block = blocks_.all[b];
    if (block.queued || block.tier == nowhere) continue;
    used_[block.tier] -= block.size();
    if (block.tier == 0) arrivals_.leaves(b);
    block.tier = nowhere;
  }
}

void Driver::bury(std::uint32_t op) {
  if (blocks_.workspace[op] != none) forget(blocks_.workspace[op]);
  if (in_.plan.after_life != AfterLife::freed) return;
  for (const std::uint32_t t : in_.step.deaths[op]) forget(t);
}

}  // namespace vedette::sim
