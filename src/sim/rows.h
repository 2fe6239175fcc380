// Steps in a row that touch other chunks of tables each: the part of them that a simulation needs, and the part that a
// policy sees. Pure.
#pragma once
#include <vector>

#include "sim/step.h"
#include "vedette/policy.h"
#include "vedette/rows.h"

namespace vedette::sim {

struct InRows {
  // as policies see it: the trace, with as much always near as a session leaves to rows
  Trace planned;
  Trace run;                      // with every chunk of the tables as a tensor of its own that no op is known to use
  std::vector<Operands> in_turn;  // of the steps
  std::uint64_t room = 0;         // chunks of tables for which plans leave room
};
// The rows fit the trace (misfit()).
InRows in_rows(const Trace&, const Rows&, Bytes fast_memory);

// A policy as sessions ask it: it plans without the tables, and hears of nothing but the ends of steps. Borrows both.
class AsLive final : public Policy {
 public:
  AsLive(Policy& policy, const InRows& rows) : policy_(policy), rows_(rows) {}
  std::string_view name() const noexcept override { return policy_.name(); }
  Result<Plan> prepare(const Trace& run, const Machine& machine) override;
  Reaction react(const Event& event, const View& view) override;

 private:
  void leave_cold_ones(Plan& plan, const Trace& run) const;

  Policy& policy_;
  const InRows& rows_;
};

}  // namespace vedette::sim
