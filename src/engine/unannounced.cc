#include "engine/unannounced.h"

#include <array>
#include <cstdio>

#include "base/assert.h"

namespace vedette::engine {

void UnannouncedAccesses::serve(const Fault& fault) noexcept {
  std::unique_lock lock(mutex_);
  if (ends_) return;  // the memory is ending or has ended, and wakes all waiting threads itself
  const ChunkIndex c = fault.chunk;
  const Books::Chunk& chunk = books_[c];
  if (shown(chunk.state) || chunk.state == ChunkState::in_place) {
    frames_.restore(fault);
    return;
  }
  if (chunk.live == 0) return stray(fault);
  if (chunk.state == ChunkState::covered) return frames_.make_resident(c);  // and no fault of the plan
  frames_.tell(fault);
  if (!chunk.wanted) figures_.faulted(fault, op_.index(), !books_.paged() && op_.names(c));
  if (fault.write) books_.may_change(c);
  books_.fault(c);
  demand_.request(c);
  if (books_.paged()) demand_.request_what_follows(c);
  slow_.kick();
}

// A fault message can be stale: its thread may already have been woken and have freed the tensor. The page's waiters
// are woken; a thread that still waits faults again. After 256 such faults the access is a bug in the program.
void UnannouncedAccesses::stray(const Fault& fault) noexcept {
  constexpr std::uint32_t most_late = 256;
  if (books_.stray(fault.chunk) > most_late) {
    std::array<char, 160> sentence;
    std::snprintf(sentence.data(), sentence.size(),
                  "the program touched memory of the arena that belongs to no tensor (freed, or never allocated), in "
                  "the page at %p",
                  static_cast<const void*>(fault.address));
    die(sentence.data());
  }
  frames_.wake(fault.chunk);
}

}  // namespace vedette::engine
