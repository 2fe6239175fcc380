#include "engine/budget.h"

#include <algorithm>

#include "base/readable.h"

namespace vedette::engine {

void Budget::start() { most_frames_ = std::min(most_frames_, std::max(books_.frames(), memory_->most_frames())); }

Bytes Budget::now() const noexcept {
  const std::lock_guard lock(mutex_);
  return {books_.frames() * chunk_bytes_.value};
}

Result<detail::Executor::Resized> Budget::resize(Bytes budget, detail::Executor::Caller caller) {
  const auto frames = static_cast<std::uint32_t>(std::min<std::uint64_t>(budget.value / chunk_bytes_.value, ~0u));
  std::unique_lock lock(mutex_);
  if (frames > most_frames_)
    return Error{.cause = Cause::unsupported,
                 .message = "fast memory of " + readable_exactly(budget) + " is more than this session can have, " +
                            readable_exactly({most_frames_ * chunk_bytes_.value})};
  await_unregistered(lock);
  books_.want_frames(frames);
  figures_.expect_frames(books_.pool().ever());
  frames_.want_all();
  arrived_.notify_all();
  await_shrunk(lock, caller != detail::Executor::Caller::in_its_op);
  const std::uint32_t now = books_.frames();
  return detail::Executor::Resized{.now = {now * chunk_bytes_.value},
                                   .holds = now > frames ? what_holds_more_than(frames) : std::string()};
}

void Budget::await_shrunk(std::unique_lock<std::mutex>& lock, bool for_op_to_end) {
  slow_.kick();
  migrator_.await(lock, [&] {
    const FramePool& pool = books_.pool();
    if (books_.frames() <= pool.wanted()) return true;
    if (books_.in_op() && for_op_to_end) return false;
    // A frame may be made for a thread that waits meanwhile; what a transfer has pinned stays.
    const bool comes = books_.evicting() > 0 || books_.in_flight() > 0 || books_.has_victim() || pool.making() > 0;
    return demand_.excess() == 0 || (!comes && books_.available() <= demand_.waiting_need());
  });
}

// The kernel keeps the pages of registered frames.
void Budget::await_unregistered(std::unique_lock<std::mutex>& lock) {
  if (!slow_.registered()) return;
  slow_.want_unregistered();
  migrator_.await(lock, [&] { return !slow_.unregisters(); });
}

std::string Budget::what_holds_more_than(std::uint32_t frames) const {
  const auto size = [&](std::uint64_t chunks) { return readable({chunks * chunk_bytes_.value}); };
  if (failed_writes_.last()) return failed_writes_.last()->message;
  if (books_.in_op() && books_.op_chunks() > frames)
    return "the op that runs needs " + size(books_.op_chunks()) + ", until it ends";
  if (books_.held() + Demand::least_unheld > frames)
    return size(books_.held()) + " are held there by the program or are its smallest tensors";
  return "pages that a transfer of the program has pinned";
}

std::uint32_t Budget::wind_down(std::uint32_t most) noexcept {
  std::unique_lock lock(mutex_);
  maker_.wind_down();
  migrator_.await(lock, [&] { return books_.pool().making() == 0; });
  if (!maker_.give_all_back()) return books_.frames();
  if (most < books_.frames()) books_.want_frames(most);
  await_shrunk(lock, false);
  return books_.frames();
}

std::uint32_t Budget::may_keep() const noexcept {
  const std::lock_guard lock(mutex_);
  return slow_.registered() ? ~std::uint32_t{0} : books_.live_chunks();
}

}  // namespace vedette::engine
