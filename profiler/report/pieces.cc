// The shown step for a simulator, with the tensors of which operators touch only parts cut where their use differs.
//
// A row look-up names a whole table as its operand and touches a few of its pages. A simulator that moves operands from
// end to end would call such a step infeasible at budgets at which it ran. Where pages were tracked, a persistent
// tensor is cut into runs of chunks that the same operators use, and an operator keeps the runs that its tick touched.
// Short-lived tensors stay whole: a run that no operator writes would never be born. Rows differ from step to step, so
// the cut step speaks of the rows of the profiled one.
#include <algorithm>
#include <map>
#include <set>

#include "profiler/report/report.h"

namespace vedette::report {

namespace {

using Chunks = std::set<std::uint64_t>;  // of one tensor

class Cutter {
 public:
  Cutter(Trace trace, Bytes chunk) : trace_(std::move(trace)), chunk_(chunk.value), pieces_(trace_.tensors.size()) {
    for (const PageAccess& access : trace_.pages) {
      Chunks& touched = touched_[{access.op.value, access.tensor.value}];
      const std::uint64_t page = trace_.page_bytes.value;
      for (std::uint64_t c = access.pages.begin * page / chunk_; c * chunk_ < access.pages.end * page; ++c)
        touched.insert(c);
      ticks_.insert(access.op.value);
    }
  }

  Trace cut() {
    Trace out = trace_;
    out.pages.clear();
    out.tensors.clear();
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) cut_tensor(t, out);
    for (std::uint32_t i = 0; i < out.ops.size(); ++i) {
      for (auto list : {&Op::reads, &Op::writes, &Op::frees}) out.ops[i].*list = runs_of(trace_.ops[i].*list, i);
    }
    return out;
  }

 private:
  struct Piece {
    std::uint64_t first_chunk = 0;
    std::uint32_t tensor = 0;  // in the cut trace
  };

  // The chunks that the op's tick touched of one of its operands; nullptr: all of it, or nothing is known. A tick's
  // accesses stand at its last op.
  const Chunks* touched(std::uint32_t op, std::uint32_t t) const {
    const auto tick = ticks_.lower_bound(op);
    if (tick == ticks_.end()) return nullptr;
    const auto found = touched_.find({*tick, t});
    return found == touched_.end() ? nullptr : &found->second;
  }

  void cut_tensor(std::uint32_t t, Trace& out) {
    const Tensor& whole = trace_.tensors[t];
    const std::uint64_t chunks = (whole.bytes.value + chunk_ - 1) / chunk_;
    std::set<const Chunks*> uses;
    for (std::uint32_t i = 0; whole.persistent && chunks > 1 && i < trace_.ops.size(); ++i) {
      for (const auto* list : {&trace_.ops[i].reads, &trace_.ops[i].writes})
        if (std::binary_search(list->begin(), list->end(), TensorIndex{t})) uses.insert(touched(i, t));
    }
    uses.erase(nullptr);
    std::vector<bool> before;
    for (std::uint64_t c = 0; c < std::max<std::uint64_t>(chunks, 1); ++c) {
      std::vector<bool> use;
      for (const Chunks* each : uses) use.push_back(each->contains(c));
      if (c == 0 || use != before) {
        pieces_[t].push_back({.first_chunk = c, .tensor = static_cast<std::uint32_t>(out.tensors.size())});
        out.tensors.push_back(whole);
        out.tensors.back().bytes = {};
      }
      out.tensors.back().bytes += {std::min(chunk_, whole.bytes.value - std::min(whole.bytes.value, c * chunk_))};
      before = std::move(use);
    }
  }

  std::vector<TensorIndex> runs_of(const std::vector<TensorIndex>& operands, std::uint32_t op) const {
    std::vector<TensorIndex> found;
    for (const TensorIndex t : operands) {
      const Chunks* const used = pieces_[t.value].size() > 1 ? touched(op, t.value) : nullptr;
      for (const Piece& piece : pieces_[t.value])
        if (used == nullptr || used->contains(piece.first_chunk)) found.push_back({piece.tensor});
    }
    return found;
  }

  Trace trace_;
  std::uint64_t chunk_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Chunks> touched_;  // by tick and tensor
  std::set<std::uint32_t> ticks_;                                      // their last ops
  std::vector<std::vector<Piece>> pieces_;                             // by tensor, in order
};

}  // namespace

Machine machine_of_session(const Run& run) {
  Machine machine = run.machine;
  machine.tiers[0].capacity = run.budget;
  machine.habits = habits_of_sessions;
  // On a GPU a tensor moves whole, and chunks are only a way to name places.
  if (!machine.whole_tensors) machine.granule = run.chunk;
  return machine;
}

Trace simulated_trace(const Run& run) {
  Trace trace = steady_trace(run);
  const Profile& profile = *run.shown_profile();
  if (!profile.tracked || !profile.samples.empty() || run.chunk.value == 0) return trace;
  return Cutter(std::move(trace), run.chunk).cut();
}

}  // namespace vedette::report
