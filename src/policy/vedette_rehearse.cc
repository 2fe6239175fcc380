// The discrete events of a step: ops in order on one side, one queue a link on the other, one pool of room between
// them.
#include "policy/vedette_rehearse.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <string>

#include "base/assert.h"
#include "base/room_for_reads.h"

namespace vedette::planning {
namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Work on a link is counted in 1/12 ns of the link alone, so that 2, 3 or 4 busy links share evenly in whole numbers.
constexpr std::int64_t work_per_ns = 12;

enum class Place : std::uint8_t {
  nowhere,  // not born or dead
  fast,
  leaving,  // evict queued: still whole in the fastest tier
  writing,  // evict running: room still taken
  away,
  coming,   // fetch queued: no room yet
  reading,  // fetch running: room taken
};

struct Piece {  // a part of a tensor that moves as one
  std::uint32_t tensor = 0;
  std::uint64_t bytes = 0, room = 0;  // what travels, and what it occupies in the fastest tier
  Span<std::uint64_t> span;
  Place place = Place::nowhere;
  std::uint32_t tier = 0;     // holds the bytes while they are not in tier 0
  std::uint64_t copies = 0;   // bit k: tier k holds the newest bytes
  bool counted_dead = false;  // died while a move was running: room goes when it ends
  std::uint32_t back = none;  // while writing: the fetch that waits for its end
};

struct Job {
  std::uint32_t piece = 0, move = none, tier = 0;  // tier: the slower end
  bool urgent = false;
};

struct Line {  // a link and its queue
  const Link* link = nullptr;
  bool inward = false;  // to the fastest tier
  std::deque<Job> queue;
  bool busy = false;
  Job running;
  std::int64_t work = 0;    // of the running job that is left, in 1/work_per_ns ns of the whole link
  std::int64_t ended = -1;  // when its last job ended
};

class Rehearsal {
 public:
  Rehearsal(const Trace& trace, const Uses& uses, const Machine& machine, const Plan& plan, Rules rules)
      : trace_(trace),
        uses_(uses),
        machine_(machine),
        plan_(plan),
        rules_(rules),
        capacity_(machine.tiers[0].capacity.value) {}

  Result<Rehearsed> run(std::uint32_t steps);

 private:
  std::optional<Error> prepare();
  std::optional<Error> cut_pieces();
  void place_at_home();
  std::optional<Error> run_op(std::uint32_t op);
  std::optional<Error> wait_until_ready(std::uint32_t op);
  void note_late(std::uint32_t op);
  void queue_moves(std::uint32_t op, bool inward);
  void queue_move(std::uint32_t move);
  void fetch(std::uint32_t piece, std::uint32_t move, bool urgent);
  void evict(std::uint32_t piece, std::uint32_t move, std::uint32_t tier);
  bool demand_operands(std::uint32_t op);
  bool claim_births(std::uint32_t op);
  bool room_on_its_way() const;
  bool make_room(std::uint32_t op);
  std::uint32_t furthest(std::uint32_t op) const;
  std::uint32_t distance(std::uint32_t tensor, std::uint32_t op) const;
  void start_jobs();
  bool start(Line& line);
  bool writes_wait() const;
  void advance_to(std::int64_t time);
  std::int64_t next_end() const;
  std::int64_t share(const Line& line) const;
  void finish(Line& line);
  void write_operands(std::uint32_t op);
  void bury(std::uint32_t op);
  void release(Piece& piece);
  void take(std::uint64_t bytes) {
    used_ += bytes;
    if (used_ > peak_) peak_ = used_;
  }
  Line* line(std::uint32_t source, std::uint32_t target);
  std::uint64_t granule() const { return machine_.granule.value; }

  const Trace& trace_;
  const Uses& uses_;
  const Machine& machine_;
  const Plan& plan_;
  const Rules rules_;
  std::uint64_t capacity_ = 0, used_ = 0, peak_ = 0,
                wanted_ = 0;  // wanted_: room that the waiting op's births still lack
  std::uint64_t workspace_ = 0;
  std::int64_t now_ = 0;
  std::vector<Piece> pieces_;
  std::vector<Span<std::uint32_t>> of_tensor_;            // pieces of each tensor
  std::vector<Span<std::uint32_t>> of_move_;              // pieces of each move
  std::vector<std::vector<std::uint32_t>> issued_, due_;  // moves by op
  std::vector<std::vector<std::uint32_t>> in_place_;      // tensors by op
  std::vector<Line> lines_;
  std::vector<char> pinned_;  // by tensor: operand of the current op
  bool measuring_ = false;
  Rehearsed result_;
};

std::optional<Error> Rehearsal::prepare() {
  if (!plan_.recomputations.empty() || !plan_.order.empty()) {
    return Error{Cause::unsupported, "replay: recomputation and changed orders are not replayed"};
  }
  if (!plan_.home.empty() && plan_.home.size() != trace_.tensors.size()) {
    return Error{Cause::malformed_input, "replay: the plan's home does not name each tensor of the trace"};
  }
  issued_.resize(trace_.ops.size());
  due_.resize(trace_.ops.size());
  in_place_.resize(trace_.ops.size());
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) {
    const Move& move = plan_.moves[m];
    if (move.issue.value >= trace_.ops.size() || move.due.value >= trace_.ops.size() ||
        move.extent.tensor.value >= trace_.tensors.size() || machine_.link(move.source, move.target) == nullptr) {
      if (move.verb != Verb::drop)
        return Error{Cause::malformed_input, "replay: move " + std::to_string(m) + " names what does not exist"};
    }
    issued_[move.issue.value].push_back(m);
    due_[move.due.value].push_back(m);
  }
  for (const InPlace& each : plan_.in_place) in_place_[each.op.value].push_back(each.tensor.value);
  for (const Link& link : machine_.links)
    lines_.push_back({.link = &link, .inward = link.target.value == 0, .queue = {}, .running = {}});
  pinned_.resize(trace_.tensors.size());
  if (auto error = cut_pieces()) return error;
  place_at_home();
  return std::nullopt;
}

std::optional<Error> Rehearsal::cut_pieces() {
  std::vector<std::vector<std::uint64_t>> cuts(trace_.tensors.size());
  for (const Move& move : plan_.moves) {
    if (!move.extent.part) continue;
    const Span<Bytes> part = *move.extent.part;
    if (part.begin >= part.end || part.end > trace_.tensors[move.extent.tensor.value].bytes) {
      return Error{Cause::malformed_input, "replay: a move's part lies outside its tensor"};
    }
    cuts[move.extent.tensor.value].push_back(part.begin.value);
    cuts[move.extent.tensor.value].push_back(part.end.value);
  }
  of_tensor_.resize(trace_.tensors.size());
  for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
    std::vector<std::uint64_t>& at = cuts[t];
    at.push_back(0);
    at.push_back(trace_.tensors[t].bytes.value);
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    of_tensor_[t].begin = static_cast<std::uint32_t>(pieces_.size());
    for (std::size_t i = 0; i + 1 < at.size(); ++i) {
      const std::uint64_t bytes = at[i + 1] - at[i];
      pieces_.push_back({.tensor = t, .bytes = bytes, .room = rounded(bytes, granule()), .span = {at[i], at[i + 1]}});
    }
    of_tensor_[t].end = static_cast<std::uint32_t>(pieces_.size());
  }
  of_move_.resize(plan_.moves.size());
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) {
    const Extent& extent = plan_.moves[m].extent;
    Span<std::uint32_t> range = of_tensor_[extent.tensor.value];
    if (extent.part) {
      while (pieces_[range.begin].span.begin < extent.part->begin.value) ++range.begin;
      range.end = range.begin;
      while (range.end < of_tensor_[extent.tensor.value].end && pieces_[range.end].span.end <= extent.part->end.value)
        ++range.end;
    }
    of_move_[m] = range;
  }
  return std::nullopt;
}

void Rehearsal::place_at_home() {
  for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
    if (!trace_.tensors[t].persistent) continue;
    std::uint32_t home = plan_.home.empty() ? 0 : plan_.home[t].value;
    for (std::uint32_t p = of_tensor_[t].begin; p < of_tensor_[t].end; ++p) {
      Piece& piece = pieces_[p];
      if (home == 0 && used_ + piece.room > capacity_ && machine_.tiers.size() > 1) home = 1;
      piece.place = home == 0 ? Place::fast : Place::away;
      piece.tier = home;
      piece.copies = std::uint64_t{1} << home;
      if (home == 0) take(piece.room);
    }
  }
}

Line* Rehearsal::line(std::uint32_t source, std::uint32_t target) {
  for (Line& each : lines_) {
    if (each.link->source.value == source && each.link->target.value == target) return &each;
  }
  return nullptr;
}

// ---- links ----

std::int64_t Rehearsal::share(const Line& line) const {
  if (!line.link->shared) return work_per_ns;
  std::int64_t busy = 0;
  for (const Line& each : lines_) busy += each.busy && each.link->shared == line.link->shared;
  return std::max<std::int64_t>(1, work_per_ns / std::max<std::int64_t>(1, busy));
}

std::int64_t Rehearsal::next_end() const {
  std::int64_t first = never;
  for (const Line& each : lines_) {
    if (!each.busy) continue;
    const std::int64_t rate = share(each);
    first = std::min(first, now_ + (each.work + rate - 1) / rate);
  }
  return first;
}

void Rehearsal::advance_to(std::int64_t time) {
  for (;;) {
    const std::int64_t end = next_end();
    const std::int64_t until = std::min(end, time);
    for (Line& each : lines_) {
      if (each.busy) each.work -= share(each) * (until - now_);
    }
    now_ = until;
    if (end > time) return;
    for (Line& each : lines_) {
      if (each.busy && each.work <= 0) finish(each);
    }
    start_jobs();
  }
}

void Rehearsal::finish(Line& line) {
  line.busy = false;
  line.ended = now_;
  Piece& piece = pieces_[line.running.piece];
  if (line.inward) {
    piece.place = Place::fast;
    piece.copies |= 1;
    if (piece.counted_dead) release(piece);
  } else {
    used_ -= piece.room;
    piece.place = piece.counted_dead ? Place::nowhere : Place::away;
    piece.tier = line.running.tier;
    piece.copies = (piece.copies | (std::uint64_t{1} << piece.tier)) & ~std::uint64_t{1};
    if (piece.back != none && piece.place == Place::away) fetch(line.running.piece, piece.back, false);
    piece.back = none;
  }
  piece.counted_dead = false;
}

void Rehearsal::start_jobs() {
  for (bool again = true; again;) {
    again = false;
    for (Line& each : lines_) {
      while (!each.busy && !each.queue.empty() && start(each)) again = true;
    }
  }
}

bool Rehearsal::writes_wait() const {
  if (rules_ != Rules::session || wanted_ > 0 || used_ + room_for_reads * granule() >= capacity_) return false;
  return std::any_of(lines_.begin(), lines_.end(), [&](const Line& each) {
    const bool finds_room =
        !each.queue.empty() && used_ + pieces_[each.queue.front().piece].room + plan_.reserved.value <= capacity_;
    return each.inward && (each.busy || finds_room);
  });
}

// Starts the head of the queue or throws it away when it has become pointless; false when it has to wait.
bool Rehearsal::start(Line& line) {
  const Job job = line.queue.front();
  Piece& piece = pieces_[job.piece];
  if (piece.place != (line.inward ? Place::coming : Place::leaving)) {
    line.queue.pop_front();  // cancelled meanwhile, or urgent and therefore done before
    return true;
  }
  if (line.inward) {
    const std::uint64_t spare = job.urgent ? 0 : wanted_ + plan_.reserved.value;
    if (used_ + piece.room + spare > capacity_) return false;
    take(piece.room);
    piece.place = Place::reading;
    if (measuring_) result_.bytes_in += Bytes{piece.bytes};
  } else {
    if (pinned_[piece.tensor]) {
      piece.place = Place::fast;
      line.queue.pop_front();
      return true;
    }
    if (writes_wait()) return false;
    piece.place = Place::writing;
    if (measuring_) result_.bytes_out += Bytes{piece.bytes};
  }
  line.queue.pop_front();
  line.busy = true;
  line.running = job;
  // Requests overlap: only a link that was idle makes the first byte wait.
  const Nanoseconds latency = line.ended == now_ ? Nanoseconds{} : line.link->latency;
  line.work = (transfer_time({piece.bytes}, line.link->bytes_per_s) + latency).value * work_per_ns;
  return true;
}

// ---- moves ----

void Rehearsal::fetch(std::uint32_t index, std::uint32_t move, bool urgent) {
  Piece& piece = pieces_[index];
  if (piece.place == Place::leaving) piece.place = Place::fast;  // its evict has not begun: stay
  if (piece.place == Place::writing) piece.back = move;
  if (piece.place != Place::away && !(urgent && piece.place == Place::coming)) return;
  Line* way = line(piece.tier, 0);
  if (way == nullptr) return;
  const Job job{.piece = index, .move = move, .tier = piece.tier, .urgent = urgent};
  if (measuring_ && move == none && piece.place == Place::away) ++result_.unplanned;
  piece.place = Place::coming;
  if (urgent) {
    std::size_t at = 0;
    while (at < way->queue.size() && way->queue[at].urgent) ++at;
    way->queue.insert(way->queue.begin() + static_cast<std::ptrdiff_t>(at), job);
  } else {
    way->queue.push_back(job);
  }
}

void Rehearsal::evict(std::uint32_t index, std::uint32_t move, std::uint32_t tier) {
  Piece& piece = pieces_[index];
  if (piece.place != Place::fast) return;
  if (measuring_ && move == none) ++result_.unplanned;
  if ((piece.copies >> tier & 1) != 0) {
    used_ -= piece.room;
    piece.place = Place::away;
    piece.tier = tier;
    piece.copies &= ~std::uint64_t{1};
    if (measuring_) result_.bytes_dropped += Bytes{piece.bytes};
    return;
  }
  Line* way = line(0, tier);
  VEDETTE_ASSERT(way != nullptr);
  piece.place = Place::leaving;
  way->queue.push_back({.piece = index, .move = move, .tier = tier});
}

void Rehearsal::queue_move(std::uint32_t m) {
  const Move& move = plan_.moves[m];
  for (std::uint32_t p = of_move_[m].begin; p < of_move_[m].end; ++p) {
    if (move.verb == Verb::fetch) fetch(p, m, false);
    if (move.verb == Verb::evict) evict(p, m, move.target.value);
    if (move.verb == Verb::drop && pieces_[p].place == Place::fast) {
      pieces_[p].copies |= std::uint64_t{1} << move.target.value;
      evict(p, m, move.target.value);
    }
  }
}

void Rehearsal::queue_moves(std::uint32_t op, bool inward) {
  for (std::uint32_t m : issued_[op]) {
    if ((plan_.moves[m].verb == Verb::fetch) == inward) queue_move(m);
  }
}

void Rehearsal::note_late(std::uint32_t op) {
  if (!measuring_) return;
  for (std::uint32_t m : due_[op]) {
    const bool inward = plan_.moves[m].verb == Verb::fetch;
    for (std::uint32_t p = of_move_[m].begin; p < of_move_[m].end; ++p) {
      const Place place = pieces_[p].place;
      const bool late = inward ? place == Place::coming || place == Place::reading || place == Place::away
                               : place == Place::leaving || place == Place::writing;
      if (late) {
        result_.measured.late.push_back(m);
        break;
      }
    }
  }
}

// ---- an op ----

// Puts what the op lacks at the head of the queues; true when nothing lacks.
bool Rehearsal::demand_operands(std::uint32_t op) {
  bool all = true;
  for (std::uint32_t t : uses_.operands[op]) {
    if (std::find(in_place_[op].begin(), in_place_[op].end(), t) != in_place_[op].end()) continue;
    for (std::uint32_t p = of_tensor_[t].begin; p < of_tensor_[t].end; ++p) {
      const Place place = pieces_[p].place;
      if (place == Place::fast || place == Place::nowhere) continue;
      if (place == Place::leaving) {
        pieces_[p].place = Place::fast;
        continue;
      }
      all = false;
      if (place == Place::away) fetch(p, none, true);
      if (place != Place::coming) continue;
      Line* way = line(pieces_[p].tier, 0);
      const bool already = std::any_of(way->queue.begin(), way->queue.end(),
                                       [&](const Job& job) { return job.piece == p && job.urgent; });
      if (!already) fetch(p, none, true);
    }
  }
  return all;
}

// Takes the room of what is born in the op and of its workspace, all at once; true when it is taken.
bool Rehearsal::claim_births(std::uint32_t op) {
  if (wanted_ == 0) return true;
  if (used_ + wanted_ > capacity_) return false;
  take(wanted_);
  wanted_ = 0;
  for (std::uint32_t t : uses_.births[op]) {
    for (std::uint32_t p = of_tensor_[t].begin; p < of_tensor_[t].end; ++p) pieces_[p].place = Place::fast;
  }
  return true;
}

bool Rehearsal::room_on_its_way() const {
  return std::any_of(lines_.begin(), lines_.end(),
                     [](const Line& each) { return !each.inward && (each.busy || !each.queue.empty()); });
}

std::uint32_t Rehearsal::distance(std::uint32_t tensor, std::uint32_t op) const {
  const std::vector<Use>& uses = uses_.tensors[tensor].uses;
  if (uses.empty()) return none - 1;
  const auto next =
      std::upper_bound(uses.begin(), uses.end(), op, [](std::uint32_t at, const Use& use) { return at < use.op; });
  const auto ops = static_cast<std::uint32_t>(trace_.ops.size());
  if (next != uses.end()) return next->op - op;
  return uses_.tensors[tensor].persistent ? uses.front().op + ops - op
                                          : 2 * ops;  // used no more: the best to send away
}

std::uint32_t Rehearsal::furthest(std::uint32_t op) const {
  std::uint32_t best = none, best_distance = 0;
  for (std::uint32_t p = 0; p < pieces_.size(); ++p) {
    if (pieces_[p].place != Place::fast || pinned_[pieces_[p].tensor]) continue;
    const std::uint32_t far = distance(pieces_[p].tensor, op);
    if (best == none || far > best_distance) best = p, best_distance = far;
  }
  return best;
}

// Evicts what is needed last until the op has its room; false when nothing is left to evict.
bool Rehearsal::make_room(std::uint32_t op) {
  std::uint64_t lacking = wanted_;
  for (const Line& each : lines_) {
    if (each.inward && !each.busy && !each.queue.empty() && each.queue.front().urgent)
      lacking = std::max(lacking, pieces_[each.queue.front().piece].room);
  }
  std::uint64_t leaving = 0;
  while (used_ - leaving + lacking > capacity_) {
    const std::uint32_t victim = furthest(op);
    if (victim == none || machine_.tiers.size() < 2) return leaving > 0;
    const std::uint64_t before = used_;
    evict(victim, none, 1);
    if (used_ == before) leaving += pieces_[victim].room;
  }
  return true;
}

std::optional<Error> Rehearsal::wait_until_ready(std::uint32_t op) {
  for (;;) {
    const bool operands = demand_operands(op);
    start_jobs();
    if (claim_births(op) && operands && demand_operands(op)) return std::nullopt;
    const bool reading = std::any_of(lines_.begin(), lines_.end(),
                                     [](const Line& each) { return each.inward && each.busy && each.running.urgent; });
    if (!room_on_its_way() && (wanted_ > 0 || !reading)) {
      const std::uint64_t before = used_;
      const bool more = make_room(op);
      start_jobs();
      if (used_ != before) continue;
      if (!more && next_end() == never) {
        return Error{Cause::infeasible, "replay: op " + std::to_string(op) + " '" + trace_.ops[op].name +
                                            "' needs more than the fastest tier has"};
      }
    }
    const std::int64_t end = next_end();
    if (end == never) {
      return Error{Cause::infeasible,
                   "replay: op " + std::to_string(op) + " '" + trace_.ops[op].name + "' waits for what never comes"};
    }
    advance_to(end);
  }
}

void Rehearsal::write_operands(std::uint32_t op) {
  for (TensorIndex t : trace_.ops[op].writes) {
    for (std::uint32_t p = of_tensor_[t.value].begin; p < of_tensor_[t.value].end; ++p) pieces_[p].copies = 1;
  }
}

void Rehearsal::release(Piece& piece) {
  if (piece.place == Place::writing || piece.place == Place::reading) {
    piece.counted_dead = true;
    return;
  }
  if (piece.place == Place::fast || piece.place == Place::leaving) used_ -= piece.room;
  piece.place = Place::nowhere;
  piece.copies = 0;
}

void Rehearsal::bury(std::uint32_t op) {
  for (std::uint32_t t : uses_.deaths[op]) {
    for (std::uint32_t p = of_tensor_[t].begin; p < of_tensor_[t].end; ++p) release(pieces_[p]);
  }
}

std::optional<Error> Rehearsal::run_op(std::uint32_t op) {
  const std::int64_t reached = now_;
  for (std::uint32_t t : uses_.operands[op]) pinned_[t] = 1;
  queue_moves(op, true);
  if (rules_ != Rules::replay && op + 1 < trace_.ops.size()) queue_moves(op + 1, true);
  note_late(op);
  workspace_ = trace_.ops[op].workspace.value;
  wanted_ = workspace_;
  for (std::uint32_t t : uses_.births[op]) {
    for (std::uint32_t p = of_tensor_[t].begin; p < of_tensor_[t].end; ++p) wanted_ += pieces_[p].room;
  }
  if (auto error = wait_until_ready(op)) return error;
  const Nanoseconds stall{now_ - reached};
  write_operands(op);
  start_jobs();
  advance_to(now_ + trace_.ops[op].time.value);
  used_ -= workspace_;
  for (std::uint32_t t : uses_.operands[op]) pinned_[t] = 0;
  bury(op);
  queue_moves(op, false);
  start_jobs();
  if (measuring_) {
    result_.measured.op_stall[op] = stall;
    result_.measured.stall += stall;
  }
  return std::nullopt;
}

Result<Rehearsed> Rehearsal::run(std::uint32_t steps) {
  if (auto error = prepare()) return *error;
  for (std::uint32_t step = 0; step < steps; ++step) {
    measuring_ = step + 1 == steps;
    if (measuring_) result_.measured.op_stall.assign(trace_.ops.size(), {});
    const std::int64_t began = now_;
    for (std::uint32_t op = 0; op < trace_.ops.size(); ++op) {
      if (auto error = run_op(op)) return *error;
    }
    result_.step_times.push_back({now_ - began});
  }
  if (!result_.step_times.empty()) result_.measured.time = result_.step_times.back();
  for (const Op& op : trace_.ops) result_.ideal += op.time;
  result_.peak = {peak_};
  std::sort(result_.measured.late.begin(), result_.measured.late.end());
  return result_;
}

}  // namespace

Result<Rehearsed> rehearse(const Trace& trace, const Uses& uses, const Machine& machine, const Plan& plan,
                           std::uint32_t steps, Rules rules) {
  if (machine.tiers.empty()) return Error{Cause::malformed_input, "replay: the machine has no tiers"};
  return Rehearsal(trace, uses, machine, plan, rules).run(steps);
}

}  // namespace vedette::planning
