#include "engine/maker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/quiet_thread.h"
#include "base/readable.h"

namespace vedette::engine {
namespace {

constexpr Bytes least_at_once = 2_MiB, most_at_once = 16_MiB;  // a huge page; a wait that is not too long

}  // namespace

std::uint32_t Maker::at_once(std::uint32_t lacking) const noexcept {
  if (winding_down_ || by_hand_) return 1;
  const std::uint64_t wanted = std::clamp(lacking * chunk_bytes_.value, least_at_once.value, most_at_once.value);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(wanted / chunk_bytes_.value, 1));
}

void Maker::start() {
  thread_ = start_quiet_thread([this]() noexcept { run(); });
}

void Maker::join() {
  frames_.want_all();
  if (thread_.joinable()) thread_.join();
}

void Maker::run() noexcept {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return ends_ || winding_down_; };
  while (!over()) {
    const FramePool& pool = books_.pool();
    if (pool.unmade() == 0 || pool.ready() >= frames_.ready_wanted() || pool.frames() > pool.wanted()) {
      frames_.await_want(lock);
      continue;
    }
    lock.unlock();
    make();
    lock.lock();
  }
}

bool Maker::make(std::uint32_t lacking) {
  std::unique_lock lock(mutex_);
  const FramePool::Run run = books_.pool().start_making(at_once(lacking));
  if (run.count == 0) return false;
  const FrameKind kind = kind_;
  lock.unlock();
  const int error = memory_->make(run.first, run.count, kind);
  lock.lock();
  if (error == 0) {
    for (std::uint32_t k = 0; k < run.count && kind != kind_; ++k) {  // all others were converted meanwhile
      // an error leaves it as it is, and the page tracker says which pages it cannot watch
      static_cast<void>(memory_->trackable()->convert({run.first.value + k}, std::nullopt, kind_, false));
    }
    books_.pool().made(run);
    unused_.made(run.count, program_.now());
  } else {
    books_.pool().not_made(run);
    if (words_.heard() && !std::exchange(failed_, true))
      words_.tell("no more than " + readable({books_.frames() * chunk_bytes_.value}) +
                  " of fast memory can be allocated (" + std::strerror(error) +
                  "), and the session goes on with that; choose a smaller budget or free memory");
  }
  arrived_.notify_all();
  demand_.start_soon();
  return error == 0;
}

void Maker::await_frame(std::unique_lock<std::mutex>& lock) {
  arrived_.wait(lock, [&] { return books_.pool().ready() > 0 || books_.pool().making() == 0; });
}

// --- what nothing needs ----------------------------------------------------------------------------------------------

bool Maker::give_unused_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  // the kernel holds the memory of registered frames; a profiled step sees its frames as they are
  if (winding_down_ || slow_.registered() || frames_.watched()) return false;
  const Nanoseconds now = program_.now();
  if (unused_.window_ends(now)) books_.begin_window();
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(most_at_once.value / chunk_bytes_.value, 1));
  std::uint32_t dead = 0;
  for (auto c = books_.idle_for_a_window(); c && dead < most; c = books_.idle_for_a_window()) {
    if (!frames_.hide(*c, books_[*c].frame)) continue;  // busy, and no longer among them
    books_.give_free(books_.take_from_idle(*c));
    ++dead;
  }
  unused_.found(dead);
  const std::vector<FrameIndex> going = books_.pool().start_unmaking(std::min(unused_.due(frames_.spare()), most));
  if (going.empty()) return false;
  lock.unlock();
  for (const FrameIndex frame : going) memory_->give_back(frame);
  lock.lock();
  books_.pool().gone(going);
  unused_.given(static_cast<std::uint32_t>(going.size()), now);
  arrived_.notify_all();
  return true;
}

void Maker::note_use() {
  figures_.filled(books_.frames() - books_.available());
  unused_.note(frames_.spare());
}

bool Maker::give_excess_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept {
  while (demand_.excess() > 0 && books_.pool().retire()) arrived_.notify_all();
  const std::size_t free = books_.available() - std::min<std::size_t>(books_.available(), demand_.waiting_need());
  const std::size_t most = std::max<std::uint64_t>(most_at_once.value / chunk_bytes_.value, 1);
  const auto going = static_cast<std::uint32_t>(std::min({std::size_t{demand_.excess()}, free, most}));
  while (books_.pool().ready() < going) {
    const auto frame = frames_.take_idle();
    if (!frame) break;
    books_.give_free(*frame);
  }
  const std::vector<FrameIndex> gone = books_.pool().start_unmaking(going);
  if (gone.empty()) return false;
  lock.unlock();
  for (const FrameIndex frame : gone) memory_->give_back(frame);
  lock.lock();
  books_.pool().gone(gone);
  while (demand_.excess() > 0 && books_.pool().retire()) {
  }
  arrived_.notify_all();
  return true;
}

// --- the end of the program's ops ------------------------------------------------------------------------------------

void Maker::wind_down() {
  winding_down_ = true;
  frames_.want_all();
}

bool Maker::give_all_back() {
  if (!winding_down_ || slow_.registered()) return false;  // the kernel holds the memory of registered frames
  while (const auto frame = frames_.take_idle()) books_.give_free(*frame);
  while (const auto frame = books_.pool().unmake()) memory_->give_back(*frame);
  const std::uint32_t living = std::max(books_.live_chunks(), 1u);
  while (books_.frames() > living && books_.pool().retire()) {
  }
  return true;
}

}  // namespace vedette::engine
