// When things in memory are used next, and so which of them leaves first for room. A thing is a chunk of CPU memory,
// in which several tensors may live, or a block on a GPU, which is one tensor.
//
//             told, or the next birth there                not told
//   use       expect(), tell(), birth_gap                   as late again as its last use is ago
//   overdue   as late again: the longer it has not come, the further away it is
//
// Pure. One thread at a time.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/indexed.h"
#include "moves/ticks.h"

namespace vedette::moves {

// Where the running step is expected to end, and the next one to begin: ticks between them are no ops.
struct Calendar {
  Ticks ends = never, next_begins = never;
};

template <class Index>
class NextUses {
 public:
  struct Use {
    Index index;
    Ticks tick = never;     // never: no use is expected
    Ticks dead_at = never;  // never: no death is
  };

  void reserve(std::uint32_t most) { known_.reserve(most); }  // things, of addresses

  // --- what happens --------------------------------------------------------------------------------------------------
  void begin_op(Ticks now) noexcept { now_ = now; }
  void used(Index index) { at(index).last_use = now_; }
  // One more tensor begins to live there.
  void born(Index index) {
    Known& here = at(index);
    if (here.last_birth < now_) here.birth_gap = now_ - here.last_birth;
    here.last_birth = now_;
    here.dead_at = never;
  }
  // Another thing has this index from now on, and is used now.
  void replaced(Index index) { at(index) = {.last_use = now_, .last_birth = now_}; }

  // --- what is told --------------------------------------------------------------------------------------------------
  void expect(const Use& use) {
    Known& here = at(use.index);
    here.next_use = use.tick;
    here.dead_at = use.dead_at;
    here.told = true;
  }
  // Of one of the tensors there, beside the expected uses of others, which may come before. `alone`: there are none.
  void expect_beside_others(const Use& use, bool alone) {
    const Known here = known(use.index);
    const bool others = here.told && here.next_use > now_;
    expect({.index = use.index,
            .tick = others ? std::min(here.next_use, use.tick) : use.tick,
            .dead_at = alone ? use.dead_at : never});
  }
  void tell(Index index, Ticks tick) {  // by a plan; never: it is not known
    Known& here = at(index);
    here.next_use = tick;
    here.told = tick != never;
  }
  void forget() {
    for (Known& here : known_) {
      here.next_use = here.dead_at = never;
      here.told = false;
    }
  }

  // --- what follows --------------------------------------------------------------------------------------------------
  Ticks now() const noexcept { return now_; }
  Ticks last_use(Index index) const noexcept { return known(index).last_use; }
  Ticks told(Index index) const noexcept { return known(index).next_use; }  // as it was told, overdue or not
  bool is_told(Index index) const noexcept { return known(index).told; }
  // Nothing is known yet of what is as old as the running op, or the latest one.
  bool is_newborn(Index index) const noexcept { return known(index).last_birth == now_; }
  // The next use from the present tick on, as told or for the next birth there; never: neither is known.
  Ticks known_use(Index index) const noexcept {
    const Known& here = known(index);
    const Ticks use = from_now(here.next_use);
    return here.birth_gap == never ? use : std::min(use, from_now(here.last_birth + here.birth_gap));
  }
  // The same, or as late again as the last use is ago.
  Ticks of(Index index) const noexcept {
    const Known& here = known(index);
    if (here.told || here.birth_gap != never) return known_use(index);
    const Ticks since = std::max(here.last_use, here.last_birth == never ? Ticks{0} : here.last_birth);
    return from_now(std::min(now_, since));
  }
  // The same, or the death that is expected before it.
  Ticks until(Index index) const noexcept { return std::min(of(index), from_now(known(index).dead_at)); }
  // So many ops a transfer its room is free. `unchanged`: it leaves without one.
  std::uint64_t room(Index index, bool unchanged, const Calendar& step) const noexcept {
    constexpr std::uint64_t far = std::uint64_t{1} << 40;
    if (is_newborn(index)) return 0;
    const Ticks use = of(index), dead_at = known(index).dead_at, end = until(index);
    const Ticks ops = end >= step.next_begins ? step.ends - std::min(step.ends, now_) + (end - step.next_begins)
                                              : end - std::min(end, now_);
    const bool returns = use < from_now(dead_at) || dead_at == never;
    return std::min(far, ops) * (!unchanged && returns ? 1 : !unchanged || returns ? 2 : 4);
  }

 private:
  struct Known {
    Ticks next_use = never, dead_at = never, last_use = 0, last_birth = never;
    Ticks birth_gap = never;  // between the last two
    bool told = false;
  };
  Known& at(Index index) {
    if (index.value >= known_.size()) known_.resize(index.value + 256);
    return known_[index];
  }
  const Known& known(Index index) const noexcept { return index.value < known_.size() ? known_[index] : unknown_; }
  Ticks from_now(Ticks tick) const noexcept { return tick < now_ ? now_ + (now_ - tick) : tick; }

  Indexed<Index, Known> known_;
  Known unknown_;
  Ticks now_ = 0;  // of the running op, or the latest one
};

}  // namespace vedette::moves
