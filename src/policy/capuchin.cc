// Capuchin: Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian, "Capuchin: Tensor-based GPU Memory Management for Deep
// Learning", ASPLOS'20. The text was not at hand: rules are from memory.
//
// Kept: candidates are gaps between two accesses that overlap the period in which memory is over its size. A gap's free
//   time is FT = (next access - swap time) - (last access + swap time). Candidates are swapped in order of FT while it
//   hides the swap; from then on the cheaper of the swap's exposed time and of recomputation by the best saving a
//   second (MSPS = bytes / time to recompute it) is taken, MSPS anew after each choice, until enough is saved.
//   A fetch is triggered by the access at which it has to begin to end in time, never inside the peak period; one that
//   was late begins 5 % of its time earlier in the next step. Recomputation is on demand. Collective recomputation:
//   a tensor that a chain makes on its way and another target needs is kept.
// Changed: passive mode (evict on demand, least recently used first) is what the rest of a plan that does not fit falls
//   back to; the measured execution is the trace. Where the machine cannot recompute, only swaps are compared.
//
// Cost of prepare: O(candidates * (candidates recomputed * producers)) at worst, and O((gaps + ops) log).
#include <algorithm>
#include <map>

#include "policy/canvas/recompute.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class Selection {
 public:
  Selection(Ledger& ledger, const std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>& sooner)
      : ledger_(ledger), again_(ledger), clock_(ledger.trace()), sooner_(sooner) {}

  void select() {
    struct Candidate {
      std::int64_t free_time;
      std::uint32_t gap;
    };
    std::vector<Candidate> order;
    for (std::uint32_t g = 0; g < ledger_.gaps().size(); ++g) {
      const Gap& gap = ledger_.gaps()[g];
      if (!gap.dead && over(gap)) order.push_back({free_time(g), g});
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Candidate& a, const Candidate& b) { return a.free_time > b.free_time; });
    for (const Candidate& each : order) {
      if (ledger_.fits()) return;
      const Gap& gap = ledger_.gaps()[each.gap];
      if (ledger_.absence(each.gap) || again_.pinned(each.gap) || !over(gap)) continue;
      if (each.free_time < 0 && recompute_if_cheaper(each.gap, -each.free_time)) continue;
      swap(each.gap);
    }
  }

  Recompute& again() { return again_; }

 private:
  bool over(const Gap& gap) const { return ledger_.most(gap.after + 1, gap.before) > ledger_.capacity(); }
  std::int64_t swap_time(std::uint32_t g, bool out) const {
    const std::vector<TierIndex> tiers = ledger_.slow_tiers();
    if (tiers.empty()) return 0;
    return out ? move_time(ledger_.machine(), {0}, tiers[0], ledger_.bytes(ledger_.gaps()[g].tensor))
               : move_time(ledger_.machine(), tiers[0], {0}, ledger_.bytes(ledger_.gaps()[g].tensor));
  }
  std::int64_t free_time(std::uint32_t g) const {
    const Gap& gap = ledger_.gaps()[g];
    return clock_.at(gap.before) - swap_time(g, false) - clock_.at(gap.after + 1) - swap_time(g, true);
  }

  bool recompute_if_cheaper(std::uint32_t g, std::int64_t exposed) {
    const auto chain = again_.chain(g);
    if (!chain || chain->time >= exposed || ledger_.load(ledger_.gaps()[g].before) + chain->bytes > ledger_.capacity())
      return false;
    again_.drop(g, *chain);
    return true;
  }

  void swap(std::uint32_t g) {
    const Gap& gap = ledger_.gaps()[g];
    Absence away = ledger_.shortest(g);
    const auto tier = ledger_.tier_for(g, away.leave);
    if (!tier) return;
    away.tier = *tier;
    const std::int64_t in = swap_time(g, false);
    const auto late = sooner_.find({gap.tensor, gap.before % ledger_.ops()});
    const std::int64_t ahead = in + in * (late == sooner_.end() ? 0 : late->second) / 20;
    std::uint32_t trigger = std::clamp(clock_.last_at_or_before(clock_.at(gap.before) - ahead), away.gone, gap.before);
    for (std::uint32_t i = gap.before; i-- > trigger;) {  // not inside the peak period
      if (ledger_.load(i) > ledger_.capacity()) trigger = i + 1;
    }
    away.back = std::max(trigger, away.gone);
    if (away.back == away.gone) away.back = gap.before;
    ledger_.leave(g, away);
  }

  Ledger& ledger_;
  Recompute again_;
  Clock clock_;
  const std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>& sooner_;
};

class Capuchin final : public Policy {
 public:
  std::string_view name() const noexcept override { return "capuchin"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(ledger)) return *error;
    if (ledger.fits()) return plan_ = ledger.write();
    Machine without = machine;
    without.can_recompute = false;
    for (const Machine* tried : {&machine, const_cast<const Machine*>(&without)}) {
      Ledger canvas(trace, *tried);
      Selection selection(canvas, sooner_);
      selection.select();
      queue_evictions(canvas);
      const auto may = [&](const Gap& gap) {
        return !selection.again().pinned(static_cast<std::uint32_t>(&gap - canvas.gaps().data()));
      };
      if (canvas.settle(may, false)) return plan_ = selection.again().write();
    }
    return no_room(ledger);
  }

  // Late fetches begin a twentieth of their time earlier, as long as that helps, at most twenty times.
  Reaction react(const Event& event, const View&) override {
    if (event.kind != Event::Kind::step_ended || event.measured == nullptr || rounds_ >= most_rounds) return {};
    bool changed = false;
    for (const std::uint32_t m : event.measured->late) {
      if (m >= plan_.moves.size() || plan_.moves[m].verb != Verb::fetch || plan_.moves[m].issue == plan_.moves[m].due)
        continue;
      ++sooner_[{plan_.moves[m].extent.tensor.value, plan_.moves[m].due.value}];
      changed = true;
    }
    rounds_ += changed;
    return {.replan = changed};
  }

 private:
  static constexpr std::uint32_t most_rounds = 20;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sooner_;  // (tensor, due op): how often it was late
  std::uint32_t rounds_ = 0;
  Plan plan_;
};

}  // namespace

std::unique_ptr<Policy> make_capuchin(std::uint64_t) { return std::make_unique<Capuchin>(); }

}  // namespace vedette
