// LMS v3: IBM's Large Model Support in the allocator (TensorFlow and PyTorch patches, 2019-2020), which DeepUM compares with; after the patch of
// bfc_allocator.cc and its document on internals.
//
// Kept: an op pins its inputs before it runs; afterwards they join the tail of a list of inactive tensors. Where an allocation fails, the
//   first of the list that is as large as the request leaves; where none is, all of them leave, so that fragments coalesce. What was
//   reclaimed at the same place before is paged out speculatively as soon as it is inactive. Pages come in when they are pinned: nothing
//   is fetched ahead.
// Changed: "as large as the request" is without the free neighbours that the allocator would count, since a plan has no addresses; room
//   that is free anyway is counted instead. The history of reclaims is that of the steps played before the planned one.
//
// Cost of prepare: O(steps * (accesses + evictions * resident tensors)).
#include <algorithm>
#include <limits>

#include "policy/makers.h"
#include "policy/residence.h"

namespace vedette {
namespace {

using namespace planning;

class ReclaimList final : public OnlineRules {
 public:
  void begins(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    const std::uint32_t op = now % ledger.ops();
    std::int64_t asked = static_cast<std::int64_t>(ledger.trace().ops[op].workspace.value);
    reclaim(residence, asked, asked);
    for (const std::uint32_t t : ledger.uses().operands[op]) {
      if (residence.near(t)) continue;
      asked += static_cast<std::int64_t>(ledger.size(t));
      reclaim(residence, asked, static_cast<std::int64_t>(ledger.size(t)));
    }
  }
  double worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) override { return residence.last_use(tensor); }

 private:
  // `asked` bytes by now, of which the last request is `request`.
  static void reclaim(Residence& residence, std::int64_t asked, std::int64_t request) {
    if (residence.room() >= asked) return;
    const std::int64_t lacking = std::min(request, asked - residence.room());
    std::vector<std::pair<std::uint32_t, std::uint32_t>> inactive;  // (last use, tensor)
    const auto& all = residence.in_order();
    auto rest = all.lower_bound({0, 0});
    for (auto each = all.begin(); each != rest; ++each) inactive.emplace_back(residence.last_use(each->second), each->second);
    std::sort(inactive.begin(), inactive.end());  // what nobody uses again, which takes its turn here
    std::size_t next = 0;
    std::vector<std::uint32_t> passed;
    while (next < inactive.size() || rest != all.end()) {
      const bool here = next < inactive.size() && (rest == all.end() || inactive[next] < std::pair(residence.last_use(rest->second), rest->second));
      const std::uint32_t t = here ? inactive[next++].second : (rest++)->second;
      if (residence.busy(t)) continue;
      if (static_cast<std::int64_t>(residence.ledger().size(t)) >= lacking) return residence.leave(t);
      passed.push_back(t);
    }
    for (const std::uint32_t t : passed) residence.leave(t);
  }
};

class LargeModelSupport final : public Policy {
 public:
  std::string_view name() const noexcept override { return "lms"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(name(), ledger)) return *error;
    if (ledger.fits()) return ledger.write();
    ReclaimList rules;
    Residence residence(ledger, rules);
    if (!residence.play(4)) return no_room(name(), ledger);
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {  // speculation: out as soon as it is inactive, gone when it was reclaimed
      if (!ledger.absence(g)) continue;
      Absence away = *ledger.absence(g);
      away.leave = ledger.gaps()[g].after;
      away.gone = std::min(away.gone, away.leave + ledger.ops() - 1);
      if (ledger.tier_for(g, away.leave) == away.tier) ledger.leave(g, away);
    }
    if (!ledger.settle({}, false)) return no_room(name(), ledger);
    Plan plan = ledger.write();
    plan.fallback = Fallback::least_recent;
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_lms(std::uint64_t) { return std::make_unique<LargeModelSupport>(); }

}  // namespace vedette
