// Long work that another thread may give up: its result is wanted no more, and may be any from then on.
//
// Thread rule: the thread of the work asks; the thread that started it keeps the flag until the work has ended.
#pragma once
#include <atomic>

namespace vedette {

class [[nodiscard]] MayBeGivenUp {  // of the calling thread's work while it lives; they do not nest
 public:
  explicit MayBeGivenUp(const std::atomic<bool>& flag) noexcept { flag_here = &flag; }
  ~MayBeGivenUp() { flag_here = nullptr; }
  MayBeGivenUp(const MayBeGivenUp&) = delete;
  MayBeGivenUp& operator=(const MayBeGivenUp&) = delete;

  // relaxed: nothing is read that the other thread wrote before
  static bool is_given_up() noexcept { return flag_here != nullptr && flag_here->load(std::memory_order_relaxed); }

 private:
  static inline thread_local const std::atomic<bool>* flag_here = nullptr;
};

}  // namespace vedette
