// Demands, room and victims.
#include "sim/waiting.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace vedette::sim {

using Place = Piece::Place;

bool Waiting::in_place(std::uint32_t op, std::uint32_t index) const {
  const Piece& piece = traffic_.piece(index);
  const std::span<const std::uint32_t> there = schedule_.in_place[op];
  return !there.empty() && piece.place == Place::lies && in_.machine.tiers[piece.tier].addressable &&
         std::find(there.begin(), there.end(), piece.tensor) != there.end();
}

std::optional<Error> Waiting::demand(std::uint32_t op, std::uint32_t tensor, bool bears) {
  const Span<std::uint32_t> range = traffic_.of_tensor(tensor);
  for (std::uint32_t p = range.begin; p < range.end; ++p) {
    const Piece& piece = traffic_.piece(p);
    if (piece.dead) traffic_.touch(p, true, serial_);
    if (piece.place == Place::nowhere) {
      if (!bears) return dropped(op, tensor);
      const std::uint32_t home = in_.plan.home.empty() ? 0 : in_.plan.home[tensor].value;
      if (home != 0 && in_.machine.tiers[home].addressable) {
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
    listener_.hear({.kind = Event::Kind::touched_while_away, .op = {op}, .tensor = {tensor}});
  }
  return std::nullopt;
}

Error Waiting::dropped(std::uint32_t op, std::uint32_t tensor) const {
  return {Cause::malformed_input, "replay: " + name(op) + " reads tensor " + std::to_string(tensor) + " '" +
                                      in_.trace.tensors[tensor].name +
                                      "', which was dropped or is dead, and nothing recomputes it"};
}

// Evicts by the plan's fallback pieces that no op in sight of the current one needs, until the room is on its way.
void Waiting::fall_back(std::uint32_t op, std::uint64_t lacking) {
  struct Candidate {  // the smallest leaves first
    std::uint64_t first = 0, second = 0;
    std::uint32_t piece = 0;
  };
  constexpr std::uint64_t unknown = std::numeric_limits<std::uint64_t>::max();
  std::vector<Candidate> all;
  for (std::uint32_t p = 0; p < traffic_.pieces().size(); ++p) {
    const Piece& piece = traffic_.piece(p);
    if (piece.place != Place::lies || piece.tier != 0 || traffic_.pinned(piece.tensor)) continue;
    if (in_.plan.fallback == Fallback::least_recent) {
      all.push_back({piece.last_use, 0, p});
      continue;
    }
    const std::uint64_t next = piece.dead ? unknown : next_use(in_.step, in_.trace, piece.tensor, op + 1);
    // without a known use, the one used longest ago leaves first, as in the engine
    all.push_back({~next, next == unknown && !piece.dead ? piece.last_use + 1 : 0, p});
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.first, a.second, a.piece) < std::tie(b.first, b.second, b.piece);
  });
  for (const Candidate& each : all) {
    if (traffic_.free_room(0) + traffic_.leaving() >= lacking) return;
    if (in_.machine.tiers.size() < 2 && !traffic_.piece(each.piece).dead) return;
    traffic_.note_unplanned();
    traffic_.move(each.piece, 1, none, false);
  }
}

// True when room became free or is on its way.
bool Waiting::make_room(std::uint32_t op, std::uint64_t lacking) {
  const std::uint64_t before = traffic_.free_room(0) + traffic_.leaving();
  listener_.hear({.kind = Event::Kind::short_of_room, .op = {op}, .bytes = {lacking - std::min(lacking, before)}});
  if (traffic_.free_room(0) + traffic_.leaving() < lacking) fall_back(op, lacking);
  return traffic_.free_room(0) + traffic_.leaving() > before;
}

void Waiting::claim_births() {
  if (wanted_ == 0 || !traffic_.take(wanted_)) return;
  for (std::uint32_t p : born_) {
    traffic_.give(traffic_.piece(p).room);
    traffic_.place(p, 0);
  }
  born_.clear();
  wanted_ = 0;
  traffic_.keep_clear(0);
}

std::optional<Error> Waiting::until_ready(std::uint32_t op) {
  if (faulted_) {
    ++faults_;
    traffic_.advance_to(traffic_.now() + in_.machine.fault_time.value);
    faulted_ = false;
  }
  for (;;) {
    traffic_.keep_clear(wanted_);
    traffic_.start_jobs();
    claim_births();
    const bool ready = wanted_ == 0 && traffic_.awaited() == 0;
    const bool held = !schedule_.barrier.empty() && schedule_.barrier[op] != 0 && traffic_.leaving() > 0;
    if (ready && (!held || traffic_.next_end() == never)) break;
    const std::uint64_t lacking = wanted_ + traffic_.awaited_room();
    if (traffic_.free_room(0) + traffic_.leaving() < lacking && make_room(op, lacking)) continue;
    const std::int64_t end = traffic_.next_end();
    if (end == never)
      return Error{Cause::infeasible,
                   "replay: " + name(op) + " needs more than the fastest tier has, or waits for what never comes"};
    traffic_.advance_to(end);
  }
  traffic_.keep_clear(0);
  return std::nullopt;
}

}  // namespace vedette::sim
