// A step as step_in_backward() would run it: each parameter is updated as soon as its gradient is complete, and the
// gradient is freed.
//
// Operators of the optimizer that share tensors, through any number of others, are one update. It follows the last
// other operator that touches a tensor that it writes, or writes one that it reads. An optimizer that looks at all
// gradients together is a single update and stays where it is. O(accesses).
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

class Updates {
 public:
  explicit Updates(const Trace& trace) : trace_(trace), leader_(trace.ops.size()), after_(trace.ops.size(), none) {
    std::iota(leader_.begin(), leader_.end(), 0u);
    join();
    find_places();
  }

  static bool is_update(const Op& op) { return op.phase == Phase::optimizer; }
  // The op that this update follows; none: it stays where it is.
  std::uint32_t place(std::uint32_t op) { return after_[leader(op)]; }

 private:
  std::uint32_t leader(std::uint32_t op) {
    while (leader_[op] != op) op = leader_[op] = leader_[leader_[op]];
    return op;
  }

  void join() {
    std::vector<std::uint32_t> first(trace_.tensors.size(), none);
    std::uint32_t before = none;  // an op without tensors belongs to the one before it
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      if (!is_update(trace_.ops[i])) continue;
      bool touches = false;
      for (const auto* list : {&trace_.ops[i].reads, &trace_.ops[i].writes}) {
        for (const TensorIndex t : *list) {
          touches = true;
          if (first[t.value] == none) first[t.value] = i;
          leader_[leader(i)] = leader(first[t.value]);
        }
      }
      if (!touches && before != none) leader_[leader(i)] = leader(before);
      before = i;
    }
  }

  void find_places() {
    std::vector<std::uint32_t> touched(trace_.tensors.size(), none), written(trace_.tensors.size(), none);
    const auto follow = [&](std::uint32_t op, std::uint32_t other) {
      std::uint32_t& after = after_[leader(op)];
      if (other != none && (after == none || after < other)) after = other;
    };
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      const Op& op = trace_.ops[i];
      if (is_update(op)) {
        for (const TensorIndex t : op.reads) follow(i, written[t.value]);
        for (const TensorIndex t : op.writes) follow(i, touched[t.value]);
        continue;
      }
      for (const TensorIndex t : op.reads) touched[t.value] = i;
      for (const TensorIndex t : op.writes) touched[t.value] = written[t.value] = i;
    }
  }

  const Trace& trace_;
  std::vector<std::uint32_t> leader_, after_;
};

// Gradients die with their update. Other tensors that an op freed without touching them die where backward ends: when
// the program lets go of them has nothing to do with the update.
void free_anew(Trace& trace) {
  std::vector<std::uint32_t> last(trace.tensors.size(), none), freed(trace.tensors.size(), none);
  std::uint32_t last_other = 0;
  std::vector<bool> updated(trace.tensors.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    Op& op = trace.ops[i];
    if (!Updates::is_update(op)) last_other = i;
    for (const auto* list : {&op.reads, &op.writes}) {
      for (const TensorIndex t : *list) {
        last[t.value] = i;
        updated[t.value] = updated[t.value] || Updates::is_update(op);
      }
    }
    for (const TensorIndex t : op.frees) freed[t.value] = i;
    op.frees.clear();
  }
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    if (freed[t] == none || last[t] == none) continue;
    const bool gradient = trace.tensors[t].kind == TensorKind::gradient && updated[t];
    const bool by_update = Updates::is_update(trace.ops[freed[t]]);
    const std::uint32_t at = gradient    ? last[t]
                             : by_update ? std::max(last[t], last_other)
                                         : std::max(last[t], freed[t]);
    trace.ops[at].frees.push_back({t});
  }
}

// A gradient that lives on into the next step is freed by its update, and born again at its first write.
void make_gradients_brief(Trace& trace) {
  std::vector<bool> seen(trace.tensors.size()), updated(trace.tensors.size());
  for (const Op& op : trace.ops)
    for (const TensorIndex t : op.reads) updated[t.value] = updated[t.value] || Updates::is_update(op);
  for (Op& op : trace.ops) {
    std::vector<TensorIndex> born;
    for (const TensorIndex t : operands(op)) {
      const Tensor& tensor = trace.tensors[t.value];
      if (!seen[t.value] && tensor.persistent && tensor.kind == TensorKind::gradient && updated[t.value])
        born.push_back(t);
      seen[t.value] = true;
    }
    for (const TensorIndex t : born) {
      std::erase(op.reads, t);
      if (!std::binary_search(op.writes.begin(), op.writes.end(), t))
        op.writes.insert(std::lower_bound(op.writes.begin(), op.writes.end(), t), t);
      trace.tensors[t.value].persistent = false;
    }
  }
}

}  // namespace

std::optional<Trace> updated_early(const Trace& trace) {
  Updates updates(trace);
  std::uint32_t last_other = 0;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    if (!Updates::is_update(trace.ops[i])) last_other = i;
  bool earlier = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // place, op
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const std::uint32_t place = Updates::is_update(trace.ops[i]) ? updates.place(i) : none;
    earlier = earlier || (place != none && place < last_other && i > last_other);
    order.emplace_back(place == none ? i : place, i);
  }
  if (!earlier) return std::nullopt;
  std::sort(order.begin(), order.end());  // an update comes right behind the op of its place, whose number is smaller
  Trace early = trace;
  early.pages.clear();
  for (std::size_t i = 0; i < order.size(); ++i) early.ops[i] = trace.ops[order[i].second];
  make_gradients_brief(early);
  free_anew(early);
  return early;
}

}  // namespace vedette::report
