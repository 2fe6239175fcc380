// Chunks whose bytes are forgotten, and recomputed by the engine's owner in a scratch chunk, whose frame they get.
#include "base/assert.h"
#include "engine/engine.h"

namespace vedette {

std::vector<ChunkIndex> Engine::drop(ChunkRange range) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  std::vector<ChunkIndex> gone;
  for (const ChunkIndex c : range) {
    const Books::Chunk& chunk = books_[c];
    if (frames_.watched() || !books_.may_leave(c)) continue;
    if (chunk.state == ChunkState::resident && !frames_.hide(c, chunk.frame)) continue;
    books_.drop(c);
    gone.push_back(c);
    figures_.dropped(c, MoveCause::planned);
  }
  if (gone.empty()) return gone;
  arrived_.notify_all();
  demand_.start_soon();
  return gone;
}

bool Engine::is_dropped(ChunkIndex c) const noexcept {
  const std::lock_guard lock(mutex_);
  return books_[c].state == ChunkState::dropped;
}

bool Engine::adopt(ChunkIndex from, ChunkIndex to) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  if (books_[to].state != ChunkState::dropped) return true;
  VEDETTE_ASSERT(books_[from].state == ChunkState::resident && books_[from].holds > 0);
  if (!frames_.shift(from, to)) return false;
  books_.adopt(from, to);
  arrived_.notify_all();
  return true;
}

}  // namespace vedette
