#include "engine/watched_frames.h"

#include "base/assert.h"

namespace vedette::engine {

void WatchedFrames::set_watch(FrameWatch* watch) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  in_place_.take_all_back();  // it sees frames alone
  frames_.set_watch(watch);
}

Result<void> WatchedFrames::convert(FrameKind kind) noexcept {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(!frames_.watched() && !maker_.winds_down());
  if (memory_->trackable() == nullptr) {
    return Error{.cause = Cause::unavailable, .message = "this memory has one kind of frames"};
  }
  if (kind != FrameKind::fast && slow_.registered()) {
    return Error{.cause = Cause::unavailable,
                 .message = "frames that are registered for I/O cannot change their memory"};
  }
  migrator_.await_all_moves(lock);
  op_.disturb();
  frames_.make_resident_all();
  while (const auto frame = frames_.take_idle()) books_.give_free(*frame);  // bytes of the dead need not be copied
  for (FrameIndex f; f.value < figures_.frames(); ++f.value) {
    if (!books_.pool().has_memory(f)) continue;
    const std::optional<ChunkIndex> shown_at = books_.owner(f);
    if (auto converted = memory_->trackable()->convert(f, shown_at, kind, shown_at.has_value()); !converted)
      return converted;
  }
  maker_.make_from_now_on(kind);
  return {};
}

void WatchedFrames::expect_writes(std::byte* begin, std::size_t bytes, ChunkIndex c) noexcept {
  const std::lock_guard lock(mutex_);
  Trackable* const trackable = memory_->trackable();
  if (trackable != nullptr && books_[c].state == ChunkState::resident) trackable->expect_writes(begin, bytes);
}

}  // namespace vedette::engine
