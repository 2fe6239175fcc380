// The driver of memory that pages, tick by tick: its queues of blocks, its victims, and the transfers of its links. A
// block that is queued stays queued. The rules and their reasons are in sim/pager.cc. Pure.
#pragma once
#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "sim/arrivals.h"
#include "sim/blocks.h"
#include "sim/idle_ticks.h"
#include "sim/inputs.h"
#include "sim/meters.h"

namespace vedette::sim {

class Driver {
 public:
  explicit Driver(const Inputs& in);

  std::int64_t now() const { return now_; }
  std::uint8_t tier_of(std::uint32_t tensor) const;  // of its first block
  Bytes room(std::size_t tier) const;
  Bytes peak() const { return {peak_}; }  // of the fastest tier, persistent blocks that start there aside

  // Error: infeasible where an op's blocks exceed the fastest tier.
  std::optional<Error> start();  // all that persists lies at home
  void measure(Replayed* into);  // from now on; null: nothing
  void begin_op(std::uint32_t op);
  void hint(const Move& move);
  bool arrived(std::uint32_t op) const;  // all that the op touches
  // Requests the op's missing blocks. The time that this costs by the artifact's model: bytes over each link, those of
  // the fastest link with births and beside the busiest other one.
  std::int64_t fault(std::uint32_t op);
  std::optional<Error> wait(std::uint32_t op);  // until all has arrived; infeasible where it never does
  void advance_to(std::int64_t time);
  void bury(std::uint32_t op);  // blocks that die with it; queued ones stay

 private:
  using Queue = std::deque<std::uint32_t>;
  static constexpr std::uint32_t none = Arrivals::none;

  static bool any(const std::vector<Queue>& queues);
  bool faulting() const { return !faulted_births_.empty() || any(faulted_); }
  bool busy() const { return faulting() || !births_.empty() || any(leaving_) || any(fetched_); }
  bool tick();
  void pass_idle_ticks(std::int64_t most);
  void evict_as_told();
  void fetch_from(Queue& queue, std::uint8_t tier, bool faulted);
  void bear(Queue& queue, bool faulted);
  bool make_room(std::uint64_t bytes, bool faulted);
  std::uint32_t victim(bool faulted);
  bool may_evict() const;
  std::uint8_t place_for(std::uint64_t bytes, std::uint8_t wanted) const;
  void evict(std::uint32_t index, std::uint8_t target);
  void enqueue(std::uint32_t index, Queue& queue, bool awaited);
  void settle(std::uint32_t index);
  void await(Block& block);
  void await_no_more(Block& block);
  void forget(std::uint32_t tensor);
  void carry(const Block& block, std::uint8_t source, std::uint8_t target);
  void draw(const Block& block, std::uint8_t source, std::uint8_t target);
  bool windowed() const { return in_.plan.paging->window != 0; }
  bool persistent(std::uint32_t tensor) const {
    return tensor < in_.trace.tensors.size() && in_.trace.tensors[tensor].persistent;
  }
  bool alive(std::uint32_t tensor) const {
    return persistent(tensor) || (blocks_.born[tensor] <= op_ && op_ <= blocks_.dies[tensor]);
  }
  bool fits(std::uint64_t bytes) const { return used_[0] + bytes <= in_.machine.tiers[0].capacity.value; }

  const Inputs& in_;
  Blocks blocks_;
  Meters meters_;
  Arrivals arrivals_;
  std::vector<std::uint64_t> used_;                 // [tier]
  std::vector<Queue> leaving_, faulted_, fetched_;  // [tier]: to it, from it, from it
  Queue faulted_births_, births_;
  // [block]: the serial number of the op at hand, where it or its window needs it
  std::vector<std::uint64_t> needed_at_, window_at_;
  std::uint64_t serial_ = 0, awaited_ = 0, peak_ = 0;
  std::uint32_t op_ = 0;
  bool waiting_ = false, moved_ = false, changed_ = false;  // the last two: in the tick at hand
  IdleTicks idle_;
  std::int64_t now_ = 0, next_tick_ = 0;
  Replayed* into_ = nullptr;
  std::int64_t measured_from_ = 0;
};

}  // namespace vedette::sim
