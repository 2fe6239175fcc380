// Tensors come and go in the engine's chunks, and keep some of them in place.
#include <algorithm>

#include "base/assert.h"
#include "base/readable.h"
#include "engine/engine.h"

namespace vedette {

void Engine::count_birth(ChunkRange range) {
  high_ = std::max(high_, range.limit());
  if (in_op_) ++op_events_;
  for (const ChunkIndex c : range) {
    Chunk& chunk = chunks_[c];
    if (++chunk.live == 1) {
      chunk.next_use = never;
      chunk.strays = 0;
    }
    if (chunk.state == ChunkState::idle) {
      if (!chunk.busy) idle_remove(c);
      become(c, ChunkState::resident);
    } else if (chunk.state == ChunkState::empty) {
      become(c, ChunkState::unbacked);
    }
    if (in_op_) pin(c);
  }
  if (in_op_ && op_pinned_ > frame_count_ - held_) go_paged();
}

Result<void> Engine::birth(ChunkRange range) {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(range.limit() <= idle_head());
  count_birth(range);
  const Nanoseconds began = program_.now();
  bool waited = false;
  std::optional<Error> failed;
  for (const ChunkIndex c : range) {
    if (failed) break;
    while (chunks_[c].state != ChunkState::resident) {
      if (chunks_[c].state == ChunkState::unbacked && available() > 0) {
        back(c);
        continue;
      }
      if (parked(chunks_[c].state)) {
        bring_forth(c);
        continue;
      }
      if (may_be_unbacked()) break;  // a fault will bring it
      if (chunks_[c].state != ChunkState::unbacked) request(c);
      std::uint32_t lacking = 0;
      for (const ChunkIndex rest : ChunkRange(c, range.limit()))
        lacking += chunks_[rest].state == ChunkState::unbacked ? 1u : 0u;
      waiting_frames_ += lacking;
      waited = true;
      kick();
      const auto ready = [&] {
        return chunks_[c].state == ChunkState::resident ||
               (chunks_[c].state == ChunkState::unbacked && available() > 0);
      };
      const auto left_again = [&] {  // a neighbour's birth brought it while this one waited for room, and it went away
        return chunks_[c].state != ChunkState::resident && chunks_[c].state != ChunkState::unbacked &&
               !chunks_[c].wanted;
      };
      await(lock, [&] { return ready() || left_again() || may_be_unbacked() || room_impossible(); });
      waiting_frames_ -= lacking;
      if (ready() || left_again() || may_be_unbacked()) continue;
      if (in_op_ && !op_paged_) {
        go_paged();
      } else {
        failed = no_room();
        break;
      }
    }
  }
  if (waited) add_stall(began, true);
  if (!failed) return {};
  let_die(range);
  return *failed;
}

Error Engine::no_room() {
  if (!write_error_)
    return {.cause = Cause::out_of_memory,
            .message = "no room in fast memory: everything resident is held; use a larger budget"};
  forgive_writes();  // whoever asks next has them tried again
  return *write_error_;
}

void Engine::death(ChunkRange range) noexcept {
  const std::lock_guard lock(mutex_);
  let_die(range);
}

void Engine::let_die(ChunkRange range) {
  if (in_op_) ++op_events_;
  bool freed = false;
  for (const ChunkIndex c : range) {
    Chunk& chunk = chunks_[c];
    VEDETTE_ASSERT(chunk.live > 0);
    if (--chunk.live > 0) continue;
    freed = true;
    if (chunk.op_serial == op_serial_ && in_op_ && chunk.holds == 0) --op_pinned_;
    chunk.op_serial = 0;
    chunk.wanted = chunk.leaving = chunk.write_failed = chunk.unchanged = false;
    switch (chunk.state) {
      case ChunkState::resident:
        become(c, ChunkState::idle);
        if (!chunk.busy) idle_push(c);
        break;
      case ChunkState::evicting:
      case ChunkState::fetching:
        frames_[chunk.frame].owned = false;  // the I/O's completion frees it
        become(c, ChunkState::empty);
        break;
      case ChunkState::covered:
      case ChunkState::hidden:
      case ChunkState::arrived:
        free_frame(chunk.frame);
        become(c, ChunkState::empty);
        break;
      case ChunkState::away:
      case ChunkState::unbacked:
        become(c, ChunkState::empty);
        break;
      case ChunkState::empty:
      case ChunkState::idle:
        VEDETTE_ASSERT(chunk.live > 0);  // no tensor lived here
    }
  }
  if (!freed) return;
  if (waiting_frames_ > 0) arrived_.notify_all();
  if (can_start()) kick();
}

Result<void> Engine::hold(ChunkRange range) {
  constexpr std::uint32_t least_unheld = 4;  // one instruction may need two operands, each over a chunk's edge
  std::unique_lock lock(mutex_);
  const auto held = [&] {
    for (const ChunkIndex c : range)
      if (!present(c)) return false;
    return true;
  };
  for (const ChunkIndex c : range) {
    Chunk& chunk = chunks_[c];
    if (chunk.holds++ > 0) continue;
    ++held_;
    if (in_op_ && chunk.op_serial == op_serial_) --op_pinned_;
  }
  const bool fits = held_ + least_unheld <= frame_count_;
  if (fits) {
    for (const ChunkIndex c : range)
      if (!present(c)) request(c);
    kick();
    await(lock, [&] { return held() || room_impossible(); });
  }
  if (!fits || !held()) {
    Error refused = fits ? no_room() : too_much_held(range.size());
    drop_hold(range);
    return refused;
  }
  if (watch_ == nullptr) return {};
  for (const ChunkIndex c : range) tell_hold(c);
  return {};
}

Error Engine::too_much_held(std::uint32_t more) const {
  const auto size = [&](std::uint64_t chunks) { return readable({chunks * chunk_bytes_.value}); };
  return {.cause = Cause::out_of_memory,
          .message = "memory of " + size(more) + " cannot be kept in fast memory, which is " + size(frame_count_) +
                     " with " + size(held_ - more) + " held already; use a larger budget"};
}

void Engine::tell_hold(ChunkIndex c) {
  if (!shown(chunks_[c].state)) return;
  watch_->hiding(c);
  watch_->shown(c, chunks_[c].holds > 0);
}

void Engine::release_hold(ChunkRange range) noexcept {
  const std::lock_guard lock(mutex_);
  drop_hold(range);
}

void Engine::drop_hold(ChunkRange range) {
  for (const ChunkIndex c : range) {
    VEDETTE_ASSERT(chunks_[c].holds > 0);
    if (--chunks_[c].holds > 0) continue;
    --held_;
    if (watch_ != nullptr) tell_hold(c);
    if (in_op_ && chunks_[c].op_serial == op_serial_ && chunks_[c].live > 0)
      op_largest_ = std::max(op_largest_, ++op_pinned_);
  }
  kick();
}

}  // namespace vedette
