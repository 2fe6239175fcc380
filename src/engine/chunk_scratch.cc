#include "engine/chunk_scratch.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "base/assert.h"

namespace vedette::engine {

std::vector<ChunkIndex> ChunkScratch::drop_chunks(ChunkRange range) noexcept {
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

bool ChunkScratch::is_dropped(ChunkIndex c) const noexcept {
  const std::lock_guard lock(mutex_);
  return books_[c].state == ChunkState::dropped;
}

bool ChunkScratch::adopt(ChunkIndex from, ChunkIndex to) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  if (books_[to].state != ChunkState::dropped) return true;
  VEDETTE_ASSERT(books_[from].state == ChunkState::resident && books_[from].holds > 0);
  if (!frames_.shift(from, to)) return false;
  books_.adopt(from, to);
  arrived_.notify_all();
  return true;
}

// --- scratch ---------------------------------------------------------------------------------------------------------

bool ChunkScratch::take_piece(Piece& piece) {
  piece.held = true;
  for (const ChunkIndex c : piece.chunks) {
    const ChunkRange one = ChunkRange::one(c);
    if (!tensors_.born(one)) {
      piece.chunks = ChunkRange(piece.chunks.first(), c);
      give_back_piece(piece);
      return false;
    }
    if (piece.held && tensors_.hold(one)) continue;
    // More than can be held at once: it may leave until it is needed.
    if (piece.held) tensors_.release_hold(ChunkRange(piece.chunks.first(), c));
    piece.held = false;
  }
  return true;
}

void ChunkScratch::give_back_piece(const Piece& piece) noexcept {
  if (piece.held) tensors_.release_hold(piece.chunks);
  tensors_.died(piece.chunks);
}

void ChunkScratch::adopt_piece(const Piece& piece, ChunkRange chunks) noexcept {
  for (const ChunkIndex to : chunks) {
    const ChunkIndex from{piece.chunks.first().value + (to.value - piece.like.first().value)};
    if (!piece.held && !tensors_.hold(ChunkRange::one(from)))
      die("no room in fast memory for a tensor that was recomputed; use a larger budget");
    while (!adopt(from, to)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!piece.held) tensors_.release_hold(ChunkRange::one(from));
  }
}

// Pieces are held, or come by faults, as sources do for which there is no room.
bool ChunkScratch::begin_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange>) {
  for (const ChunkRange source : sources)
    if (tensors_.hold(source)) sources_.push_back(source);
  return true;
}

void ChunkScratch::end_recipe(std::span<const ChunkRange>, std::span<const ChunkRange>) noexcept {
  for (const ChunkRange source : sources_) tensors_.release_hold(source);
  sources_.clear();
}

bool ChunkScratch::spoil(const Piece& piece) {
  constexpr int other_bytes = 0xa5;
  std::memset(piece.now, other_bytes, piece.bytes.value);
  return true;
}

bool ChunkScratch::same_bytes(const Piece& piece) { return std::memcmp(piece.was, piece.now, piece.bytes.value) == 0; }

}  // namespace vedette::engine
