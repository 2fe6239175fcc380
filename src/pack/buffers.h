// The problem of offset planning (dynamic storage allocation with known lifetimes). Each buffer gets an offset, so that
// buffers that live at the same time do not overlap, and the highest byte in use is as low as possible.
//
// Plain data. Pure, deterministic; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "vedette/units.h"

namespace vedette::pack {

using Time = std::int64_t;  // any unit that orders births and deaths: event numbers, op numbers, cycles

struct Buffer {
  Span<Time> life;  // an empty life meets no other: the buffer is given offset 0
  Bytes bytes;
  std::uint64_t alignment = 1;  // its offset is a multiple of this; at least 1
};

// While it is away, a buffer keeps its offset but others may use its bytes: a tensor that was moved out and will come
// back to where it was.
struct Away {
  std::uint32_t buffer = 0;
  Span<Time> when;  // inside the buffer's life
};

struct Problem {
  std::vector<Buffer> buffers;
  std::vector<Away> away;  // sorted by buffer, then by when; those of one buffer are disjoint
  // When not 0: a buffer touches as few chunks as one of its size can, so one that fits into a chunk lies in a single
  // one.
  std::uint64_t chunk = 0;
};

}  // namespace vedette::pack
