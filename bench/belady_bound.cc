// Belady's choice over a few steps: op by op, fetch the missing operands, evict the tensors that are needed last.
#include "belady_bound.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace vedette::bench {
namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
constexpr int first_steps = 4,
              counted_steps = 8;  // to reach a steady state; to average over, since it may repeat every few steps only

struct Access {
  std::uint64_t op = 0;
  bool reads = false, writes = false;
};

struct State {                                  // of a tensor
  std::vector<Access> accesses{};               // ascending
  std::uint64_t death = never;                  // last op of its life; never: persistent
  std::uint64_t size = 0, near = 0, dirty = 0;  // bytes: dirty <= near <= size
  bool has_bytes = false;                       // its bytes exist, here or in the slow tier
};

class Player {
 public:
  Player(const Trace& trace, Bytes fast_memory, BeladyUnit unit)
      : trace_(trace), capacity_(fast_memory.value), unit_(unit) {
    tensors_.resize(trace.tensors.size());
    for (std::size_t t = 0; t < tensors_.size(); ++t) tensors_[t].size = trace.tensors[t].bytes.value;
    for (std::size_t i = 0; i < trace.ops.size(); ++i) {
      for (TensorIndex t : trace.ops[i].reads) access(t, i).reads = true;
      for (TensorIndex t : trace.ops[i].writes) access(t, i).writes = true;
    }
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      tensors_[t].has_bytes = trace.tensors[t].persistent;
      if (!trace.tensors[t].persistent && !tensors_[t].accesses.empty())
        tensors_[t].death = tensors_[t].accesses.back().op;
    }
    for (std::size_t i = 0; i < trace.ops.size(); ++i) {
      for (TensorIndex t : trace.ops[i].frees) tensors_[t.value].death = i;
    }
  }

  std::optional<BeladyBound> play() {
    for (int step = 0; step < first_steps + counted_steps; ++step) {
      if (step == first_steps) moved_ = {};
      for (std::size_t i = 0; i < trace_.ops.size(); ++i) {
        if (!play(i)) return std::nullopt;
      }
    }
    return BeladyBound{.read = {moved_.read.value / counted_steps}, .written = {moved_.written.value / counted_steps}};
  }

 private:
  Access& access(TensorIndex t, std::size_t op) {
    std::vector<Access>& all = tensors_[t.value].accesses;
    if (all.empty() || all.back().op != op) all.push_back({.op = op});
    return all.back();
  }

  bool play(std::size_t i) {
    std::vector<std::size_t> operands;
    for (const auto* list : {&trace_.ops[i].reads, &trace_.ops[i].writes}) {
      for (TensorIndex t : *list) operands.push_back(t.value);
    }
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    std::uint64_t missing = trace_.ops[i].workspace.value;
    for (std::size_t t : operands) missing += tensors_[t].size - tensors_[t].near;
    if (!make_room(i, missing, operands)) return false;
    for (std::size_t t : operands) use(t, i);
    for (State& tensor : tensors_) {
      if (tensor.death != i) continue;
      used_ -= tensor.near;
      tensor.near = tensor.dirty = 0;
      tensor.has_bytes = false;
    }
    return true;
  }

  void use(std::size_t t, std::size_t op) {
    State& tensor = tensors_[t];
    const Access now = *std::find_if(tensor.accesses.begin(), tensor.accesses.end(),
                                     [&](const Access& each) { return each.op == op; });
    const std::uint64_t missing = tensor.size - tensor.near;
    if (now.reads && tensor.has_bytes) moved_.read += Bytes{missing};
    used_ += missing;
    tensor.near = tensor.size;
    if (now.writes) {
      tensor.dirty = tensor.size;
      tensor.has_bytes = true;
    }
  }

  bool make_room(std::size_t op, std::uint64_t wanted, const std::vector<std::size_t>& spared) {
    while (used_ + wanted > capacity_) {
      std::optional<std::size_t> victim;
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        if (tensors_[t].near == 0 || std::binary_search(spared.begin(), spared.end(), t)) continue;
        if (!victim || worth(*victim, op) > worth(t, op)) victim = t;
      }
      if (!victim) return false;
      evict(tensors_[*victim], op, used_ + wanted - capacity_);
    }
    return true;
  }

  // Smaller leaves first: by next use, the furthest first; of those the ones that leave for nothing, then the larger.
  std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::size_t> worth(std::size_t t, std::size_t op) const {
    const State& tensor = tensors_[t];
    const Next next = next_after(tensor, op);
    const bool free = tensor.dirty == 0 || !next.reads;
    return {never - next.when, free ? 0 : 1, never - tensor.near, t};
  }

  void evict(State& tensor, std::size_t op, std::uint64_t needed) {
    const std::uint64_t leaving = unit_ == BeladyUnit::tensors ? tensor.near : std::min(needed, tensor.near);
    const std::uint64_t clean = std::min(tensor.near - tensor.dirty, leaving);
    if (next_after(tensor, op).reads) moved_.written += Bytes{leaving - clean};
    tensor.dirty -= leaving - clean;
    tensor.near -= leaving;
    used_ -= leaving;
  }

  struct Next {
    std::uint64_t when = never;  // ops from the first of this step
    bool reads = false;          // the bytes there are now will be read
  };
  Next next_after(const State& tensor, std::size_t op) const {
    if (tensor.accesses.empty()) return {};
    const auto found = std::upper_bound(tensor.accesses.begin(), tensor.accesses.end(), op,
                                        [](std::size_t at, const Access& each) { return at < each.op; });
    if (found != tensor.accesses.end()) return {found->op, found->reads};
    if (tensor.death != never) return {};
    return {tensor.accesses.front().op + trace_.ops.size(), tensor.accesses.front().reads};
  }

  const Trace& trace_;
  std::uint64_t capacity_, used_ = 0;
  BeladyUnit unit_;
  std::vector<State> tensors_;
  BeladyBound moved_;
};

}  // namespace

std::optional<BeladyBound> belady_bound(const Trace& trace, Bytes fast_memory, BeladyUnit unit) {
  return Player(trace, fast_memory, unit).play();
}

std::optional<BeladyBound> belady_bound(const Trace& trace, Bytes fast_memory) {
  const auto whole = belady_bound(trace, fast_memory, BeladyUnit::tensors),
             parts = belady_bound(trace, fast_memory, BeladyUnit::bytes);
  if (!whole || !parts) return std::nullopt;
  return whole->read + whole->written < parts->read + parts->written ? whole : parts;
}

}  // namespace vedette::bench
