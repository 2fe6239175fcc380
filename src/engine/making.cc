// Memory for frames: made ahead of need while the program goes on, and given back when nothing needed it for a while,
// or when the program has no more ops here.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/readable.h"
#include "engine/engine.h"

namespace vedette {
namespace {

constexpr Bytes least_at_once = 2_MiB, most_at_once = 16_MiB;  // a huge page; a wait that is not too long

}  // namespace

std::uint32_t Engine::frames_at_once(std::uint32_t lacking) const noexcept {
  if (maker_.winding_down || by_hand_) return 1;
  const std::uint64_t wanted = std::clamp(lacking * chunk_bytes_.value, least_at_once.value, most_at_once.value);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(wanted / chunk_bytes_.value, 1));
}

void Engine::make_ahead() noexcept {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return ends_ || maker_.winding_down; };
  while (!over()) {
    const FramePool& pool = books_.pool();
    if (pool.unmade() == 0 || pool.ready() >= frames_.ready_wanted() || pool.frames() > pool.wanted()) {
      frames_.await_want(lock);
      continue;
    }
    lock.unlock();
    make_frames();
    lock.lock();
  }
}

bool Engine::make_frames(std::uint32_t lacking) {
  std::unique_lock lock(mutex_);
  const FramePool::Run run = books_.pool().start_making(frames_at_once(lacking));
  if (run.count == 0) return false;
  const FrameKind kind = maker_.kind;
  lock.unlock();
  const int error = memory_->make(run.first, run.count, kind);
  lock.lock();
  if (error == 0) {
    for (std::uint32_t k = 0; k < run.count && kind != maker_.kind; ++k) {  // all others were converted meanwhile
      // an error leaves it as it is, and the page tracker says which pages it cannot watch
      static_cast<void>(memory_->trackable()->convert({run.first.value + k}, std::nullopt, maker_.kind, false));
    }
    books_.pool().made(run);
    maker_.unused.made(run.count, program_.now());
  } else {
    books_.pool().not_made(run);
    if (words_.heard() && !std::exchange(maker_.failed, true))
      words_.tell("no more than " + readable({books_.frames() * chunk_bytes_.value}) +
                  " of fast memory can be allocated (" + std::strerror(error) +
                  "), and the session goes on with that; choose a smaller budget or free memory");
  }
  arrived_.notify_all();
  demand_.start_soon();
  return error == 0;
}

void Engine::await_frame(std::unique_lock<std::mutex>& lock) {
  arrived_.wait(lock, [&] { return books_.pool().ready() > 0 || books_.pool().making() == 0; });
}

// --- what nothing needs ----------------------------------------------------------------------------------------------

bool Engine::give_unused_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  // the kernel holds the memory of registered frames; a profiled step sees its frames as they are
  if (maker_.winding_down || slow_.registered() || frames_.watched()) return false;
  UnusedFrames& unused = maker_.unused;
  const Nanoseconds now = program_.now();
  if (unused.window_ends(now)) books_.begin_window();
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(most_at_once.value / chunk_bytes_.value, 1));
  std::uint32_t dead = 0;
  for (auto c = books_.idle_for_a_window(); c && dead < most; c = books_.idle_for_a_window()) {
    if (!frames_.hide(*c, books_[*c].frame)) continue;  // busy, and no longer among them
    books_.give_free(books_.take_from_idle(*c));
    ++dead;
  }
  unused.found(dead);
  const std::vector<FrameIndex> going = books_.pool().start_unmaking(std::min(unused.due(frames_.spare()), most));
  if (going.empty()) return false;
  lock.unlock();
  for (const FrameIndex frame : going) memory_->give_back(frame);
  lock.lock();
  books_.pool().gone(going);
  unused.given(static_cast<std::uint32_t>(going.size()), now);
  arrived_.notify_all();
  return true;
}

// --- the end of the program's ops ------------------------------------------------------------------------------------

bool Engine::give_frames_back() {
  if (!maker_.winding_down || slow_.registered()) return false;  // the kernel holds the memory of registered frames
  while (const auto frame = frames_.take_idle()) books_.give_free(*frame);
  while (const auto frame = books_.pool().unmake()) memory_->give_back(*frame);
  const std::uint32_t living = std::max(books_.live_chunks(), 1u);
  while (books_.frames() > living && books_.pool().retire()) {
  }
  return true;
}

std::uint32_t Engine::wind_down(std::uint32_t most) noexcept {
  std::unique_lock lock(mutex_);
  maker_.winding_down = true;
  frames_.want_all();
  await(lock, [&] { return books_.pool().making() == 0; });
  if (!give_frames_back()) return books_.frames();
  if (most < books_.frames()) books_.want_frames(most);
  await_shrunk(lock, false);
  return books_.frames();
}

std::uint32_t Engine::may_keep() const noexcept {
  const std::lock_guard lock(mutex_);
  return slow_.registered() ? ~std::uint32_t{0} : books_.live_chunks();
}

}  // namespace vedette
