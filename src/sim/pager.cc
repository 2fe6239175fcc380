// The driver that G10's artifact simulates (platformxlab/G10, MICRO'23: src/simulationEvents.cc,
// simulationComponents.cc), in blocks of Plan::block in place of pages of 4 KiB. It differs from the simulator next
// door in its authors' decisions:
//
// - Every tick moves one block's worth a link. Evictions come first, then faults of the op at hand, slowest tier first,
//   then its births. Fetches ahead and births ahead come last; each queue is in order. A queued block stays queued.
// - A block is in one place. The victim of a full fast tier is the block that *arrived* first, operands of the op at
//   hand included: those come back as faults of it. With a window, fetches ahead displace no block that the
//   next ops use, and wait.
// - An op whose missing blocks are all on their way runs meanwhile. It ends at the later of the last arrival and its
//   begin plus its own time. Where it misses a block with no request on its way, it adds that block's bytes over the
//   link, births included. (That is the artifact's performance_model. Its kernels' times with page faults come out as
//   0 there, so the bytes alone count.)
// - The chunks of the machine (Machine::granule) are ignored.
//
// Changed: ops' workspaces that are no tensors (workspaces_as_tensors) take room for the op and cost nothing else. A
// full host swaps places with a block that comes from it, where the artifact sends one page of a batch of 50 to the
// disk. Latencies do not exist there, nor here.
#include "sim/pager.h"

#include <algorithm>
#include <optional>

#include "sim/bars.h"
#include "sim/driver.h"

namespace vedette::sim {
namespace {

class Pager {
 public:
  explicit Pager(const Inputs& in)
      : in_(in), driver_(in), where_(in.trace.tensors.size()), room_(in.machine.tiers.size()) {}

  Result<Replayed> run();

 private:
  std::optional<Error> run_step(bool measured);
  std::optional<Error> run_op(std::uint32_t op);
  Reaction tell(const Event& event);
  void draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end);

  const Inputs& in_;
  Driver driver_;
  bool measuring_ = false;
  std::uint64_t step_number_ = 0;
  std::int64_t step_began_ = 0;
  std::vector<TierIndex> where_;
  std::vector<Bytes> room_;
  Replayed result_;
};

std::optional<Error> refuse(const Inputs& in) {
  const Plan& plan = in.plan;
  if (!plan.order.empty() || !plan.recomputations.empty() || !plan.in_place.empty() || !plan.moves.empty())
    return Error{Cause::unsupported, "replay: a plan that leaves paging to the driver says nothing else"};
  if (plan.block.value == 0)
    return Error{Cause::malformed_input,
                 "replay: a plan that leaves paging to the driver names the size of its blocks"};
  if (!plan.home.empty() && plan.home.size() != in.trace.tensors.size())
    return Error{Cause::malformed_input, "replay: the plan's home does not name each tensor of the trace"};
  if (std::any_of(plan.home.begin(), plan.home.end(),
                  [&](TierIndex home) { return home.value >= in.machine.tiers.size(); }))
    return Error{Cause::malformed_input, "replay: a home is a tier that does not exist"};
  return std::nullopt;
}

Reaction Pager::tell(const Event& event) {
  if (in_.policy == nullptr) return {};
  for (std::uint32_t t = 0; t < where_.size(); ++t) {
    if (const std::uint8_t tier = driver_.tier_of(t); tier != nowhere) where_[t] = {tier};
  }
  for (std::size_t k = 0; k < room_.size(); ++k) room_[k] = driver_.room(k);
  return in_.policy->react(event, {.trace = in_.trace, .machine = in_.machine, .where = where_, .room = room_});
}

std::optional<Error> Pager::run_op(std::uint32_t op) {
  const std::int64_t begins = driver_.now(), time = noisy_time(in_.trace.ops[op], op, step_number_, in_.options);
  driver_.begin_op(op);
  for (const Move& move : tell({.kind = Event::Kind::op_begins, .op = {op}}).moves) {
    driver_.hint(move);
    ++result_.reacted;
  }
  std::int64_t ends = begins + time;
  if (!driver_.arrived(op)) {
    ends += driver_.fault(op);
    if (auto error = driver_.wait(op)) return error;
    ends = std::max(ends, driver_.now());
  }
  driver_.advance_to(ends);
  const std::int64_t stall = ends - begins - time;
  draw(Bar::Kind::wait, op, begins, begins + stall);
  draw(Bar::Kind::op, op, begins + stall, ends);
  driver_.bury(op);
  if (measuring_) {
    result_.measured.op_stall[op] = {stall};
    result_.measured.stall += Nanoseconds{stall};
  }
  return std::nullopt;
}

void Pager::draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end) {
  if (!measuring_ || !in_.options.timeline || begin == end) return;
  result_.timeline.push_back(bar_of_op(kind, op, {begin - step_began_, end - step_began_}));
}

std::optional<Error> Pager::run_step(bool measured) {
  measuring_ = measured || in_.policy != nullptr;
  Replayed fresh;
  fresh.step_times = std::move(result_.step_times);
  result_ = std::move(fresh);
  driver_.measure(measuring_ ? &result_ : nullptr);
  result_.measured.op_stall.assign(in_.trace.ops.size(), {});
  step_began_ = driver_.now();
  for (std::uint32_t op = 0; op < in_.trace.ops.size(); ++op) {
    if (auto error = run_op(op)) return error;
  }
  result_.step_times.push_back({driver_.now() - step_began_});
  result_.measured.time = result_.step_times.back();
  result_.peak = driver_.peak();
  result_.paged = true;
  ++step_number_;
  return std::nullopt;
}

Result<Replayed> Pager::run() {
  if (auto error = driver_.start()) return *error;
  const std::uint32_t steps = std::max(1U, in_.options.steps);
  for (std::uint32_t number = 0; number < steps; ++number) {
    if (auto error = run_step(number + 1 == steps)) return *error;
    if (in_.policy == nullptr) continue;
    const Reaction reaction = tell({.kind = Event::Kind::step_ended, .measured = &result_.measured});
    if (reaction.replan && in_.replan != nullptr) {
      *in_.replan = true;
      return result_;
    }
  }
  for (const Op& op : in_.trace.ops) result_.ideal += op.time;
  return result_;
}

}  // namespace

Result<Replayed> page(const Inputs& in) {
  if (auto error = refuse(in)) return *error;
  return Pager(in).run();
}

}  // namespace vedette::sim
