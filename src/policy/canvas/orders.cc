#include "policy/canvas/orders.h"

#include <algorithm>
#include <list>
#include <optional>

#include "model/dependences.h"
#include "model/liveness.h"

namespace vedette::planning {

// Memory as a list schedule knows it: tensors that live, of which the latest used ones lie near. The life of a tensor
// is the same seen backwards, from its last access to its first.
class Orders::Memory {
 public:
  Memory(const Trace& trace, Bytes capacity)
      : trace_(trace),
        capacity_(static_cast<std::int64_t>(capacity.value)),
        left_(trace.tensors.size()),
        lives_(trace.tensors.size()),
        place_(trace.tensors.size()) {
    for (const Op& op : trace.ops) operands_.push_back(operands(op));
    for (const auto& list : operands_)
      for (const TensorIndex t : list) ++left_[t.value];
    for (std::uint32_t t = 0; t < left_.size(); ++t) lives_[t] = trace.tensors[t].persistent;
  }

  struct Cost {
    std::int64_t grows = 0, misses = 0;  // bytes
  };
  Cost of(std::uint32_t op) const {
    Cost cost;
    for (const TensorIndex t : operands_[op]) {
      const std::int64_t bytes = size(t);
      if (!lives_[t.value]) cost.grows += bytes;
      if (lives_[t.value] && !place_[t.value]) cost.misses += bytes;
      if (left_[t.value] == 1 && !trace_.tensors[t.value].persistent) cost.grows -= bytes;
    }
    return cost;
  }

  void run(std::uint32_t op) {
    for (const TensorIndex t : operands_[op]) {
      lives_[t.value] = true;
      remove(t.value);
      if (--left_[t.value] == 0 && !trace_.tensors[t.value].persistent) continue;
      near_.push_back(t.value);
      place_[t.value] = std::prev(near_.end());
      used_ += size(t);
    }
    while (used_ > capacity_) remove(near_.front());
  }

 private:
  std::int64_t size(TensorIndex t) const { return static_cast<std::int64_t>(trace_.tensors[t.value].bytes.value); }
  void remove(std::uint32_t tensor) {
    if (!place_[tensor]) return;
    near_.erase(*place_[tensor]);
    place_[tensor].reset();
    used_ -= size({tensor});
  }

  const Trace& trace_;
  std::int64_t capacity_ = 0, used_ = 0;
  std::vector<std::vector<TensorIndex>> operands_;  // [op]
  std::vector<std::uint32_t> left_;                 // [tensor]: ops that still use it
  std::vector<bool> lives_;                         // [tensor]
  std::list<std::uint32_t> near_;                   // used longest ago first
  std::vector<std::optional<std::list<std::uint32_t>::iterator>> place_;
};

Orders::Orders(const Trace& trace) : trace_(trace), before_(dependences(trace)), after_(trace.ops.size()) {
  for (std::uint32_t i = 0; i < before_.size(); ++i)
    for (const OpIndex earlier : before_[i]) after_[earlier.value].push_back({i});
}

Order Orders::traced() const {
  Order order(trace_.ops.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = {i};
  return order;
}

std::vector<Order> Orders::listed(Bytes capacity) const {
  std::vector<Order> made;
  for (const bool backwards : {false, true}) {
    for (const std::uint32_t window : {32U, 512U}) {
      for (const Rule rule : {Rule::frees, Rule::misses_least, Rule::grows_least})
        made.push_back(list({.rule = rule, .window = window, .backwards = backwards, .capacity = capacity}));
    }
  }
  return made;
}

Order Orders::list(const Listing& how) const {
  const auto count = static_cast<std::uint32_t>(trace_.ops.size());
  const auto &waits_for = how.backwards ? after_ : before_, &wait = how.backwards ? before_ : after_;
  const auto place = [&](std::uint32_t op) { return how.backwards ? count - 1 - op : op; };
  Memory memory(trace_, how.capacity);
  std::vector<std::size_t> open(count);
  std::vector<std::uint32_t> ready;  // ascending by place
  for (std::uint32_t p = 0; p < count; ++p) {
    open[place(p)] = waits_for[place(p)].size();
    if (open[place(p)] == 0) ready.push_back(p);
  }
  const auto cost = [&](std::uint32_t op) {
    const Memory::Cost bytes = memory.of(op);
    if (how.rule == Rule::grows_least) return bytes.grows;
    if (how.rule == Rule::misses_least) return bytes.misses + std::max<std::int64_t>(bytes.grows, 0);
    return bytes.misses == 0 ? std::min<std::int64_t>(bytes.grows, 0) : 0;
  };
  Order order;
  while (!ready.empty()) {
    auto best = ready.begin();
    std::int64_t least = cost(place(*best));
    const std::uint32_t end = ready.front() + how.window;
    for (auto each = std::next(best); each != ready.end() && *each < end; ++each) {
      const std::int64_t bytes = cost(place(*each));
      if (bytes >= least) continue;
      least = bytes;
      best = each;
    }
    const std::uint32_t op = place(*best);
    ready.erase(best);
    order.push_back({op});
    memory.run(op);
    for (const OpIndex next : wait[op]) {
      if (--open[next.value] == 0)
        ready.insert(std::lower_bound(ready.begin(), ready.end(), place(next.value)), place(next.value));
    }
  }
  if (how.backwards) std::reverse(order.begin(), order.end());
  return order;
}

Order Orders::joined(const Order& first, std::size_t cut, const Order& then) const {
  Order made(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(cut));
  std::vector<bool> done(first.size());
  for (const OpIndex op : made) done[op.value] = true;
  for (const OpIndex op : then) {
    if (!done[op.value]) made.push_back(op);
  }
  return made;
}

void Orders::move(Order& order, std::size_t from, std::size_t to) const {
  const bool earlier = to < from;
  const auto& bound = earlier ? before_ : after_;
  std::vector<bool> along(order.size());
  along[order[from].value] = true;
  for (std::size_t i = from;; earlier ? --i : ++i) {
    if (along[order[i].value])
      for (const OpIndex op : bound[order[i].value]) along[op.value] = true;
    if (i == to) break;
  }
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(std::min(from, to)),
             end = order.begin() + static_cast<std::ptrdiff_t>(std::max(from, to)) + 1;
  std::stable_partition(begin, end, [&](OpIndex op) { return along[op.value] == earlier; });
}

}  // namespace vedette::planning
