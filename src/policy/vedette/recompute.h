// Tensors that are recomputed instead of moved. A tensor that a producer can repeat is dropped after a use and
// recomputed before the next one. To the rest of the planner that is another trace, in which the tensor dies and
// another one of its size is born, by an op that takes longer and reads more. Pure.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "policy/canvas/uses.h"
#include "policy/vedette/prices.h"
#include "vedette/model.h"

namespace vedette::planning {

struct RecomputeRule {  // which gaps between uses are bridged by making the tensor again
  // of the step's time, in which the price may differ: links are busy in some only
  static constexpr std::size_t segments = 8;
  std::array<double, segments> ns_per_byte{};  // at most this much of its producers' time for a byte; below 0: none
  std::int64_t least_gap_ns = 0;  // of ops' time: a tensor that is used again sooner stays, however cheap it is
  // producers whose operands were thrown away in turn, at most so many after each other
  std::uint32_t depth = 8;
  // Beside a recomputation room is left for as much again as it results in, in which fetches go on. Without it more
  // fits where memory is tight.
  bool leaves_room = true;
  // Instead of prices of bytes: which share of each gap is bridged, as the dual (prices.h) for this percentage of the
  // memory has it, is multiplied by `ns_per_byte`; 0: by prices of bytes.
  std::uint32_t shares_at = 0;
  bool operator==(const RecomputeRule&) const = default;
};

RecomputeRule uniform(double ns_per_byte, std::uint32_t depth);  // the same price in all segments
bool recomputes(const RecomputeRule& rule);                      // anything at all

struct Recomputed {
  Trace trace;                                // tensors stand for one life each; op numbers as before
  std::vector<std::uint32_t> origin;          // of each tensor there: the tensor here
  std::vector<Recomputation> recomputations;  // by `before`, in the order in which they run
  std::vector<Move> drops;                    // by issue
};

// The tensors that a rule drops and makes again, before its trace is made.
struct Decided {
  RecomputeRule rule;
  std::set<std::pair<std::uint32_t, std::uint32_t>> kept;  // (tensor, last use): what the rule would drop, and is not
  std::vector<Recomputation> recomputations;               // as in Recomputed
  std::vector<Move> drops;
  std::int64_t ns = 0;  // of producers that run again
  std::uint64_t workspaces =
      0;  // a fingerprint: what ops need beside their operands, with the room that the rule leaves
};

// A plan for the lives, as one for the trace that they were made of: thrown-away tensors leave before written ones.
Plan plan_of_origin(const Trace& trace, const Recomputed& recomputed, const Plan& lives);

class Recomputer {
 public:
  Recomputer(const Trace& trace, const Machine& machine);

  // Nothing where nothing is worth it. O(ops + gaps + recomputations).
  Decided decide(const RecomputeRule& rule) const;
  Recomputed apply(const Decided& decided) const;            // O(ops + accesses + recomputations)
  void find_shares(Setting setting, std::uint32_t percent);  // for rules by shares
  Nanoseconds time_of(OpIndex producer) const { return producers_[producer.value].time; }  // where the machine can

 private:
  struct Gap {
    std::uint32_t tensor = 0, last = 0, next = 0;  // used by op `last`, then by `next`
    double cost = 0;                               // ns of producers
    std::int64_t ns = 0;                           // of the ops between the two
    std::size_t segment = 0;                       // of the step, in which its last use lies
    std::uint32_t kind = 0;                        // the same bytes and cost
  };
  friend class RecomputeWalk;

  // the last op before it that writes the tensor
  std::uint32_t writer(std::uint32_t tensor, std::uint32_t before) const;
  // below 0: cannot be recomputed before op `at`
  double cost(std::uint32_t tensor, std::uint32_t at, int depth) const;

  const Trace& trace_;
  const Machine& machine_;
  Uses uses_;
  std::vector<std::vector<std::uint32_t>> writers_;  // [tensor]: ops, ascending
  std::vector<Op> producers_;                        // [op]
  std::vector<char> replayable_;                     // [op]
  std::vector<Gap> gaps_;  // that can be bridged, and span an op that does not fit; by last use, then tensor
  std::uint32_t kinds_ = 0;
  std::map<std::uint32_t, Priced> priced_;  // shares of gaps_, by percent of the memory
};

}  // namespace vedette::planning
