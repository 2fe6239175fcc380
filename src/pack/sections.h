// Time, cut into sections: two buffers meet if and only if they share a section, and no section could be left out. Most
// of planning only needs to know the sections that a buffer covers, which are far fewer than the instants at which
// something is born or dies.
//
// Pure, deterministic. O(n log n) for n lives.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "pack/buffers.h"

namespace vedette::pack {

using Sections = Span<std::uint32_t>;

// The sections that buffer b covers are pieces[first[b]] ... pieces[first[b + 1] - 1], ascending: one piece, or more
// where it is away in between, or none if it never lives.
struct Timeline {
  std::uint32_t count = 0;
  std::vector<Sections> pieces;
  std::vector<std::uint32_t> first;  // one more than there are buffers

  std::span<const Sections> of(std::uint32_t buffer) const {
    return {pieces.data() + first[buffer], pieces.data() + first[buffer + 1]};
  }
};

Timeline cut_time(const Problem&);

// For each section the sum of the bytes that live in it, each rounded up to its alignment. The largest is below no
// plan's peak when all alignments are equal.
std::vector<std::uint64_t> loads(const Problem&, const Timeline&);

// The most bytes that live at once; no plan is below it. Where all offsets are multiples of some unit, so are the ends
// of all buffers but the highest: their padding counts, but for the largest one among those that live.
Bytes most_live(const Problem&);

}  // namespace vedette::pack
