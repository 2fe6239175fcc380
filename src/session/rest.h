// Whether a session hears the ops of its program. Many steps in a row that moved nothing and waited for nothing have
// all that they use in fast memory, and a plan has nothing to do there. Then the session rests, where its program has
// asked whether it does. Of a step it then hears that it began, and nothing else. Once something has moved, the next
// step is heard again, and the session rests after twice as many steps.
//
// What always holds: while rests() nothing has moved, until a step that begins finds otherwise. On a GPU an access to
// memory that is away is not served, so nothing moves before the session is awake. A birth without room wakes it.
//
// Lock rule: the op thread's; any thread may call rests() and ask().
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "vedette/observer.h"

namespace vedette::detail {

class Rest {
 public:
  static constexpr std::uint32_t fewest_steps = 16, most_steps = 1024;  // before a rest

  // relaxed, both: a flag alone
  bool rests() const noexcept { return rests_.load(std::memory_order_relaxed); }
  bool ask() noexcept {
    asked_.store(true, std::memory_order_relaxed);
    return rests();
  }

  // A step begins. False: it is heard.
  bool goes_on(const Counters& now) noexcept {
    if (!rests()) return false;
    if (moved(now) == moved_) return true;
    wake();
    return false;
  }
  void wake() noexcept {  // something moves
    before_rest_ = std::min(2 * before_rest_, most_steps);
    end();
  }
  // A step that was heard has ended. `settled`: nothing more would be learned of others like it.
  void step_ended(const Counters& now, bool settled) noexcept {
    const std::uint64_t all = moved(now);
    still_ = settled && all == moved_ && asked_.load(std::memory_order_relaxed) ? still_ + 1 : 0;
    moved_ = all;
    rests_.store(still_ >= before_rest_, std::memory_order_relaxed);
  }
  void end() noexcept {
    still_ = 0;
    rests_.store(false, std::memory_order_relaxed);
  }

 private:
  static std::uint64_t moved(const Counters& all) noexcept {
    return all.bytes_in.value + all.bytes_out.value + all.bytes_dropped.value + all.bytes_recomputed.value +
           all.bytes_in_place.value + all.stall_count + all.faults;
  }

  std::atomic<bool> rests_ = false, asked_ = false;
  std::uint32_t before_rest_ = fewest_steps, still_ = 0;
  std::uint64_t moved_ = 0;
};

}  // namespace vedette::detail
