// AutoSwap: Zhang, Yeung, Shu, He, Wang, "Efficient Memory Management for GPU-based Deep Learning Systems", arXiv
// 1903.06631 (2019), after the code that was in Apache SINGA's history (swap_gpu.cc); its SmartPool is the allocator's
// affair.
//
// Kept: candidates are blocks whose two consecutive accesses straddle the op of peak load. Scores: DOA = how long it is
//   away less what both moves take; AOA = DOA x bytes (DOA / bytes where it is negative); WDOA = the time integral of
//   what the load is over the limit while it is away; SWDOA = WDOA on the load that is left after each choice; the vote
//   = the sum of ranks by DOA, AOA and WDOA. The best are taken until the updated load is below the limit. Evictions
//   start one after the other as their blocks become free; where the load would be over the limit first, the program
//   waits for them; fetches are scheduled backwards from their need, and later where the limit asks for it (the paper's
//   "stick to limit").
// Changed: peaks are taken one after the other until none is left (the code takes the one highest). Where the choice is
//   exhausted, the rest leaves on demand. Move times are the machine's links, not the paper's fit for one GPU.
// Not here: the Bayesian search for weights of a mixed score.
//
// Cost of prepare: O(peaks * gaps log gaps); SWDOA O(choices * (ops + gaps log gaps)), as the paper has it, up to a
// limit on work. Where that is reached, the plan's reasons say how many choices were ranked so.
#include <algorithm>
#include <string>

#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

enum class Score : std::uint8_t { doa, aoa, wdoa, swdoa, vote };

class AutoSwap final : public LedgerPolicy {
 public:
  AutoSwap(std::string_view name, Score score) : LedgerPolicy(name), score_(score) {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    const Clock clock(ledger.trace());
    std::vector<std::uint32_t> chosen;
    work_left_ = most_work;
    ranked_again_ = 0;
    while (!ledger.fits() && pick(ledger, clock, chosen)) {
    }
    schedule(ledger, clock, chosen);
    if (!ledger.settle()) return no_room(ledger);
    Plan plan = ledger.write();
    if (score_ == Score::swdoa && work_left_ == 0)
      plan.reasons.push_back(std::to_string(ranked_again_) + " of " + std::to_string(chosen.size()) +
                             " choices were made on the load that was left; its limit on work ended that, the rest "
                             "follow the order of then");
    return plan;
  }

  static std::int64_t both_moves(const Ledger& ledger, const Gap& gap) {
    const TierIndex tier = ledger.slow_tiers()[0];
    return move_time(ledger.machine(), {0}, tier, ledger.bytes(gap.tensor)) +
           move_time(ledger.machine(), tier, {0}, ledger.bytes(gap.tensor));
  }
  static double doa(const Ledger& ledger, const Clock& clock, const Gap& gap) {
    return static_cast<double>(clock.at(gap.before) - clock.at(gap.after + 1) - both_moves(ledger, gap));
  }
  static double aoa(const Ledger& ledger, const Clock& clock, const Gap& gap) {
    const double away = doa(ledger, clock, gap), bytes = static_cast<double>(ledger.size(gap.tensor)) + 1;
    return away >= 0 ? away * bytes : away / bytes;
  }
  // area[i]: bytes over the limit x time, before op i; two steps, for gaps that wrap.
  static std::vector<double> over_limit(const Ledger& ledger) {
    std::vector<double> area(2 * ledger.ops() + 1);
    for (std::uint32_t i = 0; i < 2 * ledger.ops(); ++i) {
      const auto over = static_cast<double>(std::max<std::int64_t>(ledger.load(i) - ledger.capacity(), 0));
      area[i + 1] = area[i] + over * static_cast<double>(ledger.trace().ops[i % ledger.ops()].time.value + 1);
    }
    return area;
  }

  // Takes gaps that straddle the op of peak load, until it is below the limit. False where none is left.
  bool pick(Ledger& ledger, const Clock& clock, std::vector<std::uint32_t>& chosen) {
    std::uint32_t peak = 0;
    for (std::uint32_t i = 1; i < ledger.ops(); ++i) {
      if (ledger.load(i) > ledger.load(peak)) peak = i;
    }
    std::vector<std::uint32_t> found;
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
      const Gap& gap = ledger.gaps()[g];
      const bool straddles = (gap.after < peak && peak < gap.before) ||
                             (gap.after < peak + ledger.ops() && peak + ledger.ops() < gap.before);
      if (straddles && !gap.dead && !ledger.absence(g)) found.push_back(g);
    }
    rank(ledger, clock, found);
    bool any = false;
    for (std::size_t next = 0; next < found.size() && ledger.load(peak) > ledger.capacity();) {
      if (score_ == Score::swdoa && any && may_rank_again(ledger, found.size() - next)) {
        found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(next));
        next = 0;
        rank(ledger, clock, found);
      }
      const std::uint32_t g = found[next++];
      Absence away = ledger.shortest(g);
      const auto tier = ledger.tier_for(g, away.leave);
      if (!tier) continue;
      away.tier = *tier;
      ledger.leave(g, away);
      chosen.push_back(g);
      any = true;
    }
    return any;
  }

  // Ranking on the load that is left costs a walk over the step for each choice, in the paper as here: quadratic. Some
  // ten seconds of it at most, of which no step of 10,000 ops needs half.
  static constexpr std::uint64_t most_work = 2'000'000'000;
  bool may_rank_again(const Ledger& ledger, std::size_t candidates) {
    const std::uint64_t work = 2 * ledger.ops() + 8 * candidates;
    work_left_ -= std::min(work_left_, work);
    if (work_left_ > 0) ++ranked_again_;
    return work_left_ > 0;
  }

  // The best first.
  void rank(const Ledger& ledger, const Clock& clock, std::vector<std::uint32_t>& found) const {
    const std::vector<double> area = over_limit(ledger);
    const auto value = [&](const Gap& gap, Score score) {
      if (score == Score::doa) return doa(ledger, clock, gap);
      return score == Score::aoa ? aoa(ledger, clock, gap) : area[gap.before] - area[gap.after + 1];
    };
    const auto sorted = [&](Score score) {
      std::vector<std::pair<double, std::uint32_t>> order;
      for (const std::uint32_t g : found) order.emplace_back(-value(ledger.gaps()[g], score), g);
      std::sort(order.begin(), order.end());
      return order;
    };
    if (score_ != Score::vote) {
      const auto order = sorted(score_);
      std::transform(order.begin(), order.end(), found.begin(), [](const auto& each) { return each.second; });
      return;
    }
    std::vector<std::size_t> votes(ledger.gaps().size());
    for (const Score score : {Score::doa, Score::aoa, Score::wdoa}) {
      std::size_t place = 0;
      for (const auto& each : sorted(score)) votes[each.second] += place++;
    }
    std::sort(found.begin(), found.end(),
              [&](std::uint32_t a, std::uint32_t b) { return std::pair(votes[a], a) < std::pair(votes[b], b); });
  }

  // Fetches backwards from their need, the last first, one link after the other; evictions one after the other.
  static void schedule(Ledger& ledger, const Clock& clock, std::vector<std::uint32_t> chosen) {
    queue_evictions(ledger);
    std::sort(chosen.begin(), chosen.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(ledger.gaps()[a].before, a) > std::pair(ledger.gaps()[b].before, b);
    });
    std::vector<std::int64_t> busy(ledger.machine().tiers.size(), INT64_MAX);
    for (const std::uint32_t g : chosen) {
      Absence away = *ledger.absence(g);
      const Gap& gap = ledger.gaps()[g];
      std::int64_t& until = busy[away.tier.value];
      until =
          std::min(until, clock.at(gap.before)) - move_time(ledger.machine(), away.tier, {0}, ledger.bytes(gap.tensor));
      away.back = std::clamp(clock.last_at_or_before(until), away.gone + 1, gap.before);
      const auto size = static_cast<std::int64_t>(ledger.size(gap.tensor));
      if (const auto full = ledger.last_over(away.back, gap.before, ledger.capacity() - size)) away.back = *full + 1;
      ledger.leave(g, away);
    }
  }

  Score score_;
  std::uint64_t work_left_ = most_work;  // bytes over the limit and scores that may still be computed
  std::size_t ranked_again_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_autoswap_doa(std::uint64_t) {
  return std::make_unique<AutoSwap>("autoswap-doa", Score::doa);
}
std::unique_ptr<Policy> make_autoswap_aoa(std::uint64_t) {
  return std::make_unique<AutoSwap>("autoswap-aoa", Score::aoa);
}
std::unique_ptr<Policy> make_autoswap_wdoa(std::uint64_t) {
  return std::make_unique<AutoSwap>("autoswap-wdoa", Score::wdoa);
}
std::unique_ptr<Policy> make_autoswap_swdoa(std::uint64_t) {
  return std::make_unique<AutoSwap>("autoswap-swdoa", Score::swdoa);
}
std::unique_ptr<Policy> make_autoswap_vote(std::uint64_t) {
  return std::make_unique<AutoSwap>("autoswap-vote", Score::vote);
}

}  // namespace vedette
