// The states of a chunk, and which may follow which.
//
//           birth            frame                  hide            write            written
//   empty --------> unbacked ------> resident -----------> hidden ----> evicting -------> away
//     ^                                ^ ^ ^ |   needed      |             |           ^  |     lent
//     |                                | | | |               |             |           +--|--------------> in_place
//     |                                | | | +-- covered     |    wanted   |              | read
//     |  frame taken            birth  | | +-----------------+-------------+              |
//     +------------------ idle <-------+ +---------------- arrived <----------------- fetching
//                               death         shown
//
// Every state but resident becomes empty when the last tensor of the chunk dies. `covered` lies beside resident:
// Engine::observe() parks the frame to see whether the running op touches the chunk. `dropped` follows
// resident and parked states; it becomes resident by the frame of a scratch chunk in which its bytes were recomputed.
// `in_place` follows `away` and goes back to it: it has no frame, and its slot's own memory is shown at it.
#pragma once
#include <cstdint>

namespace vedette {

enum class ChunkState : std::uint8_t {
  empty,     // no tensor, no frame
  unbacked,  // tensors, but neither frame nor bytes yet: a birth waits, or a fault will bring a frame
  resident,  // tensors, in a frame that is shown
  idle,      // no tensor, but the frame is still shown
  covered,   // tensors; the frame is parked to see whether the running op touches the chunk
  hidden,    // tensors; the frame is parked ahead of its write
  evicting,  // the frame is being written
  away,      // tensors, in the chunk's slot only
  in_place,  // the same, and threads use them there
  fetching,  // the slot is being read
  arrived,   // in a parked frame and in the slot
  dropped,   // tensors, but no frame, and no bytes until they are recomputed
};

constexpr bool may_become(ChunkState from, ChunkState to) noexcept {
  using enum ChunkState;
  switch (from) {
    case empty:
      return to == unbacked;  // born
    case unbacked:
      return to == resident || to == empty;
    case resident:
      return to == covered || to == hidden || to == evicting || to == idle || to == dropped;
    case idle:
      return to == resident || to == empty;  // born again; its frame was taken
    case covered:
      return to == resident || to == evicting || to == empty;
    case hidden:
      return to == evicting || to == resident || to == dropped || to == empty;
    case evicting:
      return to == away || to == resident || to == empty;
    case away:
      return to == fetching || to == in_place || to == empty;
    case in_place:
      return to == away;
    case fetching:
      return to == arrived || to == away || to == empty;  // away: the read failed and is tried again
    case arrived:
      return to == resident || to == away || to == dropped || to == empty;  // away: its room was needed first
    case dropped:
      return to == resident || to == empty;
  }
  return false;
}
static_assert(!may_become(ChunkState::away, ChunkState::resident), "a chunk never arrives without being fetched");

// In fast memory, but no thread can touch it.
constexpr bool parked(ChunkState state) noexcept {
  return state == ChunkState::hidden || state == ChunkState::arrived || state == ChunkState::covered;
}
constexpr bool shown(ChunkState state) noexcept { return state == ChunkState::resident || state == ChunkState::idle; }

}  // namespace vedette
