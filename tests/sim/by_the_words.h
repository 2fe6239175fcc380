// A second simulator, written from the words of vedette/replay.h and vedette/model.h alone: naive, slow, one nanosecond
// after the other. It shares no code with src/sim, so that the two can be compared. Plans for systems that know less
// than a planner (Plan::after_life and below), recomputations and pages are not in it.
#pragma once
#include <utility>

#include "sim/words_state.h"

namespace vedette::testing {

class ByTheWords : private WordsState {
 public:
  using WordsState::Answer;

  ByTheWords(const Trace& trace, const Machine& machine, const Plan& plan) : WordsState(trace, machine, plan) {}

  Answer run(int steps) {
    for (; steps > 0 && answer_.error.empty(); --steps) {
      const std::uint64_t peak = answer_.peak;
      answer_ = {.stall = std::vector<std::int64_t>(trace_.ops.size()), .peak = peak};
      const std::int64_t began = now_;
      for (std::uint32_t op = 0; op < trace_.ops.size() && answer_.error.empty(); ++op) play(op);
      answer_.time = now_ - began;
    }
    return answer_;
  }

 private:
  // ---- queues ----

  void enqueue(std::size_t p, std::uint32_t to) {
    Piece& piece = pieces_[p];
    cancel(p);
    if (queue(piece.at, to) == nullptr) return;
    piece.queued = true;
    piece.to = to;
    std::vector<std::size_t>& waiting = queue(piece.at, to)->waiting;
    auto at = waiting.end();
    if (piece.awaited)  // it overtakes those that no op stalls for
      at = std::find_if(waiting.begin(), waiting.end(), [&](std::size_t other) { return !pieces_[other].awaited; });
    waiting.insert(at, p);
  }
  void fetch(std::size_t p, std::uint32_t to) {
    Piece& piece = pieces_[p];
    if (!piece.exists) return;
    if (piece.moving) {
      piece.comes_back = piece.comes_back || piece.to > to;
      return;
    }
    if (piece.queued && piece.to == to) return;
    cancel(p);  // its eviction
    if (piece.at != to) enqueue(p, to);
  }
  void evict(std::size_t p, std::uint32_t to) {
    Piece& piece = pieces_[p];
    if (!piece.exists || piece.moving || (piece.queued && piece.to == to)) return;
    cancel(p);
    if (piece.at == to) return;
    if (!piece.in.contains(to)) return enqueue(p, to);
    if (piece.at == 0) answer_.dropped += piece.bytes, remapped_ += granules(piece);
    forget(piece, piece.at);
    piece.at = to;
  }

  // True: a job began, or the queue changed.
  bool start(Queue& line) {
    if (line.busy || line.waiting.empty()) return false;
    const std::size_t p = line.waiting.front();
    Piece& piece = pieces_[p];
    if (piece.to == 0) {
      const std::uint64_t clear = piece.awaited ? 0 : lacks_ + room_of_awaited() + plan_.reserved.value;
      if (used_[0] + size_in(piece, 0) + clear > capacity(0)) return false;
    } else if (piece.at == 0 && operand(op_, piece.tensor) && !between_) {
      cancel(p);
      return true;
    } else if (piece.at == 0 && waits_for_reads()) {
      return false;
    } else if (!make_room_below(piece.to, size_in(piece, piece.to))) {
      return send_further(p);
    }
    line.waiting.erase(line.waiting.begin());
    take(piece.to, size_in(piece, piece.to));
    piece.queued = false;
    piece.moving = true;
    line.busy = true;
    line.piece = p;
    line.left = static_cast<long double>(piece.bytes) * 1e9L / alone(*line.link);
    line.first_byte = now_ + (line.ended == now_ ? 0 : line.link->latency.value);
    if (piece.to == 0) answer_.in += piece.bytes;
    if (piece.at == 0) answer_.out += piece.bytes, remapped_ += granules(piece);
    return true;
  }
  bool send_further(std::size_t p) {
    for (std::uint32_t tier = pieces_[p].to + 1; tier < machine_.tiers.size(); ++tier) {
      if (queue(pieces_[p].at, tier) == nullptr || !make_room_below(tier, size_in(pieces_[p], tier))) continue;
      enqueue(p, tier);
      return true;
    }
    return false;
  }
  // Habits::writes_wait: a fetch runs or could start, and room is not scarce.
  bool waits_for_reads() const {
    constexpr std::uint64_t scarce = 4;  // granules
    if (!machine_.habits.writes_wait || lacks_ > 0 || used_[0] + scarce * machine_.granule.value >= capacity(0))
      return false;
    return std::any_of(queues_.begin(), queues_.end(), [&](const Queue& line) {
      if (line.link->target.value != 0) return false;
      if (line.busy || line.waiting.empty()) return line.busy;
      const Piece& next = pieces_[line.waiting.front()];
      const std::uint64_t clear = next.awaited ? 0 : room_of_awaited() + plan_.reserved.value;
      return used_[0] + size_in(next, 0) + clear <= capacity(0);
    });
  }
  void start_all() {
    for (bool again = true; again;) {
      again = false;
      for (Queue& line : queues_) {
        while (start(line)) again = true;
      }
    }
  }

  void finish(Queue& line) {
    line.busy = false;
    line.ended = now_;
    const std::size_t p = line.piece;
    Piece& piece = pieces_[p];
    const std::uint32_t from = piece.at, to = piece.to;
    piece.moving = false;
    piece.in.insert(to);
    piece.at = to;
    if (to == 0) copies_[from].push_back(p);
    if (to != 0) forget(piece, from);
    const bool back = std::exchange(piece.comes_back, false);
    if (piece.dies) {
      piece.dies = false;
      return end(p);
    }
    if (to == 0) piece.awaited = false, remapped_ += granules(piece);
    if (to != 0 && (piece.awaited || back)) enqueue(p, 0);
  }

  // ---- time ----

  bool of_host_memory(const Link& link) const {
    const HostMemory& host = machine_.host_memory;
    return host.bytes_per_s > 0 && (link.source == host.tier || link.target == host.tier);
  }
  long double left_of_host_memory() const {
    const HostMemory& host = machine_.host_memory;
    return static_cast<long double>(host.bytes_per_s - host.processor_bytes_per_s);
  }
  // Bytes a second where nothing else moves.
  long double alone(const Link& link) const {
    const auto own = static_cast<long double>(link.bytes_per_s);
    return of_host_memory(link) ? std::min(own, left_of_host_memory()) : own;
  }
  bool transfers(const Queue& line) const { return line.busy && line.first_byte <= now_; }

  // Of so much, among some that want these: the even share of it and of what those leave that want less.
  static long double part(long double all, long double wants, std::vector<long double> poorer, std::size_t as_rich) {
    std::sort(poorer.begin(), poorer.end());
    std::size_t among = poorer.size() + as_rich + 1;
    for (const long double each : poorer) all -= std::min(each, all / static_cast<long double>(among--));
    return std::min(wants, all / static_cast<long double>(among));
  }

  // Bytes a second: on a bus the link's part of it.
  long double on_its_bus(const Queue& line) const {
    const long double own = alone(*line.link);
    if (!line.link->shared) return own;
    long double bus = 0;
    std::vector<long double> poorer;
    std::size_t as_rich = 0;
    for (const Queue& other : queues_) {
      if (other.link->shared != line.link->shared) continue;
      bus = std::max(bus, alone(*other.link));
      if (&other == &line || !transfers(other)) continue;
      const long double wants = alone(*other.link);
      if (wants < own) poorer.push_back(wants);
      as_rich += wants < own ? 0 : 1;
    }
    return part(bus, own, poorer, as_rich);
  }
  // The part of its own bandwidth that the link has: of what its bus leaves it, its part of the host's memory.
  long double share(const Queue& line) const {
    const long double wants = on_its_bus(line), own = alone(*line.link);
    if (!of_host_memory(*line.link)) return wants / own;
    std::vector<long double> poorer;
    std::size_t as_rich = 0;
    for (const Queue& other : queues_) {
      if (&other == &line || !transfers(other) || !of_host_memory(*other.link)) continue;
      const long double others = on_its_bus(other);
      if (others < wants) poorer.push_back(others);
      as_rich += others < wants ? 0 : 1;
    }
    return part(left_of_host_memory(), wants, poorer, as_rich) / own;
  }

  // One nanosecond. Returns how many links were busy in it.
  std::int64_t pass() {
    std::int64_t busy = 0;
    std::vector<long double> done(queues_.size());
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      busy += queues_[q].busy;
      if (transfers(queues_[q])) done[q] = share(queues_[q]);
    }
    for (std::size_t q = 0; q < queues_.size(); ++q) queues_[q].left -= done[q];
    ++now_;
    bool look = false;  // links look into their queues
    for (Queue& line : queues_) {
      look = look || (line.busy && line.first_byte == now_);
      if (!line.busy || line.first_byte > now_ || line.left >= 1e-6L) continue;
      look = true;
      finish(line);
    }
    if (look) start_all();
    return busy;
  }
  bool any_busy() const {
    return std::any_of(queues_.begin(), queues_.end(), [](const Queue& line) { return line.busy; });
  }

  // ---- an op ----

  std::vector<std::size_t> inside(const Move& move) const {
    std::vector<std::size_t> found;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      const Piece& piece = pieces_[p];
      const auto part = move.extent.part.value_or(Span<Bytes>{{0}, {~std::uint64_t{0}}});
      if (piece.tensor == move.extent.tensor.value && part.begin.value <= piece.begin &&
          piece.begin + piece.bytes <= part.end.value)
        found.push_back(p);
    }
    return found;
  }
  void issue(std::uint32_t op, bool fetches) {
    for (const Move& move : plan_.moves) {
      if (move.issue.value != op || (move.verb == Verb::fetch) != fetches) continue;
      for (const std::size_t p : inside(move)) {
        const Piece& piece = pieces_[p];
        const bool lies_there = piece.queued || piece.moving || piece.at == move.source.value;
        if (move.verb == Verb::fetch) fetch(p, move.target.value);
        if (move.verb == Verb::evict && lies_there) evict(p, move.target.value);
        if (move.verb == Verb::drop && piece.exists) {
          if (piece.at == 0) answer_.dropped += piece.bytes;
          end(p);
        }
      }
    }
  }

  bool in_place(std::uint32_t op, const Piece& piece) const {
    return !piece.queued && !piece.moving && machine_.tiers[piece.at].addressable &&
           std::any_of(plan_.in_place.begin(), plan_.in_place.end(),
                       [&](const InPlace& each) { return each.op.value == op && each.tensor.value == piece.tensor; });
  }

  // What the op stalls for. True: it faults.
  bool ask(std::uint32_t op) {
    bool faults = false;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      Piece& piece = pieces_[p];
      if (!operand(op, piece.tensor)) continue;
      if (!piece.exists) {
        const std::uint32_t home = plan_.home[piece.tensor].value;
        const bool born =
            (!persistent(piece.tensor) && first_use(piece.tensor) == op) || (!has(trace_.ops[op].reads, piece.tensor));
        if (!born) answer_.error = "reads what is not there";
        if (home != 0 && machine_.tiers[home].addressable) {
          put(piece, home);
        } else {
          births_.push_back(p);
          asks_ += size_in(piece, 0);
        }
        continue;
      }
      if (in_place(op, piece)) continue;
      if (piece.at == 0 && piece.queued) cancel(p);  // its eviction
      if (piece.at == 0 && !piece.moving) continue;
      const bool on_its_way = piece.queued || piece.moving;
      piece.awaited = true;
      if (!piece.moving) enqueue(p, 0);
      if (on_its_way) continue;
      faults = true;
      ++answer_.unplanned;
    }
    return faults;
  }

  // By Plan::fallback. True: an eviction was issued.
  bool choose_victims(std::uint32_t op, std::uint64_t lacking) {
    std::vector<std::size_t> order;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      const Piece& piece = pieces_[p];
      if (piece.exists && piece.at == 0 && !piece.queued && !piece.moving && !operand(op, piece.tensor))
        order.push_back(p);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (plan_.fallback == Fallback::least_recent) return pieces_[a].last_use < pieces_[b].last_use;
      const std::uint64_t of_a = distance(op, pieces_[a].tensor), of_b = distance(op, pieces_[b].tensor);
      return of_a != of_b ? of_a > of_b : of_a == ~std::uint64_t{0} && pieces_[a].last_use < pieces_[b].last_use;
    });
    bool any = false;
    for (const std::size_t p : order) {
      if (free() + leaving() >= lacking || machine_.tiers.size() < 2) break;
      ++answer_.unplanned;
      evict(p, 1);
      any = true;
    }
    return any;
  }

  void wait(std::uint32_t op) {
    for (;;) {
      start_all();
      if (lacks_ > 0 && lacks_ <= free()) {
        take(0, lacks_);
        for (const std::size_t p : births_) {
          used_[0] -= size_in(pieces_[p], 0);
          put(pieces_[p], 0);
        }
        births_.clear();
        lacks_ = 0;
      }
      const bool barrier = std::find(plan_.barriers.begin(), plan_.barriers.end(), OpIndex{op}) != plan_.barriers.end();
      if (lacks_ == 0 && !stalled_for() && !(barrier && leaving() > 0 && any_busy())) return;
      const std::uint64_t lacking = lacks_ + room_of_awaited();
      if (free() + leaving() < lacking && choose_victims(op, lacking)) continue;
      if (!any_busy()) {
        answer_.error = "waits for ever";
        return;
      }
      pass();
    }
  }

  std::int64_t beside(std::uint32_t op) {  // operands in place
    long double time = 0;
    for (const Piece& piece : pieces_) {
      if (!operand(op, piece.tensor) || piece.at == 0 || !piece.exists || !in_place(op, piece)) continue;
      for (const auto& [uses, line] : {std::pair{has(trace_.ops[op].reads, piece.tensor), queue(piece.at, 0)},
                                       {has(trace_.ops[op].writes, piece.tensor), queue(0, piece.at)}}) {
        if (uses && line != nullptr) time += static_cast<long double>(piece.bytes) * 1e9L / alone(*line->link);
      }
    }
    return static_cast<std::int64_t>(time);
  }

  void play(std::uint32_t op) {
    const std::int64_t reached = now_;
    op_ = op;
    between_ = false;
    issue(op, true);
    if (machine_.habits.early_fetches && op + 1 < trace_.ops.size()) issue(op + 1, true);
    const bool faults = ask(op);
    if (faults) {
      ++answer_.faults;
      for (std::int64_t i = 0; i < machine_.fault_time.value; ++i) pass();
    }
    lacks_ = std::exchange(asks_, 0) + trace_.ops[op].workspace.value;
    if (answer_.error.empty()) wait(op);
    if (!answer_.error.empty()) return;
    const std::int64_t in_place = beside(op);
    answer_.stall[op] = now_ - reached + in_place;
    std::int64_t left = trace_.ops[op].time.value + in_place + std::exchange(remapped_, 0) * machine_.remap_time.value;
    std::int64_t busy = 0;
    for (; left > 0; --left) busy += pass();
    for (left = busy * machine_.interference_percent.value_or(0) / 100; left > 0; --left) pass();
    used_[0] -= trace_.ops[op].workspace.value;
    ++serial_;
    between_ = true;
    for (Piece& piece : pieces_) {
      if (!operand(op, piece.tensor) || !piece.exists) continue;
      piece.last_use = serial_;
      if (!has(trace_.ops[op].writes, piece.tensor)) continue;
      for (std::uint32_t tier = 0; tier < machine_.tiers.size(); ++tier) {
        if (tier != piece.at) forget(piece, tier);
      }
    }
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      if (pieces_[p].exists && dies_after(op, pieces_[p].tensor)) end(p);
    }
    issue(op, false);
    start_all();
  }

  std::vector<std::size_t> births_;  // of the op that waits
  std::uint64_t asks_ = 0;           // room for births, of an op that handles its fault
  std::uint64_t lacks_ = 0;          // room for births and workspace, of the op that waits
  std::int64_t now_ = 0, serial_ = 0;
  std::uint32_t op_ = 0;
  bool between_ = true;  // two ops
};

}  // namespace vedette::testing
