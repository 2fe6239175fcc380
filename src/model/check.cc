// The judge: executes the plan once around the step and stops at the first broken rule. It is naive on purpose: every
// tensor is cut at every boundary that a move names, each piece has one state, and every op visits every piece.
//
// A persistent tensor starts at its home. A move that wraps into the next step is in flight when op 0 begins, as the
// step before left it. After one step every piece must be in the tier where it began (Rule::repeats), so one step is a
// proof. check_form() has excluded plans that name tensors, ops or tiers that do not exist.
#include "vedette/check.h"

#include <algorithm>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/readable.h"
#include "model/check_form.h"
#include "model/dependences.h"
#include "model/producers.h"

namespace vedette {
namespace {

struct Piece {
  enum class State : std::uint8_t { unborn, lies, moving, dropped, dead };
  TensorIndex tensor;
  Span<std::uint64_t> bytes;  // of the tensor
  State state = State::unborn;
  TierIndex at{};                     // lies: there; moving: still counted there
  std::size_t move = 0;               // moving: which one
  std::optional<std::size_t> last{};  // the last move that touched it, for messages
};

std::string number(std::uint64_t value) { return std::to_string(value); }

class Judge {
 public:
  Judge(const Trace& trace, const Machine& machine, const Plan& plan) : trace_(trace), machine_(machine), plan_(plan) {}

  std::optional<Violation> judge() {
    if (!plan_.recomputations.empty()) producers_ = producers(trace_);
    find_lives();
    sort_moves();
    cut_pieces();
    start_of_step();
    for (std::uint32_t i = 0; i < trace_.ops.size() && !found_; ++i) play({i});
    if (!found_) end_of_step();
    return found_;
  }

 private:
  void broken(Rule rule, std::string message) {
    if (!found_) found_ = Violation{rule, std::move(message)};
  }

  // The state: the lives of tensors, and the pieces into which moves cut them.

  void find_lives() {
    ran_.assign(trace_.ops.size(), false);
    read_from_.assign(trace_.ops.size(), {});
    written_by_.assign(trace_.tensors.size(), std::nullopt);
    last_.assign(trace_.tensors.size(), std::nullopt);
    std::vector<bool> freed(trace_.tensors.size());
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      const Op& op = trace_.ops[i];
      for (const auto* list : {&op.reads, &op.writes}) {
        for (TensorIndex t : *list) {
          if (!freed[t.value]) last_[t.value] = OpIndex{i};
        }
      }
      for (TensorIndex t : op.frees) {
        last_[t.value] = OpIndex{i};
        freed[t.value] = true;
      }
    }
    dies_.assign(trace_.ops.size(), {});
    for (std::uint32_t t = 0; t < last_.size(); ++t) {
      if (last_[t] && !trace_.tensors[t].persistent) dies_[last_[t]->value].push_back({t});
    }
  }

  // Moves by when they start, when they end, and what they move.
  void sort_moves() {
    issued_.assign(trace_.ops.size(), {});
    due_.assign(trace_.ops.size() + 1, {});  // the step's end asks for op 0's, also where there is no op
    moves_of_.assign(trace_.tensors.size(), {});
    for (std::size_t m = 0; m < plan_.moves.size(); ++m) {
      issued_[plan_.moves[m].issue.value].push_back(m);
      due_[plan_.moves[m].due.value].push_back(m);
      moves_of_[plan_.moves[m].extent.tensor.value].push_back(m);
    }
  }

  void cut_pieces() {
    std::vector<std::set<std::uint64_t>> cuts(trace_.tensors.size());
    for (std::size_t t = 0; t < cuts.size(); ++t) cuts[t] = {0, trace_.tensors[t].bytes.value};
    for (const Move& move : plan_.moves) {
      if (move.extent.part)
        cuts[move.extent.tensor.value].insert({move.extent.part->begin.value, move.extent.part->end.value});
    }
    first_piece_.assign(cuts.size() + 1, 0);
    for (std::uint32_t t = 0; t < cuts.size(); ++t) {
      for (auto cut = cuts[t].begin(); cut != cuts[t].end() && std::next(cut) != cuts[t].end(); ++cut) {
        pieces_.push_back({.tensor = {t}, .bytes = {*cut, *std::next(cut)}});
      }
      first_piece_[t + 1] = pieces_.size();
    }
  }

  std::span<Piece> pieces_of(TensorIndex t) {
    return std::span(pieces_).subspan(first_piece_[t.value], first_piece_[t.value + 1] - first_piece_[t.value]);
  }
  static bool inside(const Piece& piece, const Extent& extent) {
    return !extent.part || (extent.part->begin.value <= piece.bytes.begin && piece.bytes.end <= extent.part->end.value);
  }
  bool wraps(const Move& move) const {
    return move.due < move.issue || (move.due == move.issue && move.verb == Verb::evict);
  }

  // One step.

  void start_of_step() {
    for (Piece& piece : pieces_) {
      if (!trace_.tensors[piece.tensor.value].persistent) continue;
      piece.state = Piece::State::lies;
      piece.at = plan_.home[piece.tensor.value];
      const std::optional<std::size_t> last = last_move_of(piece);
      if (!last) continue;
      const Move& move = plan_.moves[*last];
      if (move.verb == Verb::drop && last_[piece.tensor.value] <= move.issue) piece.state = Piece::State::dropped;
      if (move.verb == Verb::drop || !wraps(move) || move.due.value == 0) continue;
      piece.state = Piece::State::moving;
      piece.move = *last;
      if (piece.at != move.source)
        broken(Rule::repeats,
               name(piece.tensor) + " is on its way when op 0 begins, but its home is not where it comes from");
    }
    start_ = pieces_;
  }

  // The move that starts last in a step: at one op, evicts and drops start after fetches.
  std::optional<std::size_t> last_move_of(const Piece& piece) const {
    std::optional<std::size_t> last;
    const auto when = [&](std::size_t m) {
      return std::tuple(plan_.moves[m].issue, plan_.moves[m].verb != Verb::fetch, m);
    };
    for (const std::size_t m : moves_of_[piece.tensor.value]) {
      if (!inside(piece, plan_.moves[m].extent)) continue;
      if (!last || when(*last) < when(m)) last = m;
    }
    return last;
  }

  void play(OpIndex now) {
    if (now.value > 0) complete(now);
    for (const std::size_t m : issued_[now.value]) {
      if (plan_.moves[m].verb != Verb::fetch) continue;
      start(m);
      if (plan_.moves[m].due == now) arrive(m);
    }
    recompute(now);
    operate(now);
    remember(now);
    capacity(now, trace_.ops[now.value].workspace.value);
    die(now);
    for (const std::size_t m : issued_[now.value]) {
      if (plan_.moves[m].verb != Verb::fetch) start(m);
    }
  }

  void complete(OpIndex now) {
    for (const std::size_t m : due_[now.value]) arrive(m);
  }

  void start(std::size_t m) {
    const Move& move = plan_.moves[m];
    for (Piece& piece : pieces_of(move.extent.tensor)) {
      if (!inside(piece, move.extent)) continue;
      if (piece.state != Piece::State::lies || piece.at != move.source) {
        return broken(Rule::source_holds_it, "move " + number(m) + " takes " + name(piece.tensor) + " from tier " +
                                                 number(move.source.value) + ", but it " + whereabouts(piece));
      }
      piece.state = move.verb == Verb::drop ? Piece::State::dropped : Piece::State::moving;
      piece.move = m;
      piece.last = m;
    }
  }

  void arrive(std::size_t m) {
    for (Piece& piece : pieces_of(plan_.moves[m].extent.tensor)) {
      if (piece.state != Piece::State::moving || piece.move != m) continue;
      piece.state = Piece::State::lies;
      piece.at = plan_.moves[m].target;
    }
  }

  // Recomputed tensors lie in the fastest tier. Those that are dead in the trace by now were intermediate, and die
  // again after the last recomputation.
  void recompute(OpIndex now) {
    std::vector<TensorIndex> means;
    for (std::size_t r = 0; r < plan_.recomputations.size() && !found_; ++r) {
      const Recomputation& each = plan_.recomputations[r];
      if (each.before != now) continue;
      recomputed(now, each);
      for (TensorIndex t : producers_[each.producer.value].reads)
        require_near(now, t, "is needed to make " + name(each.tensor) + " again before");
      for (Piece& piece : pieces_of(each.tensor)) {
        if (piece.state == Piece::State::dropped || piece.state == Piece::State::dead)
          piece.state = Piece::State::lies, piece.at = {0};
      }
      capacity(now, scratch(each, r));
      if (!trace_.tensors[each.tensor.value].persistent && last_[each.tensor.value] < now) means.push_back(each.tensor);
    }
    for (TensorIndex t : means) {
      for (Piece& piece : pieces_of(t)) piece.state = Piece::State::dead;
    }
  }

  // The other results of a producer exist while it runs, unless the same run recomputes them.
  std::uint64_t scratch(const Recomputation& each, std::size_t r) const {
    const Op& producer = producers_[each.producer.value];
    std::uint64_t bytes = producer.workspace.value;
    for (TensorIndex t : producer.writes) {
      bool made = t == each.tensor;
      for (std::size_t other = r; other-- > 0 && plan_.recomputations[other].producer == each.producer &&
                                  plan_.recomputations[other].before == each.before;)
        made = made || plan_.recomputations[other].tensor == t;
      for (std::size_t other = r + 1;
           other < plan_.recomputations.size() && plan_.recomputations[other].producer == each.producer &&
           plan_.recomputations[other].before == each.before;
           ++other)
        made = made || plan_.recomputations[other].tensor == t;
      const std::uint64_t granule = machine_.granule.value;
      if (!made) bytes += (trace_.tensors[t.value].bytes.value + granule - 1) / granule * granule;
    }
    return bytes;
  }

  void recomputed(OpIndex now, const Recomputation& each) {
    const Op& producer = producers_[each.producer.value];
    const std::string who = name(each.tensor) + " cannot be recomputed before op " + number(now.value) + ": op " +
                            number(each.producer.value) + " '" + producer.name + "' ";
    if (!replayable(producer)) return broken(Rule::recomputed, who + "would not give the same bytes twice");
    if (!ran_[each.producer.value]) return broken(Rule::recomputed, who + "has not run yet in this step");
    if (written_by_[each.tensor.value] != each.producer)
      return broken(Rule::recomputed, who + "was not the last to write it");
    for (std::size_t i = 0; i < producer.reads.size(); ++i) {
      if (written_by_[producer.reads[i].value] != read_from_[each.producer.value][i])
        return broken(Rule::recomputed, who + "read " + name(producer.reads[i]) + ", which has changed since");
    }
  }

  // The writers of an op's operands, so that a recomputation can be compared with the first run.
  void remember(OpIndex now) {
    ran_[now.value] = true;
    if (!producers_.empty())
      for (TensorIndex t : producers_[now.value].reads) read_from_[now.value].push_back(written_by_[t.value]);
    for (TensorIndex t : trace_.ops[now.value].writes) written_by_[t.value] = now;
  }

  void operate(OpIndex now) {
    const Op& op = trace_.ops[now.value];
    for (TensorIndex t : op.reads) require_near(now, t, "is read by");
    for (TensorIndex t : op.writes) {
      const bool reads_too = std::ranges::count(op.reads, t) > 0;
      for (Piece& piece : pieces_of(t)) {
        if (piece.state == Piece::State::unborn) {
          piece.state = Piece::State::lies;
          piece.at = plan_.home[t.value];
        } else if (piece.state == Piece::State::dropped && !reads_too) {
          piece.state = Piece::State::lies;
          piece.at = {0};
        }
      }
      require_near(now, t, "is written by");
    }
  }

  void require_near(OpIndex op, TensorIndex t, const std::string& why) {
    for (const Piece& piece : pieces_of(t)) {
      if (!op_touches(op, piece)) continue;
      const std::string message = name(t) + " " + why + " op " + number(op.value) + " '" + trace_.ops[op.value].name +
                                  "' but it " + whereabouts(piece);
      if (piece.state == Piece::State::dropped) broken(Rule::nothing_lost, message);
      if (piece.state == Piece::State::lies && piece.at.value == 0) continue;
      const bool usable = piece.state == Piece::State::lies && machine_.tiers[piece.at.value].addressable &&
                          std::ranges::count(plan_.in_place, InPlace{.op = op, .tensor = t, .tier = piece.at}) > 0;
      if (!usable) broken(Rule::operand_near, message);
    }
  }

  // Where pages were tracked, an op touches only the pages that were seen; else all of each operand.
  bool op_touches(OpIndex op, const Piece& piece) const {
    bool tracked = false;
    for (const PageAccess& access : trace_.pages) {
      if (access.op != op || access.tensor != piece.tensor) continue;
      tracked = true;
      const std::uint64_t begin = access.pages.begin * trace_.page_bytes.value,
                          end = access.pages.end * trace_.page_bytes.value;
      if (begin < piece.bytes.end && piece.bytes.begin < end) return true;
    }
    return !tracked;
  }

  void capacity(OpIndex now, std::uint64_t workspace) {
    std::vector<std::uint64_t> used(machine_.tiers.size());
    used[0] = workspace;
    const auto occupy = [&](const Piece& piece, TierIndex tier) {
      const std::uint64_t bytes = piece.bytes.end - piece.bytes.begin, granule = machine_.granule.value;
      used[tier.value] += tier.value == 0 ? (bytes + granule - 1) / granule * granule : bytes;
    };
    for (const Piece& piece : pieces_) {
      if (piece.state == Piece::State::lies || piece.state == Piece::State::moving) occupy(piece, piece.at);
      if (piece.state == Piece::State::moving) occupy(piece, plan_.moves[piece.move].target);
    }
    for (std::size_t k = 0; k < used.size(); ++k) {
      if (used[k] > machine_.tiers[k].capacity.value) {
        broken(Rule::capacity, "tier " + number(k) + " '" + machine_.tiers[k].name + "' holds " +
                                   readable_exactly({used[k]}) + " of " + readable_exactly(machine_.tiers[k].capacity) +
                                   " during op " + number(now.value));
      }
    }
  }

  void die(OpIndex now) {
    for (const TensorIndex t : dies_[now.value]) {
      for (Piece& piece : pieces_of(t)) piece.state = Piece::State::dead;
    }
  }

  void end_of_step() {
    complete({0});
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      const Piece &now = pieces_[p], &then = start_[p];
      if (!trace_.tensors[now.tensor.value].persistent) continue;
      const bool same_move = now.state != Piece::State::moving || now.move == then.move;
      if (now.state != then.state || now.at != then.at || !same_move) {
        return broken(Rule::repeats,
                      name(now.tensor) + " " + whereabouts(now) + " when the step ends, unlike when it began");
      }
    }
  }

  // Messages.

  std::string name(TensorIndex t) const {
    return "tensor " + number(t.value) + " '" + trace_.tensors[t.value].name + "'";
  }

  std::string on_its_way(std::size_t m) const {
    const Move& move = plan_.moves[m];
    return std::string("is on its way: its ") + (move.verb == Verb::fetch ? "fetch" : "eviction") + ", move " +
           number(m) + ", is issued at op " + number(move.issue.value) + " and due at op " + number(move.due.value) +
           (wraps(move) ? " of the next step" : "");
  }

  std::string whereabouts(const Piece& piece) const {
    switch (piece.state) {
      case Piece::State::unborn:
        return "is not born yet";
      case Piece::State::dead:
        return "is dead";
      case Piece::State::dropped:
        return "was dropped and not recomputed";
      case Piece::State::moving:
        return on_its_way(piece.move);
      case Piece::State::lies:
        break;
    }
    std::string words = "lies in tier " + number(piece.at.value);
    if (!piece.last) return words;
    const Move& move = plan_.moves[*piece.last];
    return words + (move.verb == Verb::fetch ? ", fetched at op " : ", evicted at op ") + number(move.issue.value);
  }

  const Trace& trace_;
  const Machine& machine_;
  const Plan& plan_;
  std::optional<Violation> found_;
  std::vector<std::optional<OpIndex>> last_;                    // access, or the op that frees it
  std::vector<bool> ran_;                                       // [op]: in this step
  std::vector<std::optional<OpIndex>> written_by_;              // [tensor]: nullopt: by a step before
  std::vector<std::vector<std::optional<OpIndex>>> read_from_;  // [op]: the writers of its reads when it ran
  std::vector<Op> producers_;                                   // [op]; none where nothing is recomputed
  std::vector<Piece> pieces_, start_;
  std::vector<std::size_t> first_piece_;
  std::vector<std::vector<std::size_t>> issued_, due_;  // [op]: moves
  std::vector<std::vector<std::size_t>> moves_of_;      // [tensor]
  std::vector<std::vector<TensorIndex>> dies_;          // [op]: tensors that are dead after it
};

}  // namespace

std::optional<Violation> check(const Trace& trace, const Machine& machine, const Plan& plan) {
  if (auto violation = check_form(trace, machine, plan)) return violation;
  if (plan.order.empty()) return Judge(trace, machine, plan).judge();
  return Judge(reordered(trace, plan.order), machine, plan).judge();
}

}  // namespace vedette
