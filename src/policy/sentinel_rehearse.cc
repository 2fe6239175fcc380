// A step by Sentinel's plan, against the clock: two links, each working off its moves in order; one where they share a
// bus.
#include <algorithm>
#include <array>

#include "policy/sentinel_facts.h"
#include "policy/sentinel_plan.h"

namespace vedette::sentinel {
namespace {

class Rehearsal {
 public:
  Rehearsal(const Problem& problem, const Plan& plan)
      : ops_(problem.trace.ops), done_(plan.moves.size()), takes_(plan.moves.size()), time_(ops_.size()) {
    for (const Move& move : plan.moves) {
      const std::uint32_t t = move.extent.tensor.value, m = static_cast<std::uint32_t>(moves_.size());
      const bool fetch = move.verb == Verb::fetch;
      takes_[m] = fetch ? problem.facts.in_ns[t] : problem.facts.out_ns[t];
      moves_.push_back(
          {.issue = move.issue.value, .due = move.due.value, .fetch = fetch, .lane = problem.facts.shared || !fetch});
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) time_[i] = ops_[i].time.value;
    for (const InPlace& each : plan.in_place) {
      const Link* link = problem.machine.link(each.tier, {0});
      if (link)
        time_[each.op.value] += transfer_time(problem.trace.tensors[each.tensor.value].bytes, link->bytes_per_s).value;
    }
    list(issued_, first_issued_, [](const Short& move) { return move.issue; });
    list(due_, first_due_, [](const Short& move) { return move.due; });
  }

  // What the second of two steps takes; more than `limit`: it was left when it took longer.
  Nanoseconds time(Nanoseconds limit) {
    for (std::uint32_t i = 0; i < ops_.size(); ++i) play(i);
    const std::int64_t first_end = now_;
    for (std::uint32_t i = 0; i < ops_.size() && now_ - first_end <= limit.value; ++i) play(i);
    return {now_ - first_end};
  }

 private:
  struct Short {  // of a move
    std::uint32_t issue = 0, due = 0;
    bool fetch = false, lane = false;  // lane: which link
  };

  // Moves by op, in the plan's order.
  template <class OpOf>
  void list(std::vector<std::uint32_t>& listed, std::vector<std::uint32_t>& first, OpOf&& op_of) const {
    first.assign(ops_.size() + 1, 0);
    for (const Short& move : moves_) ++first[op_of(move) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<std::uint32_t> at(first.begin(), first.end() - 1);
    listed.resize(moves_.size());
    for (std::uint32_t m = 0; m < moves_.size(); ++m) listed[at[op_of(moves_[m])]++] = m;
  }

  void play(std::uint32_t op) {
    for (std::uint32_t k = first_due_[op]; k < first_due_[op + 1]; ++k) {
      const Short& move = moves_[due_[k]];
      if (move.due != move.issue || !move.fetch) now_ = std::max(now_, done_[due_[k]]);
    }
    for (std::uint32_t k = first_issued_[op]; k < first_issued_[op + 1]; ++k) {
      const Short& move = moves_[issued_[k]];
      if (!move.fetch) continue;
      start(issued_[k]);
      if (move.due == op) now_ = std::max(now_, done_[issued_[k]]);
    }
    now_ += time_[op];
    for (std::uint32_t k = first_issued_[op]; k < first_issued_[op + 1]; ++k) {
      if (!moves_[issued_[k]].fetch) start(issued_[k]);
    }
  }

  void start(std::uint32_t m) {
    std::int64_t& idle = idle_[moves_[m].lane ? 0 : 1];
    idle = std::max(idle, now_) + takes_[m];
    done_[m] = idle;
  }

  const std::vector<Op>& ops_;
  std::vector<std::int64_t> done_, takes_;  // [move]
  std::vector<std::int64_t> time_;          // [op]: its own, and what it uses in place
  std::vector<Short> moves_;
  std::vector<std::uint32_t> issued_, first_issued_, due_, first_due_;  // moves by op; where each op's begin
  std::array<std::int64_t, 2> idle_{};                                  // links: out, in
  std::int64_t now_ = 0;
};

}  // namespace

Nanoseconds predicted_time(const Problem& problem, const Plan& plan, Nanoseconds limit) {
  return Rehearsal(problem, plan).time(limit);
}

}  // namespace vedette::sentinel
