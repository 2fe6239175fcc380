// Ops against the clock.
#include "sim/simulator.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "sim/pager.h"
#include "sim/traffic.h"

namespace vedette::sim {
namespace {

using Place = Piece::Place;

class Simulation {
 public:
  Simulation(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan,
             const ReplayOptions& options, Policy* policy, std::span<const Operands> in_turn)
      : trace_(trace),
        step_(step),
        machine_(machine),
        plan_(plan),
        options_(options),
        policy_(policy),
        in_turn_(in_turn),
        traffic_(trace, machine, plan) {}

  Result<Replayed> run(bool* replan);

 private:
  std::optional<Error> prepare();
  std::optional<Error> check_moves() const;
  void index_pages();
  std::optional<Error> run_step(bool measured);
  std::optional<Error> run_op(std::uint32_t op);
  std::optional<Error> recompute(std::uint32_t op);
  std::optional<Error> run_producer(std::uint32_t producer, const std::vector<std::uint32_t>& wanted, std::uint32_t op);
  std::optional<Error> demand(std::uint32_t op, std::uint32_t tensor, bool bears);
  std::optional<Error> demand_dropped(std::uint32_t op, std::uint32_t tensor);
  std::optional<Error> wait_until_ready(std::uint32_t op);
  bool make_room(std::uint32_t op, std::uint64_t lacking);
  void fall_back(std::uint32_t op, std::uint64_t lacking);
  void queue_moves(std::uint32_t op, bool inward);
  void queue_move(const Move& move, std::uint32_t number);
  void note_late(std::uint32_t op);
  void claim_births();
  void finish_op(std::uint32_t op);
  void spend(std::int64_t time);
  // Of the running step.
  const std::vector<Operand>& operands(std::uint32_t op) const {
    return in_turn_.empty() ? step_.operands[op] : in_turn_[step_number_ % in_turn_.size()][op];
  }
  std::int64_t time_of(std::uint32_t op) const;
  std::int64_t time_in_place(std::uint32_t op) const;
  bool in_place(std::uint32_t op, std::uint32_t piece) const;
  bool touched(std::uint32_t op, std::uint32_t piece) const;
  Reaction tell(const Event& event);
  void obey(const Reaction& reaction);
  void draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end);
  std::string name(std::uint32_t op) const { return "op " + std::to_string(op) + " '" + trace_.ops[op].name + "'"; }

  const Trace& trace_;
  const Step& step_;
  const Machine& machine_;
  const Plan& plan_;
  const ReplayOptions& options_;
  Policy* policy_;
  std::span<const Operands> in_turn_;
  Traffic traffic_;
  // of each op: moves, moves, tensors, recomputations
  std::vector<std::vector<std::uint32_t>> issued_, due_, in_place_, recomputed_;
  std::vector<char> barrier_;                // [op]: it waits for all evictions; empty: none does
  std::vector<std::uint32_t> first_access_;  // of each op, into Trace::pages; empty where no pages are known
  std::vector<std::uint32_t> born_;          // pieces that wait for room
  std::uint64_t wanted_ = 0;                 // room that the waiting op's births and workspace lack
  std::vector<std::uint32_t> resurrected_;   // tensors that recomputation made and the trace holds dead
  std::uint64_t serial_ = 0, step_number_ = 0;
  std::int64_t recomputing_ = 0, step_began_ = 0;  // spent on it for the current op
  bool measuring_ = false, faulted_ = false;
  std::uint64_t remapped_ = 0;  // granules whose new places the program has paid for
  std::vector<TierIndex> where_;
  std::vector<Bytes> room_;
  std::vector<Portion> parts_;
  Replayed result_;
};

std::optional<Error> Simulation::check_moves() const {
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) {
    const Move& move = plan_.moves[m];
    const bool there = move.issue.value < trace_.ops.size() && move.due.value < trace_.ops.size() &&
                       move.extent.tensor.value < trace_.tensors.size() && move.source.value < machine_.tiers.size() &&
                       move.target.value < machine_.tiers.size() &&
                       (move.verb == Verb::drop || machine_.link(move.source, move.target) != nullptr);
    if (!there)
      return Error{Cause::malformed_input, "replay: move " + std::to_string(m) + " names what does not exist"};
  }
  for (const Recomputation& each : plan_.recomputations) {
    if (each.before.value >= trace_.ops.size() || each.producer.value >= trace_.ops.size() ||
        each.tensor.value >= trace_.tensors.size())
      return Error{Cause::malformed_input, "replay: a recomputation names what does not exist"};
  }
  for (TierIndex home : plan_.home) {
    if (home.value >= machine_.tiers.size())
      return Error{Cause::malformed_input, "replay: a home is a tier that does not exist"};
  }
  return std::nullopt;
}

std::optional<Error> Simulation::prepare() {
  if (!plan_.order.empty()) return Error{Cause::unsupported, "replay: changed orders are not replayed"};
  if (!plan_.recomputations.empty() && !machine_.can_recompute)
    return Error{Cause::unsupported, "replay: the plan recomputes, which this machine cannot do"};
  if (!plan_.home.empty() && plan_.home.size() != trace_.tensors.size())
    return Error{Cause::malformed_input, "replay: the plan's home does not name each tensor of the trace"};
  if (auto error = check_moves()) return error;
  const std::size_t ops = trace_.ops.size();
  issued_.resize(ops), due_.resize(ops), in_place_.resize(ops), recomputed_.resize(ops);
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) {
    issued_[plan_.moves[m].issue.value].push_back(m);
    due_[plan_.moves[m].due.value].push_back(m);
  }
  for (const InPlace& each : plan_.in_place) {
    if (each.op.value < ops) in_place_[each.op.value].push_back(each.tensor.value);
  }
  for (std::uint32_t r = 0; r < plan_.recomputations.size(); ++r)
    recomputed_[plan_.recomputations[r].before.value].push_back(r);
  if (!plan_.barriers.empty()) barrier_.resize(ops);
  for (OpIndex each : plan_.barriers) {
    if (each.value < ops) barrier_[each.value] = 1;
  }
  index_pages();
  if (auto error = traffic_.prepare()) return error;
  if (policy_ != nullptr) {
    parts_.resize(traffic_.pieces().size());
    for (std::uint32_t p = 0; p < parts_.size(); ++p) {
      const Piece& piece = traffic_.piece(p);
      parts_[p] = {.state = piece.place == Place::nowhere ? Portion::State::absent : Portion::State::lies,
                   .tensor = {piece.tensor},
                   .bytes = {{piece.bytes.begin}, {piece.bytes.end}},
                   .tier = {piece.tier}};
    }
    traffic_.parts = &parts_;
    where_.resize(trace_.tensors.size());
    room_.resize(machine_.tiers.size());
  }
  return std::nullopt;
}

void Simulation::index_pages() {
  if (trace_.pages.empty()) return;
  first_access_.assign(trace_.ops.size() + 1, 0);
  std::uint32_t at = 0;
  for (std::uint32_t op = 0; op <= trace_.ops.size(); ++op) {
    while (at < trace_.pages.size() && trace_.pages[at].op.value < op) ++at;
    first_access_[op] = at;
  }
}

// Where pages were tracked, an op touches only those that were seen; else all of each operand.
bool Simulation::touched(std::uint32_t op, std::uint32_t index) const {
  if (first_access_.empty()) return true;
  const Piece& piece = traffic_.piece(index);
  bool tracked = false;
  for (std::uint32_t a = first_access_[op]; a < first_access_[op + 1]; ++a) {
    const PageAccess& access = trace_.pages[a];
    if (access.tensor.value != piece.tensor) continue;
    tracked = true;
    const std::uint64_t page = trace_.page_bytes.value;
    if (access.pages.begin * page < piece.bytes.end && piece.bytes.begin < access.pages.end * page) return true;
  }
  return !tracked;
}

// ---- the policy ----

Reaction Simulation::tell(const Event& event) {
  if (policy_ == nullptr) return {};
  for (std::uint32_t t = 0; t < where_.size(); ++t) {
    const Span<std::uint32_t> range = traffic_.of_tensor(t);
    if (range.begin < range.end) where_[t] = {traffic_.piece(range.begin).tier};
  }
  for (std::uint32_t k = 0; k < room_.size(); ++k) room_[k] = {traffic_.free_room(k)};
  return policy_->react(event, {.trace = trace_, .machine = machine_, .where = where_, .room = room_, .parts = parts_});
}

void Simulation::obey(const Reaction& reaction) {
  for (const Move& move : reaction.moves) {
    if (move.extent.tensor.value < trace_.tensors.size() && move.target.value < machine_.tiers.size())
      queue_move(move, none);
  }
}

// ---- moves ----

void Simulation::queue_move(const Move& move, std::uint32_t number) {
  const Span<std::uint32_t> range = number == none ? traffic_.inside(move.extent) : traffic_.of_move(number);
  for (std::uint32_t p = range.begin; p < range.end; ++p) {
    const Piece& piece = traffic_.piece(p);
    if (move.verb == Verb::drop) {
      if (!traffic_.pinned(piece.tensor)) traffic_.drop(p);
    } else if (piece.place != Place::nowhere) {
      const bool away_from_there =
          piece.place == Place::lies && piece.tier != move.source.value && move.verb == Verb::evict;
      if (!away_from_there) traffic_.move(p, move.target.value, number, false);
    }
  }
}

void Simulation::queue_moves(std::uint32_t op, bool inward) {
  for (std::uint32_t m : issued_[op]) {
    if ((plan_.moves[m].verb == Verb::fetch) == inward) queue_move(plan_.moves[m], m);
  }
}

void Simulation::note_late(std::uint32_t op) {
  if (!measuring_) return;
  for (std::uint32_t m : due_[op]) {
    if (plan_.moves[m].verb == Verb::drop) continue;
    const Span<std::uint32_t> range = traffic_.of_move(m);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      const Piece& piece = traffic_.piece(p);
      const bool inward = plan_.moves[m].verb == Verb::fetch;
      const bool travels = piece.place == Place::queued || piece.place == Place::moving;
      const bool late = inward ? (travels && piece.target == plan_.moves[m].target.value) ||
                                     (piece.place == Place::lies && piece.tier != plan_.moves[m].target.value)
                               : travels && piece.tier == plan_.moves[m].source.value;
      if (!late) continue;
      result_.measured.late.push_back(m);
      break;
    }
  }
}

// ---- waiting ----

bool Simulation::in_place(std::uint32_t op, std::uint32_t index) const {
  const Piece& piece = traffic_.piece(index);
  const std::vector<std::uint32_t>& there = in_place_[op];
  return piece.place == Place::lies && machine_.tiers[piece.tier].addressable &&
         std::find(there.begin(), there.end(), piece.tensor) != there.end();
}

// Asks for what the op lacks of the tensor; what it bears waits for room.
std::optional<Error> Simulation::demand(std::uint32_t op, std::uint32_t tensor, bool bears) {
  const Span<std::uint32_t> range = traffic_.of_tensor(tensor);
  for (std::uint32_t p = range.begin; p < range.end; ++p) {
    const Piece& piece = traffic_.piece(p);
    if (piece.dead) traffic_.touch(p, true, serial_);
    if (piece.place == Place::nowhere) {
      if (!bears) return demand_dropped(op, tensor);
      const std::uint32_t home = plan_.home.empty() ? 0 : plan_.home[tensor].value;
      if (home != 0 && machine_.tiers[home].addressable) {
        traffic_.place(p, home);
      } else {
        born_.push_back(p);
        wanted_ += piece.room;
      }
      continue;
    }
    if (!touched(op, p) || in_place(op, p)) continue;
    if (!traffic_.await(p)) continue;
    faulted_ = true;
    traffic_.note_unplanned();
    if (policy_ != nullptr) obey(tell({.kind = Event::Kind::touched_while_away, .op = {op}, .tensor = {tensor}}));
  }
  return std::nullopt;
}

std::optional<Error> Simulation::demand_dropped(std::uint32_t op, std::uint32_t tensor) {
  return Error{Cause::malformed_input, "replay: " + name(op) + " reads tensor " + std::to_string(tensor) + " '" +
                                           trace_.tensors[tensor].name +
                                           "', which was dropped or is dead, and nothing makes it again"};
}

// Evicts by the plan's fallback what no op in sight of the current one needs, until the room is on its way.
void Simulation::fall_back(std::uint32_t op, std::uint64_t lacking) {
  struct Candidate {
    std::uint64_t first = 0, second = 0;  // ascending: who leaves first
    std::uint32_t piece = 0;
  };
  constexpr std::uint64_t unknown = std::numeric_limits<std::uint64_t>::max();
  std::vector<Candidate> all;
  for (std::uint32_t p = 0; p < traffic_.pieces().size(); ++p) {
    const Piece& piece = traffic_.piece(p);
    if (piece.place != Place::lies || piece.tier != 0 || traffic_.pinned(piece.tensor)) continue;
    const std::uint64_t next = piece.dead ? unknown : next_use(step_, trace_, piece.tensor, op + 1);
    // nobody knows of a use: as the engine
    const std::uint64_t idle_since = next == unknown && !piece.dead ? piece.last_use + 1 : 0;
    all.push_back({plan_.fallback == Fallback::furthest ? ~next : piece.last_use, idle_since, p});
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.first, a.second, a.piece) < std::tie(b.first, b.second, b.piece);
  });
  for (const Candidate& each : all) {
    if (traffic_.free_room(0) + traffic_.leaving() >= lacking) return;
    if (machine_.tiers.size() < 2 && !traffic_.piece(each.piece).dead) return;
    traffic_.note_unplanned();
    traffic_.move(each.piece, 1, none, false);
  }
}

// True when room became free or is on its way.
bool Simulation::make_room(std::uint32_t op, std::uint64_t lacking) {
  const std::uint64_t before = traffic_.free_room(0) + traffic_.leaving();
  if (policy_ != nullptr)
    obey(tell({.kind = Event::Kind::short_of_room,
               .op = {op},
               .tensor = {},
               .bytes = {lacking - std::min(lacking, before)}}));
  if (traffic_.free_room(0) + traffic_.leaving() < lacking) fall_back(op, lacking);
  return traffic_.free_room(0) + traffic_.leaving() > before;
}

void Simulation::claim_births() {
  if (wanted_ == 0 || !traffic_.take(wanted_)) return;
  for (std::uint32_t p : born_) {
    traffic_.give(traffic_.piece(p).room);
    traffic_.place(p, 0);
  }
  born_.clear();
  wanted_ = 0;
}

std::optional<Error> Simulation::wait_until_ready(std::uint32_t op) {
  if (faulted_) {
    if (measuring_) ++result_.faults;
    traffic_.advance_to(traffic_.now() + machine_.fault_time.value);
    faulted_ = false;
  }
  for (;;) {
    traffic_.keep_clear(wanted_);
    traffic_.start_jobs();
    claim_births();
    const bool ready = wanted_ == 0 && traffic_.awaited() == 0;
    const bool held = !barrier_.empty() && barrier_[op] != 0 && traffic_.leaving() > 0;
    if (ready && (!held || traffic_.next_end() == never)) break;
    const std::uint64_t lacking = wanted_ + traffic_.awaited_room();
    bool more = false;
    if (traffic_.free_room(0) + traffic_.leaving() < lacking) {
      more = make_room(op, lacking);
      traffic_.start_jobs();
    }
    const std::int64_t end = traffic_.next_end();
    if (end == never) {
      if (more) continue;
      return Error{Cause::infeasible,
                   "replay: " + name(op) + " needs more than the fastest tier has, or waits for what never comes"};
    }
    if (!more || traffic_.free_room(0) < lacking) traffic_.advance_to(end);
  }
  traffic_.keep_clear(0);
  return std::nullopt;
}

// ---- recomputation ----

std::optional<Error> Simulation::run_producer(std::uint32_t producer, const std::vector<std::uint32_t>& makes,
                                              std::uint32_t op) {
  const std::vector<Operand>& operands = step_.operands[producer];
  const auto made = [&](std::uint32_t t) { return std::find(makes.begin(), makes.end(), t) != makes.end(); };
  std::uint64_t scratch = trace_.ops[producer].workspace.value;
  for (const Operand& each : operands) traffic_.pin(each.tensor);
  for (const Operand& each : operands) {
    if (each.write && made(each.tensor)) {
      if (auto error = demand(producer, each.tensor, true)) return error;
    } else if (each.read) {
      if (auto error = demand(producer, each.tensor, false)) return error;
    } else {
      const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
      for (std::uint32_t p = range.begin; p < range.end; ++p) scratch += traffic_.piece(p).room;
    }
  }
  wanted_ += scratch;
  if (auto error = wait_until_ready(op)) return error;
  const std::int64_t began = traffic_.now();
  traffic_.start_jobs();
  spend(time_of(producer));
  traffic_.give(scratch);
  recomputing_ += traffic_.now() - began;
  if (measuring_) result_.recompute += Nanoseconds{traffic_.now() - began};
  draw(Bar::Kind::recompute, producer, began, traffic_.now());
  for (const Operand& each : operands) {
    const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      if (each.read || made(each.tensor)) traffic_.touch(p, made(each.tensor), serial_);
    }
    if (!made(each.tensor)) traffic_.unpin(each.tensor);  // what was made stays until its op has run
  }
  return std::nullopt;
}

std::optional<Error> Simulation::recompute(std::uint32_t op) {
  const std::vector<std::uint32_t>& list = recomputed_[op];
  std::vector<std::uint32_t> pinned;
  for (std::size_t i = 0; i < list.size();) {
    const std::uint32_t producer = plan_.recomputations[list[i]].producer.value;
    std::vector<std::uint32_t> makes;
    for (; i < list.size() && plan_.recomputations[list[i]].producer.value == producer; ++i) {
      const std::uint32_t t = plan_.recomputations[list[i]].tensor.value;
      const Span<std::uint32_t> range = traffic_.of_tensor(t);
      const bool there = range.begin < range.end && traffic_.piece(range.begin).place != Place::nowhere;
      const bool written = std::any_of(step_.operands[producer].begin(), step_.operands[producer].end(),
                                       [&](const Operand& o) { return o.tensor == t && o.write; });
      if (!written)
        return Error{Cause::malformed_input,
                     "replay: " + name(producer) + " does not write the tensor it should make again"};
      if (!there) makes.push_back(t);
    }
    if (makes.empty()) continue;
    if (auto error = run_producer(producer, makes, op)) return error;
    pinned.insert(pinned.end(), makes.begin(), makes.end());
  }
  // What is not needed by the op itself was a means: dead again where the trace holds it dead.
  for (std::uint32_t t : pinned) {
    traffic_.unpin(t);
    const std::vector<std::uint32_t>& uses = step_.uses[t];
    if (!trace_.tensors[t].persistent && uses.back() < op) {
      const Span<std::uint32_t> range = traffic_.of_tensor(t);
      for (std::uint32_t p = range.begin; p < range.end; ++p) traffic_.release(p);
    }
  }
  return std::nullopt;
}

// ---- an op ----

// An op runs for so long, and for what the moves beside it cost it.
void Simulation::spend(std::int64_t time) {
  const std::int64_t busy = traffic_.busy();
  time += static_cast<std::int64_t>(traffic_.remapped() - remapped_) * machine_.remap_time.value;
  remapped_ = traffic_.remapped();
  traffic_.advance_to(traffic_.now() + time);
  const std::int64_t more = (traffic_.busy() - busy) * machine_.interference_percent.value_or(0) / 100;
  if (more > 0) traffic_.advance_to(traffic_.now() + more);
}

std::int64_t Simulation::time_of(std::uint32_t op) const {
  return noisy_time(trace_.ops[op], op, step_number_, options_);
}

std::int64_t Simulation::time_in_place(std::uint32_t op) const {
  if (in_place_[op].empty()) return 0;
  std::int64_t time = 0;
  for (const Operand& each : operands(op)) {
    const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      if (!in_place(op, p) || traffic_.piece(p).tier == 0 || !touched(op, p)) continue;
      const TierIndex tier{traffic_.piece(p).tier};
      const Bytes bytes{traffic_.piece(p).bytes.end - traffic_.piece(p).bytes.begin};
      const Link* in = machine_.link(tier, {0});
      const Link* out = machine_.link({0}, tier);
      if (each.read && in != nullptr) time += transfer_time(bytes, in->bytes_per_s).value;
      if (each.write && out != nullptr) time += transfer_time(bytes, out->bytes_per_s).value;
    }
  }
  return time;
}

void Simulation::draw(Bar::Kind kind, std::uint32_t op, std::int64_t begin, std::int64_t end) {
  if (!measuring_ || !options_.timeline || begin == end) return;
  result_.timeline.push_back({.kind = kind,
                              .op = {op},
                              .tensor = {},
                              .source = {},
                              .target = {},
                              .bytes = {},
                              .time = {{begin - step_began_}, {end - step_began_}}});
}

void Simulation::finish_op(std::uint32_t op) {
  for (const Operand& each : operands(op)) {
    const Span<std::uint32_t> range = traffic_.of_tensor(each.tensor);
    for (std::uint32_t p = range.begin; p < range.end; ++p) {
      if (traffic_.piece(p).place != Place::nowhere && touched(op, p)) traffic_.touch(p, each.write, serial_);
    }
    traffic_.unpin(each.tensor);
  }
  for (std::uint32_t t : step_.deaths[op]) {
    const Span<std::uint32_t> range = traffic_.of_tensor(t);
    for (std::uint32_t p = range.begin; p < range.end; ++p) traffic_.bury(p);
    if (policy_ != nullptr) obey(tell({.kind = Event::Kind::freed, .op = {op}, .tensor = {t}}));
  }
  if (policy_ != nullptr) obey(tell({.kind = Event::Kind::op_ends, .op = {op}, .tensor = {}}));
  queue_moves(op, false);
  traffic_.start_jobs();
}

std::optional<Error> Simulation::run_op(std::uint32_t op) {
  const std::int64_t reached = traffic_.now();
  ++serial_;
  recomputing_ = 0;
  if (policy_ != nullptr) obey(tell({.kind = Event::Kind::op_begins, .op = {op}, .tensor = {}}));
  if (recomputed_[op].empty()) {
    for (const Operand& each : operands(op)) traffic_.pin(each.tensor);
  }
  queue_moves(op, true);
  if (machine_.habits.early_fetches && op + 1 < trace_.ops.size()) queue_moves(op + 1, true);
  note_late(op);
  if (!recomputed_[op].empty()) {
    if (auto error = recompute(op)) return error;
    for (const Operand& each : operands(op)) traffic_.pin(each.tensor);
  }
  for (const Operand& each : operands(op)) {
    // What the step made outside of its ops, a batch say, is there from the first op that reads it.
    // Chunks of a table persist, and have no uses in the step that stands for the others.
    const bool first = !trace_.tensors[each.tensor].persistent && step_.uses[each.tensor].front() == op;
    if (auto error = demand(op, each.tensor, first || (each.write && !each.read))) return error;
  }
  const std::uint64_t workspace = trace_.ops[op].workspace.value;
  wanted_ += workspace;
  if (auto error = wait_until_ready(op)) return error;
  const std::int64_t begins = traffic_.now();
  const std::int64_t stall = begins - reached - recomputing_;
  draw(Bar::Kind::wait, op, begins - stall, begins);
  if (policy_ != nullptr) {
    for (std::uint32_t t : step_.births[op]) obey(tell({.kind = Event::Kind::allocated, .op = {op}, .tensor = {t}}));
  }
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
  traffic_.measure(measured ? &result_ : nullptr, options_.timeline);
  if (measured || policy_ != nullptr) result_.measured = {};
  if (measured || policy_ != nullptr) result_.measured.op_stall.assign(trace_.ops.size(), {});
  measuring_ = measured || policy_ != nullptr;
  for (std::uint32_t op = 0; op < trace_.ops.size(); ++op) {
    if (auto error = run_op(op)) return error;
  }
  result_.step_times.push_back({traffic_.now() - step_began_});
  result_.measured.time = result_.step_times.back();
  std::sort(result_.measured.late.begin(), result_.measured.late.end());
  ++step_number_;
  return std::nullopt;
}

Result<Replayed> Simulation::run(bool* replan) {
  if (auto error = prepare()) return *error;
  const std::uint32_t steps = std::max(1U, options_.steps);
  for (std::uint32_t number = 0; number < steps; ++number) {
    const bool last = number + 1 == steps;
    if (measuring_ || last) {
      Replayed fresh;
      fresh.step_times = std::move(result_.step_times);
      result_ = std::move(fresh);
    }
    if (auto error = run_step(last)) return *error;
    if (policy_ == nullptr) continue;
    const Reaction reaction =
        tell({.kind = Event::Kind::step_ended, .op = {}, .tensor = {}, .bytes = {}, .measured = &result_.measured});
    if (reaction.replan && replan != nullptr) {
      *replan = true;
      return result_;
    }
    obey(reaction);
  }
  for (const Op& op : trace_.ops) result_.ideal += op.time;
  result_.peak = {traffic_.peak()};
  return result_;
}

}  // namespace

Result<Replayed> simulate(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan,
                          const ReplayOptions& options, Policy* policy, bool* replan,
                          std::span<const Operands> in_turn) {
  if (machine.tiers.empty()) return Error{Cause::malformed_input, "replay: the machine has no tiers"};
  if (plan.paging && !in_turn.empty())
    return Error{Cause::unsupported, "replay: a driver that pages is replayed with steps that are alike only"};
  if (plan.paging) return page(trace, step, machine, plan, options, policy, replan);
  return Simulation(trace, step, machine, plan, options, policy, in_turn).run(replan);
}

}  // namespace vedette::sim
