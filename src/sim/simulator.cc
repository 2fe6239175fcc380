// Ops against the clock.
#include "sim/simulator.h"

#include <algorithm>
#include <string>

#include "sim/bars.h"
#include "sim/listener.h"
#include "sim/pager.h"
#include "sim/schedule.h"
#include "sim/traffic.h"
#include "sim/waiting.h"

namespace vedette::sim {
namespace {

using Place = Piece::Place;

class Simulation {
 public:
  Simulation(const Inputs& in, const Schedule& schedule)
      : in_(in),
        schedule_(schedule),
        traffic_(in.trace, in.machine, in.plan),
        listener_(in, traffic_),
        waiting_(in, schedule, traffic_, listener_) {}

  Result<Replayed> run();

 private:
  std::optional<Error> run_step(bool measured);
  std::optional<Error> run_op(std::uint32_t op);
  std::optional<Error> recompute(std::uint32_t op);
  std::optional<Error> run_producer(std::uint32_t producer, const std::vector<std::uint32_t>& wanted, std::uint32_t op);
  void queue_moves(std::uint32_t op, bool inward);
  void note_late(std::uint32_t op);
  void finish_op(std::uint32_t op);
  void spend(std::int64_t time);
  // Of the running step.
  const std::vector<Operand>& operands(std::uint32_t op) const {
    return in_.in_turn.empty() ? in_.step.operands[op] : in_.in_turn[step_number_ % in_.in_turn.size()][op];
  }
  std::int64_t time_of(std::uint32_t op) const;
  std::int64_t time_in_place(std::uint32_t op) const;
  void draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end);
  std::string name(std::uint32_t op) const { return "op " + std::to_string(op) + " '" + in_.trace.ops[op].name + "'"; }

  const Inputs& in_;
  const Schedule& schedule_;
  Traffic traffic_;
  Listener listener_;
  Waiting waiting_;
  std::uint64_t serial_ = 0, step_number_ = 0;
  std::int64_t recomputing_ = 0, step_began_ = 0;  // spent on it for the current op
  std::int64_t ideal_ns_ = 0, left_ns_ = 0;        // of ops: of a step, and of the running step's rest
  bool measuring_ = false;
  std::uint64_t remapped_ = 0;  // granules whose new places the program has paid for
  Replayed result_;
};

// ---- moves ----

void Simulation::queue_moves(std::uint32_t op, bool inward) {
  for (std::uint32_t m : schedule_.issued[op]) {
    if ((in_.plan.moves[m].verb == Verb::fetch) == inward) traffic_.queue(in_.plan.moves[m], m);
  }
}

void Simulation::note_late(std::uint32_t op) {
  if (!measuring_) return;
  for (std::uint32_t m : schedule_.due[op]) {
    if (in_.plan.moves[m].verb == Verb::drop) continue;
    const Span<std::uint32_t> range = traffic_.of_move(m);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      const Piece& piece = traffic_.piece(p);
      const bool inward = in_.plan.moves[m].verb == Verb::fetch;
      const bool travels = piece.place == Place::queued || piece.place == Place::moving;
      const bool late = inward ? (travels && piece.target == in_.plan.moves[m].target.value) ||
                                     (piece.place == Place::lies && piece.tier != in_.plan.moves[m].target.value)
                               : travels && piece.tier == in_.plan.moves[m].source.value;
      if (!late) continue;
      result_.measured.late.push_back(m);
      break;
    }
  }
}

// ---- recomputation ----

std::optional<Error> Simulation::run_producer(std::uint32_t producer, const std::vector<std::uint32_t>& makes,
                                              std::uint32_t op) {
  const Op& again = schedule_.producers[producer];
  const std::vector<Operand> operands = operands_of(again);
  const auto made = [&](std::uint32_t t) { return std::find(makes.begin(), makes.end(), t) != makes.end(); };
  std::uint64_t scratch = again.workspace.value;
  for (const Operand& each : operands) traffic_.pin(each.tensor);
  for (const Operand& each : operands) {
    if (each.write && made(each.tensor)) {
      if (auto error = waiting_.demand(producer, each.tensor, true)) return error;
    } else if (each.read) {
      if (auto error = waiting_.demand(producer, each.tensor, false)) return error;
    } else {
      const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
      for (std::uint32_t p = range.begin; p < range.end; ++p) scratch += traffic_.piece(p).room;
    }
  }
  waiting_.want(scratch);
  if (auto error = waiting_.until_ready(op)) return error;
  const std::int64_t began = traffic_.now();
  traffic_.start_jobs();
  spend(noisy_time(again, producer, step_number_, in_.options));
  traffic_.give(scratch);
  recomputing_ += traffic_.now() - began;
  if (measuring_) result_.recompute += Nanoseconds{traffic_.now() - began};
  draw(Bar::Kind::recompute, producer, began, traffic_.now());
  for (const Operand& each : operands) {
    const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      if (each.read || made(each.tensor)) traffic_.touch(p, made(each.tensor), serial_);
    }
    if (!made(each.tensor)) traffic_.unpin(each.tensor);  // a made tensor stays until its op has run
  }
  return std::nullopt;
}

std::optional<Error> Simulation::recompute(std::uint32_t op) {
  const std::span<const std::uint32_t> list = schedule_.recomputed[op];
  std::vector<std::uint32_t> pinned;
  for (std::size_t i = 0; i < list.size();) {
    const std::uint32_t producer = in_.plan.recomputations[list[i]].producer.value;
    std::vector<std::uint32_t> makes;
    for (; i < list.size() && in_.plan.recomputations[list[i]].producer.value == producer; ++i) {
      const std::uint32_t t = in_.plan.recomputations[list[i]].tensor.value;
      const Span<std::uint32_t> range = traffic_.of_tensor(t);
      const bool there = range.begin < range.end && traffic_.piece(range.begin).place != Place::nowhere;
      const std::vector<TensorIndex>& writes = schedule_.producers[producer].writes;
      if (!std::binary_search(writes.begin(), writes.end(), TensorIndex{t}))
        return Error{Cause::malformed_input,
                     "replay: " + name(producer) + " does not write the tensor it should recompute"};
      if (!there) makes.push_back(t);
    }
    if (makes.empty()) continue;
    if (auto error = run_producer(producer, makes, op)) return error;
    pinned.insert(pinned.end(), makes.begin(), makes.end());
  }
  // A tensor that the op itself does not need was a means: dead again where the trace holds it dead.
  for (std::uint32_t t : pinned) {
    traffic_.unpin(t);
    const auto uses = in_.step.uses[t];
    if (!in_.trace.tensors[t].persistent && uses.back() < op) {
      const Span<std::uint32_t> range = traffic_.of_tensor(t);
      for (std::uint32_t p = range.begin; p < range.end; ++p) traffic_.release(p);
    }
  }
  return std::nullopt;
}

// ---- an op ----

// An op runs for so long, and longer by the cost of the moves beside it.
void Simulation::spend(std::int64_t time) {
  const std::int64_t busy = traffic_.busy();
  time += static_cast<std::int64_t>(traffic_.remapped() - remapped_) * in_.machine.remap_time.value;
  remapped_ = traffic_.remapped();
  traffic_.advance_to(traffic_.now() + time);
  const std::int64_t more = (traffic_.busy() - busy) * in_.machine.interference_percent.value_or(0) / 100;
  if (more > 0) traffic_.advance_to(traffic_.now() + more);
}

std::int64_t Simulation::time_of(std::uint32_t op) const {
  return noisy_time(in_.trace.ops[op], op, step_number_, in_.options);
}

std::int64_t Simulation::time_in_place(std::uint32_t op) const {
  if (schedule_.in_place[op].empty()) return 0;
  std::int64_t time = 0;
  for (const Operand& each : operands(op)) {
    const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      if (!waiting_.in_place(op, p) || traffic_.piece(p).tier == 0 || !waiting_.touched(op, p)) continue;
      const TierIndex tier{traffic_.piece(p).tier};
      Bytes bytes{traffic_.piece(p).bytes.end - traffic_.piece(p).bytes.begin};
      if (each.used.value > 0) bytes = std::min(bytes, each.used);
      time +=
          in_.machine
              .time_in_place(in_.trace.ops[op].name, tier, each.read ? bytes : Bytes{}, each.write ? bytes : Bytes{})
              .value;
    }
  }
  return time;
}

void Simulation::draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end) {
  if (!measuring_ || !in_.options.timeline || begin == end) return;
  result_.timeline.push_back(bar_of_op(kind, op, {begin - step_began_, end - step_began_}));
}

void Simulation::finish_op(std::uint32_t op) {
  for (const Operand& each : operands(op)) {
    const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      if (traffic_.piece(p).place != Place::nowhere && waiting_.touched(op, p)) traffic_.touch(p, each.write, serial_);
    }
    traffic_.unpin(each.tensor);
  }
  for (std::uint32_t t : in_.step.deaths[op]) {
    const Span<std::uint32_t> range = traffic_.of_tensor(t);
    for (std::uint32_t p = range.begin; p < range.end; ++p) traffic_.bury(p);
    listener_.hear({.kind = Event::Kind::freed, .op = {op}, .tensor = {t}});
  }
  listener_.hear({.kind = Event::Kind::op_ends, .op = {op}});
  queue_moves(op, false);
  traffic_.start_jobs();
}

std::optional<Error> Simulation::run_op(std::uint32_t op) {
  const std::int64_t reached = traffic_.now();
  waiting_.begin_op(++serial_);
  recomputing_ = 0;
  listener_.hear({.kind = Event::Kind::op_begins, .op = {op}});
  if (schedule_.recomputed[op].empty()) {
    for (const Operand& each : operands(op)) traffic_.pin(each.tensor);
  }
  queue_moves(op, true);
  if (in_.machine.habits.early_fetches && op + 1 < in_.trace.ops.size()) queue_moves(op + 1, true);
  note_late(op);
  if (!schedule_.recomputed[op].empty()) {
    if (auto error = recompute(op)) return error;
    for (const Operand& each : operands(op)) traffic_.pin(each.tensor);
  }
  for (const Operand& each : operands(op)) {
    // A tensor made outside of the step's ops, a batch say, is there from the first op that reads it. Chunks of a table
    // persist, and have no uses in the step that stands for the others.
    const bool first = in_.step.born_at[each.tensor] == op;
    if (auto error = waiting_.demand(op, each.tensor, first || (each.write && !each.read))) return error;
  }
  const std::uint64_t workspace = in_.trace.ops[op].workspace.value;
  waiting_.want(workspace);
  if (auto error = waiting_.until_ready(op)) return error;
  const std::int64_t begins = traffic_.now();
  const std::int64_t stall = begins - reached - recomputing_;
  draw(Bar::Kind::wait, op, begins - stall, begins);
  for (std::uint32_t t : in_.step.births[op])
    listener_.hear({.kind = Event::Kind::allocated, .op = {op}, .tensor = {t}});
  traffic_.start_jobs();
  const std::int64_t beside = time_in_place(op);
  spend(time_of(op) + beside);
  draw(Bar::Kind::op, op, begins, traffic_.now());
  traffic_.give(workspace);
  finish_op(op);
  if (measuring_) {
    result_.measured.op_stall[op] = {stall + beside};
    result_.measured.stall += Nanoseconds{stall + beside};
  }
  return std::nullopt;
}

std::optional<Error> Simulation::run_step(bool measured) {
  measuring_ = measured;
  step_began_ = traffic_.now();
  left_ns_ = in_.options.noise_percent == 0 ? ideal_ns_ : 0;
  traffic_.measure(measured ? &result_ : nullptr, in_.options.timeline);
  if (measured || listener_.listens()) result_.measured = {};
  if (measured || listener_.listens()) result_.measured.op_stall.assign(in_.trace.ops.size(), {});
  measuring_ = measured || listener_.listens();
  const std::uint32_t faults = waiting_.faults(), moves = listener_.moves();
  for (std::uint32_t op = 0; op < in_.trace.ops.size(); ++op) {
    if (auto error = run_op(op)) return error;
    left_ns_ -= in_.trace.ops[op].time.value;
    if (measured && traffic_.now() - step_began_ + left_ns_ > in_.longest_ns)
      return Error{Cause::infeasible, "replay: the step takes longer than was asked for"};
  }
  if (measuring_) result_.faults = waiting_.faults() - faults;
  result_.reacted = listener_.moves() - moves;
  result_.step_times.push_back({traffic_.now() - step_began_});
  result_.measured.time = result_.step_times.back();
  std::sort(result_.measured.late.begin(), result_.measured.late.end());
  ++step_number_;
  return std::nullopt;
}

Result<Replayed> Simulation::run() {
  if (auto error = traffic_.prepare()) return *error;
  listener_.prepare();
  for (const Op& op : in_.trace.ops) ideal_ns_ += op.time.value;
  const std::uint32_t steps = std::max(1U, in_.options.steps);
  for (std::uint32_t number = 0; number < steps; ++number) {
    const bool last = number + 1 == steps;
    if (measuring_ || last) {
      Replayed fresh;
      fresh.step_times = std::move(result_.step_times);
      result_ = std::move(fresh);
    }
    if (auto error = run_step(last)) return *error;
    if (!listener_.listens()) continue;
    const Reaction reaction = listener_.tell({.kind = Event::Kind::step_ended, .measured = &result_.measured});
    if (reaction.replan && in_.replan != nullptr) {
      *in_.replan = true;
      return result_;
    }
    listener_.obey(reaction);
  }
  result_.ideal = {ideal_ns_};
  result_.peak = {traffic_.peak()};
  return result_;
}

}  // namespace

Result<Replayed> simulate(const Inputs& in) {
  if (in.machine.tiers.empty()) return Error{Cause::malformed_input, "replay: the machine has no tiers"};
  if (in.plan.paging && !in.in_turn.empty())
    return Error{Cause::unsupported, "replay: a driver that pages is replayed with steps that are alike only"};
  if (in.plan.paging) return page(in);
  const auto by_ops = schedule(in.trace, in.machine, in.plan);
  if (!by_ops) return by_ops.error();
  return Simulation(in, *by_ops).run();
}

}  // namespace vedette::sim
