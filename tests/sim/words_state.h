// What the second simulator (by_the_words.h) knows at an instant: pieces of tensors, room in tiers, queues of links,
// and what the trace says of tensors. Naive: everything is looked up anew each time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette::testing {

class WordsState {
 public:
  struct Answer {  // of the last step
    std::string error;
    std::int64_t time = 0;
    std::vector<std::int64_t> stall;  // [op]
    std::uint64_t in = 0, out = 0, dropped = 0, unplanned = 0, faults = 0, peak = 0;
    bool operator==(const Answer&) const = default;
  };

 protected:
  WordsState(const Trace& trace, const Machine& machine, const Plan& plan)
      : trace_(trace), machine_(machine), plan_(plan), used_(machine.tiers.size()) {
    for (const Link& link : machine.links) queues_.push_back({.link = &link, .waiting = {}});
    cut();
  }

  struct Piece {  // a run of bytes that moves as one
    std::uint32_t tensor = 0;
    std::uint64_t bytes = 0, begin = 0;
    bool exists = false;
    std::uint32_t at = 0;        // the fastest tier that holds its newest bytes whole
    std::set<std::uint32_t> in;  // all of those tiers
    bool queued = false, moving = false;
    std::uint32_t to = 0;     // queued, moving
    bool awaited = false;     // an op stalls for it
    bool comes_back = false;  // it moves out, and a fetch was issued meanwhile
    bool dies = false;        // it moves, and its tensor is dead
    std::int64_t last_use = -1;
  };
  struct Queue {
    const Link* link = nullptr;
    std::vector<std::size_t> waiting;  // pieces, next one first
    bool busy = false;
    std::size_t piece = 0;
    long double left = 0;  // ns of the whole link
    std::int64_t first_byte = 0, ended = -1;
  };

  // ---- what there is ----

  void cut() {
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      std::set<std::uint64_t> at{0, trace_.tensors[t].bytes.value};
      for (const Move& move : plan_.moves) {
        if (move.extent.tensor.value == t && move.extent.part)
          at.insert({move.extent.part->begin.value, move.extent.part->end.value});
      }
      for (auto i = at.begin(); std::next(i) != at.end(); ++i)
        pieces_.push_back({.tensor = t, .bytes = *std::next(i) - *i, .begin = *i, .in = {}});
    }
    for (Piece& piece : pieces_) {
      if (!trace_.tensors[piece.tensor].persistent) continue;
      std::uint32_t tier = plan_.home[piece.tensor].value;
      while (tier + 1 < machine_.tiers.size() && used_[tier] + size_in(piece, tier) > capacity(tier)) ++tier;
      put(piece, tier);
    }
  }
  std::uint64_t capacity(std::uint32_t tier) const { return machine_.tiers[tier].capacity.value; }
  std::uint64_t size_in(const Piece& piece, std::uint32_t tier) const {
    const std::uint64_t unit = tier == 0 ? machine_.granule.value : 1;
    return (piece.bytes + unit - 1) / unit * unit;
  }
  std::int64_t granules(const Piece& piece) const {
    return static_cast<std::int64_t>(size_in(piece, 0) / machine_.granule.value);
  }
  static bool has(const std::vector<TensorIndex>& list, std::uint32_t t) {
    return std::find(list.begin(), list.end(), TensorIndex{t}) != list.end();
  }
  bool operand(std::uint32_t op, std::uint32_t t) const {
    return has(trace_.ops[op].reads, t) || has(trace_.ops[op].writes, t);
  }
  bool persistent(std::uint32_t t) const { return trace_.tensors[t].persistent; }
  std::uint32_t first_use(std::uint32_t t) const {
    std::uint32_t op = 0;
    while (!operand(op, t)) ++op;
    return op;
  }
  bool dies_after(std::uint32_t op, std::uint32_t t) const {
    if (persistent(t)) return false;
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      if (has(trace_.ops[i].frees, t)) return op == i;
      if (operand(i, t)) last = i;
    }
    return op == last;
  }
  // How many ops later it is used again; a tensor that is used no more is furthest.
  std::uint64_t distance(std::uint32_t op, std::uint32_t t) const {
    const auto ops = static_cast<std::uint32_t>(trace_.ops.size());
    for (std::uint32_t i = op + 1; i < (persistent(t) ? op + 1 + ops : ops); ++i) {
      if (operand(i % ops, t)) return i;
    }
    return ~std::uint64_t{0};
  }

  // ---- room ----

  void take(std::uint32_t tier, std::uint64_t bytes) {
    used_[tier] += bytes;
    answer_.peak = std::max(answer_.peak, used_[0]);
  }
  void put(Piece& piece, std::uint32_t tier) {  // born there
    piece.exists = true;
    piece.at = tier;
    piece.in = {tier};
    take(tier, size_in(piece, tier));
  }
  void forget(Piece& piece, std::uint32_t tier) {
    if (piece.in.erase(tier) > 0) used_[tier] -= size_in(piece, tier);
  }
  void end(std::size_t p) {  // dead or dropped
    Piece& piece = pieces_[p];
    if (piece.moving) {
      piece.dies = true;
      piece.comes_back = false;
      return;
    }
    cancel(p);
    for (std::uint32_t tier = 0; tier < machine_.tiers.size(); ++tier) forget(piece, tier);
    piece.exists = false;
  }
  std::uint64_t free() const { return capacity(0) - used_[0]; }
  std::uint64_t leaving() const {
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += (piece.queued || piece.moving) && piece.at == 0 ? size_in(piece, 0) : 0;
    return bytes;
  }
  bool stalled_for() const {
    return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.awaited; });
  }
  // Of the operands that an op stalls for, the room that none of their fetches has taken yet.
  std::uint64_t room_of_awaited() const {
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces_)
      bytes += piece.awaited && !(piece.moving && piece.to == 0) ? size_in(piece, 0) : 0;
    return bytes;
  }
  // Copies of what lies in a faster tier too go first, in the order in which they became copies.
  bool make_room_below(std::uint32_t tier, std::uint64_t bytes) {
    while (used_[tier] + bytes > capacity(tier) && !copies_[tier].empty()) {
      Piece& piece = pieces_[copies_[tier].front()];
      copies_[tier].erase(copies_[tier].begin());
      if (piece.exists && piece.at != tier) forget(piece, tier);
    }
    return used_[tier] + bytes <= capacity(tier);
  }

  // ---- queues ----

  Queue* queue(std::uint32_t from, std::uint32_t to) {
    for (Queue& each : queues_) {
      if (each.link->source.value == from && each.link->target.value == to) return &each;
    }
    return nullptr;
  }
  void cancel(std::size_t p) {
    if (!pieces_[p].queued) return;
    pieces_[p].queued = false;
    for (Queue& each : queues_) std::erase(each.waiting, p);
  }

  const Trace& trace_;
  const Machine& machine_;
  const Plan& plan_;
  std::vector<Piece> pieces_;
  std::vector<Queue> queues_;
  std::vector<std::uint64_t> used_;                           // [tier]
  std::map<std::uint32_t, std::vector<std::size_t>> copies_;  // [tier]: of pieces that were fetched from it
  std::int64_t remapped_ = 0;
  Answer answer_;
};

}  // namespace vedette::testing
