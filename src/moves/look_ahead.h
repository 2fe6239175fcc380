// Ops without a plan, by the prediction of an earlier step: until when a fetch is due, and what stays though room is
// wanted. Executors start fetches and evictions accordingly. A wrong prediction costs transfers.
//
//        now                 until            busy_until()
//   ------|--------------------|-------------------|---------> ticks
//          used here: stays    |  stays if room is |  leaves for births and fetches
//          for births, too     |  for a fetch      |
//
// Pure. One thread at a time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "moves/executor.h"
#include "moves/next_uses.h"

namespace vedette::moves {

// detail::Ahead without its moves. Births count in chunks, or in bytes where tensors move whole.
struct Outlook {
  bool anew = false;       // fetches that were told before are wrong by now
  bool makes_room = true;  // for fetches; else only room that is free is filled
  Ticks until = 0;         // a thing that is used before then stays
  Calendar calendar = {};
  std::uint64_t births = 0, next_births = 0;  // of the op, and of the next one
  OpSchedule schedule = {};
};

class LookAhead {
 public:
  void begin(const Outlook& outlook) {
    known_ = true;
    outlook_ = outlook;
  }
  void end() noexcept { known_ = false; }
  bool known() const noexcept { return known_; }  // something is predicted
  const Outlook& outlook() const noexcept { return outlook_; }
  void born(std::uint64_t more) noexcept { outlook_.births -= std::min(outlook_.births, more); }

  // Fetches are sorted in order of need. `index_of` gives the index of one of `fetches`.
  template <class Index, class Fetches, class IndexOf>
  void sort(Fetches& fetches, const NextUses<Index>& uses, IndexOf index_of) const {
    std::stable_sort(fetches.begin(), fetches.end(),
                     [&](const auto& a, const auto& b) { return uses.of(index_of(a)) < uses.of(index_of(b)); });
  }

  // Fetches for uses before this tick are due. What comes earlier than it must takes its room from what is used sooner,
  // which then moves, too. So a fetch is due where its transfer and those before it take the time until its op, or
  // where a later one is. Where the times of ops are not known, each fetch is due. `fetches` are sorted; `ns_of` says
  // how long the transfers of one take, in nanoseconds.
  template <class Index, class Fetches, class IndexOf, class NsOf>
  Ticks due(const Fetches& fetches, const NextUses<Index>& uses, IndexOf index_of, NsOf ns_of) const {
    if (!outlook_.schedule.is_known()) return never;
    double moving = 0;
    const Ticks now = uses.now();
    Ticks due = now + 2;  // of the next op: always
    for (const auto& each : fetches) {
      const Ticks use = uses.of(index_of(each));
      moving += ns_of(index_of(each));
      if (moving >= outlook_.schedule.ns_until(use - now)) due = std::max(due, use + 1);
    }
    return due;
  }

  // Until this tick the link has more to fetch than it can. What is used before then and leaves for another one's early
  // fetch has to be fetched, too: that gains nothing. It is counted once an op, or where there are many `things` once
  // in some ops. `away` gives the next uses of things that are away, and how long their transfers take, in nanoseconds.
  template <class Away>
  Ticks busy_until(Ticks now, std::size_t things, Away away) {
    constexpr std::size_t things_an_op = 512;
    const bool is_fresh = counted_ <= now && now - counted_ <= things / things_an_op;
    if (is_fresh && !outlook_.anew) return busy_;
    counted_ = now;
    busy_ = 0;
    if (!outlook_.schedule.is_known()) return 0;
    std::vector<std::pair<Ticks, double>> transfers = away();
    std::sort(transfers.begin(), transfers.end());
    double moving = 0;
    for (const auto& [use, ns] : transfers) {
      if (!outlook_.schedule.has(use - now)) break;
      moving += ns;
      if (moving >= outlook_.schedule.ns_until(use - now)) busy_ = use + 1;
    }
    return busy_;
  }

 private:
  bool known_ = false;
  Outlook outlook_;
  Ticks counted_ = never, busy_ = 0;  // busy_until(), as it was counted in the op at `counted_`
};

inline Outlook outlook_of(const detail::Ahead& ahead, Ticks step_begins) {
  return {.anew = ahead.anew,
          .makes_room = ahead.makes_room,
          .until = step_begins + ahead.until,
          .calendar = {.ends = step_begins + ahead.ends, .next_begins = step_begins + ticks_of_a_step},
          .births = ahead.births,
          .next_births = ahead.next_births,
          .schedule = ahead.schedule};
}

}  // namespace vedette::moves
