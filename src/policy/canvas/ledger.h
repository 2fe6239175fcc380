// The canvas on which the published policies decide: which gaps between two uses each tensor has, how many bytes lie in
// each tier during each op, and which gaps are spent away. A policy proposes absences by its paper's rules; `settle`
// makes the rest fit, on demand, as the paper's runtime would; `write` turns the whole into a plan that the judge
// accepts.
//
//     op       after   after+1 ...  leave  ...  gone  ...   back  ...  before
//     tensor   used    near   ..... evicted ... away ...... fetched ... used
//
// Ops are counted past the end of the step where a gap of a persistent tensor wraps: op n + i is op i of the next step.
// Fast memory is free of the tensor during ops [gone, back); of a tensor that is dropped and recomputed before op
// `back`, as soon as `leave` has ended. Pure. Every call O(log ops) unless it says otherwise.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "policy/canvas/room.h"
#include "policy/canvas/uses.h"
#include "vedette/model.h"

namespace vedette::planning {

struct Gap {
  std::uint32_t tensor = 0;
  std::uint32_t after = 0;   // the op of the use before it, in [0, n)
  std::uint32_t before = 0;  // the op of the next use, in [after + 2, after + n]
  bool dead = false;         // no use follows: it waits for the op that frees it, which ends before `before`
};

enum class Return : std::uint8_t { fetched, recomputed, never };

struct Absence {
  std::uint32_t leave = 0, gone = 0, back = 0;  // after <= leave < gone <= back <= before; recomputed: before op `back`
  TierIndex tier{1};                            // fetched: where it is meanwhile
  Return how = Return::fetched;
  std::uint32_t producer = 0;  // where `recomputed`: the op that does it
};

class Ledger {
 public:
  Ledger(const Trace& trace, const Machine& machine);

  const Trace& trace() const { return trace_; }
  const Machine& machine() const { return machine_; }
  const Uses& uses() const { return uses_; }
  std::uint32_t ops() const { return n_; }
  std::uint64_t size(std::uint32_t tensor) const { return size_[tensor]; }  // rounded up to the granule
  Bytes bytes(std::uint32_t tensor) const { return trace_.tensors[tensor].bytes; }
  std::int64_t capacity() const { return capacity_; }

  const std::vector<Gap>& gaps() const { return gaps_; }
  Span<std::uint32_t> gaps_of(std::uint32_t tensor) const { return of_tensor_[tensor]; }
  const std::optional<Absence>& absence(std::uint32_t gap) const { return absences_[gap]; }

  // Bytes in fast memory, workspace included. Ops may be counted past the step's end.
  std::int64_t load(std::uint32_t op) const { return near_.most(op % n_, op % n_ + 1); }
  std::int64_t most(std::uint32_t begin, std::uint32_t end) const;
  // The last op of [begin, end), at most a step long, during which there are more bytes in fast memory than `limit`.
  std::optional<std::uint32_t> last_over(std::uint32_t begin, std::uint32_t end, std::int64_t limit) const;
  Bytes peak() const { return {static_cast<std::uint64_t>(near_.most(0, n_))}; }
  bool fits() const { return near_.most(0, n_) <= capacity_; }

  // Spends the gap away; its former absence is undone first. The tier of `how == fetched` has to have been asked for.
  void leave(std::uint32_t gap, const Absence& absence);
  void stay(std::uint32_t gap);
  // that the op needs beside its operands
  void burden(std::uint32_t op, std::int64_t bytes) { near_.add(op, op + 1, bytes); }
  // The absence without any time of its own: out before the op after the last use, back when the next use waits for it.
  Absence shortest(std::uint32_t gap) const {
    return {.leave = gaps_[gap].after, .gone = gaps_[gap].after + 1, .back = gaps_[gap].before};
  }

  // The first of the tiers that has room for the tensor from the op after `leave` until its next use: nearest first, or
  // furthest first.
  enum class From : std::uint8_t { nearest, furthest };
  std::optional<TierIndex> tier_for(std::uint32_t gap, std::uint32_t leave, From from = From::nearest) const;
  std::vector<TierIndex> slow_tiers() const;  // those with links both ways, nearest first

  // Makes every op fit: fetches that come too early wait, and evictions hurry. Then gaps that `may` names are spent
  // away as on demand, the furthest next use first, or the least recently used. False where that is not enough. O((gaps
  // + ops) log).
  bool settle(const std::function<bool(const Gap&)>& may = {}, bool furthest_first = true);

  Plan write() const;

 private:
  void find_gaps();
  void add_gap(std::uint32_t tensor, std::uint32_t after, std::uint32_t before, bool dead);
  void occupy(Room& room, std::uint32_t begin, std::uint32_t end, std::int64_t bytes);
  void apply(std::uint32_t gap, const Absence& absence, std::int64_t sign);

  const Trace& trace_;
  const Machine& machine_;
  Uses uses_;
  std::uint32_t n_ = 0;
  std::int64_t capacity_ = 0;
  std::vector<std::uint64_t> size_;
  std::vector<Gap> gaps_;
  std::vector<Span<std::uint32_t>> of_tensor_;
  std::vector<std::optional<Absence>> absences_;
  Room near_{{}};
  std::vector<Room> far_;  // of each slower tier
};

// When ops begin, past the end of the step too.
class Clock {
 public:
  explicit Clock(const Trace& trace);
  std::int64_t at(std::uint32_t op) const {
    return static_cast<std::int64_t>(op / n_) * starts_[n_] + starts_[op % n_];
  }
  std::int64_t step() const { return starts_[n_]; }
  std::uint32_t first_at_or_after(std::int64_t time) const;  // op, counted past the end
  std::uint32_t last_at_or_before(std::int64_t time) const;  // 0 where time is negative

 private:
  std::uint32_t n_;
  std::vector<std::int64_t> starts_;
};

// Time of so many bytes on the link, latency included; 0 where there is no link.
std::int64_t move_time(const Machine& machine, TierIndex source, TierIndex target, Bytes bytes);

// The step by the ledger's absences: ops take their times, each link works off its moves one after the other, an op
// waits for due moves. How far one is from it with room and demand fetches, only a simulation tells. O((ops + gaps)
// log).
std::int64_t predicted_time(const Ledger& ledger);

// Each absence begins with the tensor's last use before it, and its room is free at the next op, where its tier has
// room so early.
void evict_at_last_use(Ledger& ledger);

// Evictions work off one queue a link, in order of `leave`: sets each `gone` to the op that begins when the last byte
// is out, at most the op before `back`. O(gaps log gaps).
void queue_evictions(Ledger& ledger);

// Why this trace cannot run on this machine at all, whatever the policy: no tier, an op larger than fast memory,
// nowhere to put the rest.
std::optional<Error> refusal(const Ledger& ledger);
// The largest sum of one op's operands, of living tensors that `kept` names, and of workspace: the need of a policy
// that never moves those.
Bytes least_capacity(const Ledger& ledger, const std::function<bool(std::uint32_t tensor)>& kept = {});
// The smallest size, to a thousandth, for which `works` says so; `most` where none below it does.
Bytes smallest_size(Machine machine, Bytes most, const std::function<bool(const Machine&)>& works);
Error no_room(const Ledger& ledger);  // settle() found no slower tier with room
Error too_small(const Ledger& ledger, Bytes least, std::string_view why);

}  // namespace vedette::planning
