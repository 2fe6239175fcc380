// Belady with prefetch: no paper's system but a bound. Belady, "A study of replacement algorithms for a virtual-storage
// computer", IBM Systems Journal 5(2), 1966: the furthest next use leaves first. It knows the whole future, evicts as
// soon as a tensor has been used last before it goes, and fetches in order of next use as soon as there is room.
//
// Kept: the victim. Changed: tensors of any size leave, where pages are equal; they leave and come back ahead
// of demand, which the paper's paging does not.
//
// A fetch ahead never pushes out a tensor that is needed sooner. It is a bound on misses for tensors of equal size, not
// on time: a transfer may be longer than the time that it saves.
//
// Cost of prepare: O(steps * (accesses log + evictions * resident tensors)).
#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class FurthestNextUse final : public OnlineRules {
 public:
  double worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) override {
    return -static_cast<double>(residence.next_use(tensor));
  }

  void ready(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    for (std::uint32_t i = now + 1; i < now + 1 + window && i < now + ledger.ops(); ++i) {
      std::int64_t births = static_cast<std::int64_t>(ledger.trace().ops[i % ledger.ops()].workspace.value);
      for (const std::uint32_t t : ledger.uses().operands[i % ledger.ops()]) {
        if (residence.near(t)) continue;
        if (!residence.alive(t)) births += static_cast<std::int64_t>(ledger.size(t));
        if (residence.alive(t) &&
            !residence.make_room(static_cast<std::int64_t>(ledger.size(t)) + births, -static_cast<double>(i)))
          return;
        residence.fetch(t, births);
      }
    }
  }

 private:
  static constexpr std::uint32_t window = 64;  // ops: further ahead a fetch would only keep room from others
};

class Belady final : public LedgerPolicy {
 public:
  Belady() : LedgerPolicy("belady") {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    FurthestNextUse rules;
    if (!Residence(ledger, rules).play(3)) return no_room(ledger);
    evict_at_last_use(ledger);
    queue_evictions(ledger);
    if (!ledger.settle()) return no_room(ledger);
    return ledger.write();
  }
};

}  // namespace

std::unique_ptr<Policy> make_belady(std::uint64_t) { return std::make_unique<Belady>(); }

}  // namespace vedette
