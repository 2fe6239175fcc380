// The needs of the op at hand, and the wait for them: operands that are away, and room for births and scratch. An op
// asks first (demand, want), then waits until it lacks nothing. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/inputs.h"
#include "sim/listener.h"
#include "sim/schedule.h"
#include "sim/traffic.h"

namespace vedette::sim {

class Waiting {
 public:
  Waiting(const Inputs& in, const Schedule& schedule, Traffic& traffic, Listener& listener)
      : in_(in), schedule_(schedule), pages_(in.trace), traffic_(traffic), listener_(listener) {}

  // Requests the tensor's missing pieces. With `bears`, pieces that are nowhere are born, once there is room. Error:
  // malformed_input where it is nowhere and not born here.
  std::optional<Error> demand(std::uint32_t op, std::uint32_t tensor, bool bears);
  void want(std::uint64_t bytes) { wanted_ += bytes; }  // of the fastest tier; the caller gives them back
  // Until the requested pieces are there. Error: infeasible where that can never be.
  std::optional<Error> until_ready(std::uint32_t op);

  bool in_place(std::uint32_t op, std::uint32_t piece) const;
  bool touched(std::uint32_t op, std::uint32_t piece) const {
    return pages_.touches(op, traffic_.piece(piece).tensor, traffic_.piece(piece).bytes);
  }
  void begin_op(std::uint64_t serial) { serial_ = serial; }
  std::uint32_t faults() const { return faults_; }  // waits with a fault in them, of all steps

 private:
  Error dropped(std::uint32_t op, std::uint32_t tensor) const;
  bool make_room(std::uint32_t op, std::uint64_t lacking);
  void fall_back(std::uint32_t op, std::uint64_t lacking);
  void claim_births();
  std::string name(std::uint32_t op) const { return "op " + std::to_string(op) + " '" + in_.trace.ops[op].name + "'"; }

  const Inputs& in_;
  const Schedule& schedule_;
  TouchedPages pages_;
  Traffic& traffic_;
  Listener& listener_;
  std::vector<std::uint32_t> born_;  // pieces that wait for room
  std::uint64_t wanted_ = 0;         // room that the op's births and scratch lack
  std::uint64_t serial_ = 0;         // of the op at hand
  std::uint32_t faults_ = 0;
  bool faulted_ = false;  // the op found an operand away with no fetch on its way
};

}  // namespace vedette::sim
