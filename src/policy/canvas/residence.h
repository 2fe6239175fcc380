// An online policy, played op by op on the ledger: tensors are near or away, ops fetch missing operands, and a victim
// leaves when room is short. Several steps are played, so that the policy's tables and the tensors resident at the
// step's seam settle. The last decision about each gap becomes an absence. No clock: a move that is begun at an op
// takes its room from that op on. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "policy/canvas/ledger.h"

namespace vedette::planning {

class Residence;

// The rules of one policy. `now` counts ops through all steps; now % ops is the op. Calls for an op come in the order
// of their declaration.
class OnlineRules {
 public:
  virtual ~OnlineRules() = default;
  // Before the op's operands are fetched; may call Residence::leave.
  virtual void begins(Residence&, std::uint32_t /*now*/) {}
  // The op misses the tensor; a page fault where the program announces nothing.
  virtual void misses(Residence&, std::uint32_t /*now*/, std::uint32_t /*tensor*/) {}
  // The tensor came near or was used there, so that its next use is another one; and it is near no more.
  virtual void placed(const Residence&, std::uint32_t /*tensor*/) {}
  virtual void removed(std::uint32_t /*tensor*/) {}
  // The candidate with the smallest value leaves first, ties by index. Operands of the op are no candidates. Asked when
  // the tensor comes near and when it is used, so until the next of those it has to be the same. By default the last
  // use.
  virtual double worth(const Residence&, std::uint32_t now, std::uint32_t tensor);
  // It leaves only after all that are not spared, and not for fetches ahead.
  virtual bool spared(std::uint32_t /*now*/, std::uint32_t /*tensor*/) const { return false; }
  // The op's operands are near; may call Residence::fetch and Residence::leave.
  virtual void ready(Residence&, std::uint32_t /*now*/) {}
  // The op has ended; may call Residence::leave.
  virtual void ended(Residence&, std::uint32_t /*now*/) {}
};

class Residence {
 public:
  Residence(Ledger& ledger, OnlineRules& rules);

  // Plays so many steps, and writes the decision about each gap into the ledger. False: some op does not fit.
  bool play(std::uint32_t steps, Ledger::From from = Ledger::From::nearest);
  std::uint64_t misses() const { return misses_; }  // operands that were away when their op came

  const Ledger& ledger() const { return ledger_; }
  std::uint32_t now() const { return now_; }
  bool alive(std::uint32_t tensor) const { return state_[tensor].alive; }
  bool near(std::uint32_t tensor) const { return state_[tensor].near; }
  bool busy(std::uint32_t tensor) const { return state_[tensor].busy; }       // operand of the op that runs
  bool expected(std::uint32_t tensor) const { return state_[tensor].ahead; }  // fetched ahead and not used since
  std::uint32_t last_use(std::uint32_t tensor) const { return state_[tensor].used; }  // counted through all steps
  // when it was born or last fetched
  std::uint32_t arrived(std::uint32_t tensor) const { return state_[tensor].came; }
  std::uint32_t next_use(std::uint32_t tensor) const;  // after now; the largest number: none
  std::int64_t room() const { return ledger_.capacity() - used_; }

  // Fetches ahead of use, from the op at hand on. False, and nothing done, where it is near or dead, or there is no
  // room beside `spare`.
  bool fetch(std::uint32_t tensor, std::int64_t spare = 0);
  // Evicts after the op at hand (in `ended`), or so that it is gone before it. Dead and busy tensors stay.
  void leave(std::uint32_t tensor);
  // Makes room for so many bytes by the rules' worth, below `limit`; of spared tensors only where that is infinite.
  // False where candidates run out.
  static constexpr double all_but_spared = 1e300;
  bool make_room(std::int64_t bytes, double limit);
  // Tensors in fast memory, those that leave first first.
  const std::set<std::pair<double, std::uint32_t>>& in_order() const { return in_order_; }

 private:
  struct State {
    bool alive = false, near = false, busy = false, ahead = false;
    std::uint32_t used = 0, came = 0;
    std::uint32_t left = 0, back = 0;  // away: since which op it is on its way out; ahead: since which op on its way in
  };

  bool finished(std::uint32_t tensor) const;  // no use follows: it leaves first, without a transfer
  bool run(std::uint32_t op);
  bool bring(std::uint32_t tensor);
  void use(std::uint32_t tensor, std::uint32_t op);
  void appear(std::uint32_t tensor);
  void put_in_order(std::uint32_t tensor);
  void take_out_of_order(std::uint32_t tensor);
  void vanish(std::uint32_t tensor);
  void record(std::uint32_t tensor, std::uint32_t op);

  Ledger& ledger_;
  OnlineRules& rules_;
  std::uint32_t now_ = 0;  // from `ops` on: the step before the first one is when persistent tensors were used last
  bool after_op_ = false;
  std::uint64_t misses_ = 0;
  std::int64_t used_ = 0;
  std::vector<State> state_;
  std::vector<std::uint32_t> nearby_, place_;            // place_[t]: where t stands in nearby_
  std::set<std::pair<double, std::uint32_t>> in_order_;  // (worth, tensor) of those in fast memory
  std::vector<double> worth_;                            // [tensor]: by which it stands there
  std::vector<std::vector<std::uint32_t>> gap_before_;   // [tensor][use]: the gap that ends with it, or none
  std::vector<std::optional<Absence>> decided_;          // of each gap
};

}  // namespace vedette::planning
