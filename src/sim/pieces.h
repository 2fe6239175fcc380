// Tensors, cut where a plan's moves begin and end: a piece is a run of bytes of one tensor that moves as one. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::sim {

inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

struct Piece {
  enum class Place : std::uint8_t { nowhere, lies, queued, moving } place = Place::nowhere;
  std::uint32_t tensor = 0;
  Span<std::uint64_t> bytes;
  std::uint64_t room = 0;             // in the fastest tier
  std::uint8_t tier = 0, target = 0;  // lies there; queued, moving: from and to
  bool urgent = false;                // queued: an op waits for it
  bool awaited = false;               // the op that waits needs it in the fastest tier
  bool doomed = false;                // moving: dies when it arrives
  bool dropped = false;               // nowhere: it was dropped
  bool dead = false;                  // lies: its tensor died, and its room is not free yet (AfterLife::dropped)
  std::uint32_t ticket = 0;           // of its place in a queue; older ones there are void
  std::uint32_t back = none;          // moving out: the planned fetch that waits for its end
  std::uint64_t copies = 0;           // bit k: tier k holds the newest bytes
  std::uint64_t last_use = 0;
};

struct Pieces {
  std::vector<Piece> all;                               // by tensor, then begin
  std::vector<Span<std::uint32_t>> of_tensor, of_move;  // by tensor; by Plan::moves

  Span<std::uint32_t> inside(const Extent& extent) const;  // the pieces that lie in it whole
};

// Error: malformed_input where a move's part lies outside its tensor. The plan's moves name tensors that exist.
Result<Pieces> cut_pieces(const Trace& trace, const Plan& plan, Bytes granule);

}  // namespace vedette::sim
