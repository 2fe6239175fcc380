// The frame that published planners share: what each answers before its own rules are asked. Pure.
#pragma once
#include <optional>
#include <string_view>

#include "policy/canvas/ledger.h"
#include "policy/canvas/residence.h"
#include "vedette/policy.h"

namespace vedette::planning {

// Plans on one ledger. A step that fits as a whole moves nothing; one that no policy can run is refused.
class LedgerPolicy : public Policy {
 public:
  explicit LedgerPolicy(std::string_view name) : name_(name) {}
  std::string_view name() const noexcept final { return name_; }
  Result<Plan> prepare(const Trace& trace, const Machine& machine) final {
    Ledger ledger(trace, machine);
    if (auto error = refusal(ledger)) return *error;
    return ledger.fits() ? ledger.write() : decide(ledger);
  }

 private:
  virtual Result<Plan> decide(Ledger& ledger) = 0;  // of a step that does not fit
  std::string_view name_;
};

// Finds a plan or none. Where there is none it says `why`, and from which size of fast memory on there is one.
class TrialPolicy : public LedgerPolicy {
 public:
  TrialPolicy(std::string_view name, std::string_view why) : LedgerPolicy(name), why_(why) {}

 private:
  virtual std::optional<Plan> plan(const Trace& trace, const Machine& machine) const = 0;
  Result<Plan> decide(Ledger& whole) final {
    const auto works = [&](const Machine& machine) { return plan(whole.trace(), machine).has_value(); };
    if (auto found = plan(whole.trace(), whole.machine())) return *std::move(found);
    return too_small(whole, smallest_size(whole.machine(), whole.peak(), works), why_);
  }
  std::string_view why_;
};

// Plays a runtime's rules for some steps. What then still does not fit leaves on demand, the least recently used first.
template <class Rules>
class OnlinePolicy final : public LedgerPolicy {
 public:
  OnlinePolicy(std::string_view name, std::uint32_t steps, Ledger::From from = Ledger::From::nearest)
      : LedgerPolicy(name), steps_(steps), from_(from) {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    Rules rules(ledger);
    if (!Residence(ledger, rules).play(steps_, from_) || !ledger.settle({}, false)) return no_room(ledger);
    Plan plan = ledger.write();
    plan.fallback = Fallback::least_recent;
    return plan;
  }
  std::uint32_t steps_;
  Ledger::From from_;
};

}  // namespace vedette::planning
