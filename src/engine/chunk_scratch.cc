// Chunks that are born, held and filled by recipes: see chunk_scratch.h.
#include "engine/chunk_scratch.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "base/assert.h"
#include "engine/engine.h"

namespace vedette {

bool ChunkScratch::drop(ChunkRange chunks) noexcept { return !engine_.drop(chunks).empty(); }

bool ChunkScratch::is_dropped(ChunkIndex chunk) const noexcept { return engine_.is_dropped(chunk); }

bool ChunkScratch::take_piece(Piece& piece) {
  piece.held = true;
  for (const ChunkIndex c : piece.chunks) {
    const ChunkRange one = ChunkRange::one(c);
    if (!engine_.born(one)) {
      piece.chunks = ChunkRange(piece.chunks.first(), c);
      give_back_piece(piece);
      return false;
    }
    if (piece.held && engine_.hold(one)) continue;
    // More than can be held at once: it may leave until it is needed.
    if (piece.held) engine_.release_hold(ChunkRange(piece.chunks.first(), c));
    piece.held = false;
  }
  return true;
}

void ChunkScratch::give_back_piece(const Piece& piece) noexcept {
  if (piece.held) engine_.release_hold(piece.chunks);
  engine_.died(piece.chunks);
}

void ChunkScratch::adopt_piece(const Piece& piece, ChunkRange chunks) noexcept {
  for (const ChunkIndex to : chunks) {
    const ChunkIndex from{piece.chunks.first().value + (to.value - piece.like.first().value)};
    if (!piece.held && !engine_.hold(ChunkRange::one(from)))
      die("no room in fast memory for a tensor that was recomputed; use a larger budget");
    while (!engine_.adopt(from, to)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!piece.held) engine_.release_hold(ChunkRange::one(from));
  }
}

// Pieces are held, or come by faults, as sources do for which there is no room.
bool ChunkScratch::begin_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange>) {
  for (const ChunkRange source : sources)
    if (engine_.hold(source)) sources_.push_back(source);
  return true;
}

void ChunkScratch::end_recipe(std::span<const ChunkRange>, std::span<const ChunkRange>) noexcept {
  for (const ChunkRange source : sources_) engine_.release_hold(source);
  sources_.clear();
}

bool ChunkScratch::spoil(const Piece& piece) {
  constexpr int other_bytes = 0xa5;
  std::memset(piece.now, other_bytes, piece.bytes.value);
  return true;
}

bool ChunkScratch::same_bytes(const Piece& piece) { return std::memcmp(piece.was, piece.now, piece.bytes.value) == 0; }

}  // namespace vedette
