// "flashneuron+": FlashNeuron (FAST'21; see flashneuron.cc) as G10's artifact (MICRO'23, platformxlab/G10) simulates it
// for comparison.
//
// Kept: the selection: what forward leaves for backward goes to the furthest tier, in order of its first use, until the
//   rest fits beside weights and the largest op. The two-ended arena: weights, the largest workspace and what stays lie
//   from the left, what is chosen from the right, first fit, contiguous; an allocation that finds no room waits for
//   moves under way, and where none is left the step cannot run ("unsupported" in its tables). Backward begins when
//   every offload has ended. After each op of backward, the tensors needed next are fetched ahead, in order, while the
//   largest hole exceeds it and the largest op; else it is fetched by the op that needs it.
// Changed: all of this is played in prepare(), against a clock, and becomes a plan; its offload of a tensor that
//   forward needs again before it ended is given up. The artifact takes 0.7 % off the limit of the selection for one
//   network and batch size, because it "will crash" otherwise; here that is tried for every step that cannot run.
// Partial: as flashneuron.cc.
//
// Cost of prepare: O(operands x log holes), a dozen times that where there is no plan, to say from which size there is
// one.
#include <algorithm>
#include <deque>
#include <limits>

#include "policy/canvas/holes.h"
#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/phases.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Contiguous room from either end, first fit.
class Arena {
 public:
  explicit Arena(std::uint64_t bytes) { holes_.give({0, bytes}); }

  std::optional<std::uint64_t> take(std::uint64_t bytes, bool from_right) {
    const auto hole = from_right ? holes_.highest(bytes) : holes_.lowest(bytes);
    if (!hole) return std::nullopt;
    holes_.take(*hole);
    const std::uint64_t begin = from_right ? hole->end - bytes : hole->begin;
    holes_.give(from_right ? Holes::Hole{hole->begin, begin} : Holes::Hole{begin + bytes, hole->end});
    return begin;
  }
  void give(std::uint64_t begin, std::uint64_t bytes) { holes_.give({begin, begin + bytes}); }
  std::uint64_t largest() const { return holes_.largest(); }

 private:
  Holes holes_;
};

// The step as the artifact plays it: one queue out, one in, and the arena.
class Offloading {
 public:
  Offloading(const Ledger& ledger, std::uint32_t border, TierIndex tier, const std::vector<std::uint32_t>& chosen)
      : ledger_(ledger),
        border_(border),
        tier_(tier),
        arena_(static_cast<std::uint64_t>(ledger.capacity())),
        states_(ledger.trace().tensors.size()),
        ahead_(chosen) {
    for (const std::uint32_t g : chosen) {
      State& state = states_[ledger.gaps()[g].tensor];
      state.gap = g;
      state.absence = ledger.shortest(g);
      state.absence.tier = tier;
    }
    std::stable_sort(ahead_.begin(), ahead_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return ledger.gaps()[a].before < ledger.gaps()[b].before;
    });
  }

  // False: some allocation finds no room.
  bool play() {
    if (!place_what_stays()) return false;
    for (std::uint32_t op = 0; op < ledger_.ops(); ++op) {
      reached_ = op;
      if (op == border_) {
        while (!out_.empty()) advance();
      }
      for (const std::uint32_t t : ledger_.uses().operands[op]) {
        if (!ledger_.trace().tensors[t].persistent && !bring(t, op)) return false;
      }
      reached_ = op + 1;
      const std::int64_t end = now_ + ledger_.trace().ops[op].time.value;
      while (std::min(out_ends_, in_ends_) <= end) advance();
      now_ = end;
      finish(op);
      if (op >= border_) fetch_ahead(op);
    }
    return true;
  }

  // By tensor; those that stayed have `gap` none.
  struct State {
    std::uint32_t gap = none;
    Absence absence;
    std::optional<std::uint64_t> place;  // in the arena
    bool fetching = false, leaves = false;
  };
  const std::vector<State>& states() const { return states_; }

 private:
  bool place_what_stays() {
    std::uint64_t weights = 0, workspace = 0, largest = 0;
    for (std::uint32_t t = 0; t < states_.size(); ++t) {
      if (ledger_.trace().tensors[t].persistent && !ledger_.uses().tensors[t].uses.empty()) weights += ledger_.size(t);
    }
    for (std::uint32_t op = 0; op < ledger_.ops(); ++op) {
      const std::uint64_t scratch = rounded(ledger_.trace().ops[op].workspace.value, ledger_.machine().granule.value);
      std::uint64_t sum = scratch;
      for (const std::uint32_t t : ledger_.uses().operands[op])
        sum += ledger_.trace().tensors[t].persistent ? 0 : ledger_.size(t);
      workspace = std::max(workspace, scratch);
      largest = std::max(largest, sum);
    }
    kept_clear_ = largest;
    return (weights == 0 || arena_.take(weights, false)) && (workspace == 0 || arena_.take(workspace, false));
  }

  bool bring(std::uint32_t t, std::uint32_t op) {
    State& state = states_[t];
    if (state.leaves) {  // still on its way out, and needed: it stays
      state.leaves = false;
      state.gap = none;
      const auto queued = std::find(out_.begin(), out_.end(), t);
      if (queued != out_.begin()) out_.erase(queued);
    }
    if (!state.place) {
      while (!(state.place = arena_.take(ledger_.size(t), state.gap != none))) {
        if (out_.empty() && in_.empty()) return false;
        advance();
      }
      if (ledger_.uses().tensors[t].birth != op) fetch(t, op);
    }
    while (state.fetching) advance();
    return true;
  }

  void fetch(std::uint32_t t, std::uint32_t op) {
    states_[t].fetching = true;
    states_[t].absence.back = op;
    in_.push_back(t);
    if (in_.size() == 1) in_ends_ = now_ + move_time(ledger_.machine(), tier_, {0}, ledger_.bytes(t));
  }

  // The next move ends.
  void advance() {
    now_ = std::max(now_, std::min(out_ends_, in_ends_));
    if (out_ends_ <= in_ends_) {
      State& state = states_[out_.front()];
      if (state.leaves) {
        arena_.give(*state.place, ledger_.size(out_.front()));
        state.place.reset();
        state.leaves = false;
        state.absence.gone = reached_;
      }
      out_.pop_front();
      out_ends_ = out_.empty() ? never : now_ + move_time(ledger_.machine(), {0}, tier_, ledger_.bytes(out_.front()));
    } else {
      states_[in_.front()].fetching = false;
      in_.pop_front();
      in_ends_ = in_.empty() ? never : now_ + move_time(ledger_.machine(), tier_, {0}, ledger_.bytes(in_.front()));
    }
  }

  void finish(std::uint32_t op) {
    for (const std::uint32_t t : ledger_.uses().deaths[op]) {
      if (states_[t].place) arena_.give(*states_[t].place, ledger_.size(t));
      states_[t].place.reset();
    }
    for (const std::uint32_t t : ledger_.uses().operands[op]) {
      State& state = states_[t];
      if (state.gap == none || state.absence.leave != op) continue;
      state.leaves = true;
      out_.push_back(t);
      if (out_.size() == 1) out_ends_ = now_ + move_time(ledger_.machine(), {0}, tier_, ledger_.bytes(t));
    }
  }

  void fetch_ahead(std::uint32_t op) {
    const std::uint64_t hole = arena_.largest();
    std::uint64_t rest = hole > kept_clear_ ? hole - kept_clear_ : 0;
    for (; next_ < ahead_.size(); ++next_) {
      const Gap& gap = ledger_.gaps()[ahead_[next_]];
      State& state = states_[gap.tensor];
      if (gap.before <= op || state.gap == none || state.place) continue;
      if (rest <= ledger_.size(gap.tensor)) return;
      rest -= ledger_.size(gap.tensor);
      state.place = arena_.take(ledger_.size(gap.tensor), true);
      if (!state.place) return;
      fetch(gap.tensor, op + 1);
    }
  }

  const Ledger& ledger_;
  std::uint32_t border_;
  TierIndex tier_;
  Arena arena_;
  std::vector<State> states_;
  std::vector<std::uint32_t> ahead_;  // gaps by next use
  std::size_t next_ = 0;              // of those, the first that is not fetched
  std::deque<std::uint32_t> out_, in_;
  std::int64_t now_ = 0, out_ends_ = never, in_ends_ = never;
  std::uint32_t reached_ = 0;  // the op before which a move that ends now has ended
  std::uint64_t kept_clear_ = 0;
};

class FlashNeuronOfG10 final : public TrialPolicy {
 public:
  FlashNeuronOfG10() : TrialPolicy("flashneuron+", "what it may not move does not fit, or finds no contiguous room") {}

 private:
  std::optional<Plan> plan(const Trace& trace, const Machine& machine) const override {
    Ledger ledger(trace, machine);
    if (ledger.fits()) return ledger.write();
    const std::uint32_t border = first_backward_op(trace);
    for (const std::int64_t thousandths : {1000, 993}) {
      const auto chosen = select(ledger, border, ledger.capacity() / 1000 * thousandths);
      if (!chosen) continue;
      Offloading offloading(ledger, border, ledger.slow_tiers().back(), *chosen);
      if (!offloading.play()) continue;
      for (const Offloading::State& state : offloading.states()) {
        if (state.gap != none) ledger.leave(state.gap, state.absence);
      }
      if (!ledger.settle([](const Gap& gap) { return gap.dead; })) return std::nullopt;
      Plan made = ledger.write();
      made.barriers = {{border}};
      return made;
    }
    return std::nullopt;
  }

  // The gaps to spend away, the last one of each tensor that begins in forward; nullopt: the rest does not fit.
  static std::optional<std::vector<std::uint32_t>> select(const Ledger& ledger, std::uint32_t border,
                                                          std::int64_t capacity) {
    std::int64_t limit = capacity - static_cast<std::int64_t>(least_capacity(ledger).value), remain = 0;
    for (std::uint32_t t = 0; t < ledger.trace().tensors.size(); ++t) {
      if (ledger.trace().tensors[t].persistent && !ledger.uses().tensors[t].uses.empty())
        limit -= static_cast<std::int64_t>(ledger.size(t));
    }
    if (limit <= 0) return std::nullopt;
    std::vector<std::uint32_t> saved;  // tensors, by first use
    for (std::uint32_t op = 0; op < border; ++op) {
      for (const std::uint32_t t : ledger.uses().births[op]) {
        if (ledger.uses().tensors[t].death < border) continue;
        saved.push_back(t);
        remain += static_cast<std::int64_t>(ledger.size(t));
      }
    }
    std::vector<std::uint32_t> chosen;
    for (const std::uint32_t t : saved) {
      if (remain < limit) break;
      std::uint32_t last = none;
      for (std::uint32_t g = ledger.gaps_of(t).begin; g < ledger.gaps_of(t).end; ++g) {
        if (!ledger.gaps()[g].dead && ledger.gaps()[g].after < border) last = g;
      }
      if (last == none || !ledger.tier_for(last, ledger.gaps()[last].after, Ledger::From::furthest)) continue;
      chosen.push_back(last);
      remain -= static_cast<std::int64_t>(ledger.size(t));
    }
    if (remain > limit) return std::nullopt;
    return chosen;
  }
};

}  // namespace

std::unique_ptr<Policy> make_flashneuron_of_g10(std::uint64_t) { return std::make_unique<FlashNeuronOfG10>(); }

}  // namespace vedette
